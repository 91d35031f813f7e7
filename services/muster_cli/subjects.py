"""Subjects with a right that passes by the queue: to start jobs without an admission, to write the status of jobs, to
change the policies. Read from the roles and the bindings of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.workloads.registry import KINDS
from muster.model.api import ApiResource
from muster.ports import ApiTransport
from muster_cli.findings import Finding
from muster_cli.policychecks import ADMISSION
from muster_cli.rolechecks import ADMIT

RBAC = "rbac.authorization.k8s.io"
_PARTS = tuple(
    ApiResource(RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"))
    for kind in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
)
SHOWN = 12


class Power(Struct, frozen=True):
    """A right that passes by the queue. ``resources``: plurals of API groups, ``jobs/status`` for a part."""

    words: str
    verbs: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    named: bool = False
    """A role of one namespace gives the right only if the role names the verb: the policies ask for the verb."""


_WRITES = ("create", "update", "patch", "delete")
_POLICIES = tuple(
    (ADMISSION, f"{sort}admissionpolic{ending}")
    for sort in ("validating", "mutating")
    for ending in ("ies", "ybindings")
)
POWERS = (
    Power("start jobs without an admission", ("admit",), ((ADMIT.group, ADMIT.plural),), named=True),
    Power(
        "write the status of queued kinds",
        ("update", "patch"),
        tuple((row.resource.group, f"{row.resource.plural}/status") for row in KINDS.values()),
    ),
    Power("change the policies", _WRITES, _POLICIES),
)


async def subject_findings(transport: ApiTransport) -> list[Finding]:
    """One for each right. Raises ApiUnreachableError."""
    answers = await asyncio.gather(*(transport.request("GET", part.path()) for part in _PARTS))
    denied = [part.plural for part, answer in zip(_PARTS, answers, strict=True) if not answer.ok]
    if denied:
        detail = f"subjects that pass by the queue cannot be listed: {', '.join(denied)} cannot be read"
        return [Finding("note", "subjects", detail)]
    roles, bindings = _read([msgspec.json.decode(answer.body).get("items") or [] for answer in answers])
    findings = []
    for power in POWERS:
        names = sorted(set(holders(power, roles, bindings)))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        findings.append(Finding("ok", "subjects", f"may {power.words}: {', '.join(names[:SHOWN]) or 'none'}{more}"))
    return findings


Role = tuple[str, str, str]
"""(kind, namespace or "", name)"""


def _read(lists: list[list[dict[str, Any]]]) -> tuple[dict[Role, list[Any]], list[dict[str, Any]]]:
    roles: dict[Role, list[Any]] = {}
    for part, items in zip(_PARTS[:2], lists[:2], strict=True):
        for item in items:
            meta = item["metadata"]
            roles[part.kind, meta.get("namespace", ""), meta["name"]] = item.get("rules") or []
    return roles, [*lists[2], *lists[3]]


def holders(power: Power, roles: Mapping[Role, Collection[Any]], bindings: Collection[Any]) -> Iterator[str]:
    """Subjects with a right, and where, if not everywhere."""
    for binding in bindings:
        where, ref = binding["metadata"].get("namespace", ""), binding["roleRef"]
        home = where if ref["kind"] == "Role" else ""
        rules = roles.get((ref["kind"], home, ref["name"]), ())
        if not any(_gives(power, rule, where) for rule in rules):
            continue
        for subject in binding.get("subjects") or ():
            name, of = subject["name"], subject.get("namespace", "")
            yield f"{subject['kind']} {f'{of}/' if of else ''}{name}{f' in namespace {where}' if where else ''}"


def _gives(power: Power, rule: Mapping[str, Any], where: str) -> bool:
    verbs = set(rule.get("verbs") or ())
    if rule.get("resourceNames") or (power.named and where and "*" in verbs):
        return False
    groups, resources = set(rule.get("apiGroups") or ()), set(rule.get("resources") or ())
    return bool(verbs & {"*", *power.verbs}) and any(
        groups & {"*", group} and resources & {"*", resource, f"*/{resource.partition('/')[2]}"}
        for group, resource in power.resources
    )
