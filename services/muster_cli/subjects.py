"""Subjects that pass by the queue: accounts that may start jobs without an admission, which ConfigMap
``muster-controllers`` names, and subjects with the right to act as group ``muster:break-glass``, to write the status of
jobs, or to change the policies. Read from the roles and the bindings of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.workloads.registry import KINDS
from muster.model import api
from muster.model.api import ApiResource
from muster.model.language import listed, marked, say
from muster.ports import ApiTransport
from muster_cli.findings import Finding
from muster_cli.policychecks import ADMISSION, CONTROLLERS, GLASS, STARTERS
from muster_cli.rolechecks import SYSTEM

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
    everywhere: bool = False
    """Objects of no namespace: a binding in a namespace gives nothing."""
    name: str = ""
    """A rule for this object alone gives the right too."""


_WRITES = ("create", "update", "patch", "delete")
_POLICIES = tuple(
    (ADMISSION, f"{sort}admissionpolic{ending}")
    for sort in ("validating", "mutating")
    for ending in ("ies", "ybindings")
)
POWERS = (
    Power(
        marked("act as group {group}, which starts jobs without an admission"),
        ("impersonate",),
        (("", "groups"),),
        True,
        GLASS,
    ),
    Power(
        marked("write the status of queued kinds"),
        ("update", "patch"),
        tuple((row.resource.group, f"{row.resource.plural}/status") for row in KINDS.values()),
    ),
    Power(marked("change the policies"), _WRITES, _POLICIES, everywhere=True),
)


async def subject_findings(transport: ApiTransport) -> list[Finding]:
    """One for each right. Raises ApiUnreachableError."""
    paths = [*(part.path() for part in _PARTS), api.CONFIG_MAPS.path(SYSTEM, CONTROLLERS)]
    *answers, trusted = await asyncio.gather(*(transport.request("GET", path) for path in paths))
    denied = [part.plural for part, answer in zip(_PARTS, answers, strict=True) if not answer.ok]
    if denied:
        detail = say("subjects that pass by the queue cannot be listed: {denied} cannot be read", denied=listed(denied))
        return [Finding("note", say("subjects"), detail)]
    roles, bindings = _read([msgspec.json.decode(answer.body).get("items") or [] for answer in answers])
    data = (msgspec.json.decode(trusted.body).get("data") or {}) if trusted.ok else {}
    starters = [say("group {group}", group=GLASS), say("Muster's own accounts"), *data.get(STARTERS, "").split()]
    findings = [
        Finding(
            "ok", say("subjects"), say("may start jobs without an admission: {starters}", starters=listed(starters))
        )
    ]
    for power in POWERS:
        names = sorted(set(holders(power, roles, bindings)))
        more = say(" and {number} more", number=len(names) - SHOWN) if len(names) > SHOWN else ""
        findings.append(
            Finding(
                "ok",
                say("subjects"),
                say(
                    "may {words}: {names}{more}",
                    words=say(power.words, group=GLASS),
                    names=listed(names[:SHOWN]) or say("none"),
                    more=more,
                ),
            )
        )
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
        if where and power.everywhere:
            continue
        home = where if ref["kind"] == "Role" else ""
        rules = roles.get((ref["kind"], home, ref["name"]), ())
        if not any(_gives(power, rule) for rule in rules):
            continue
        for subject in binding.get("subjects") or ():
            name, of = subject["name"], subject.get("namespace", "")
            shown = f"{subject['kind']} {f'{of}/' if of else ''}{name}"
            yield say("{subject} in namespace {namespace}", subject=shown, namespace=where) if where else shown


def _gives(power: Power, rule: Mapping[str, Any]) -> bool:
    verbs = set(rule.get("verbs") or ())
    if power.name not in (rule.get("resourceNames") or [power.name]):
        return False
    groups, resources = set(rule.get("apiGroups") or ()), set(rule.get("resources") or ())
    return bool(verbs & {"*", *power.verbs}) and any(
        groups & {"*", group} and resources & {"*", resource, f"*/{resource.partition('/')[2]}"}
        for group, resource in power.resources
    )
