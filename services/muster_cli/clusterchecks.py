"""The demands of Muster on a cluster, for watching and for acting.

The checks read through the API server; nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from muster.core.reading.kubequeue import QUEUE_NAMESPACE
from muster.core.reading.quotatree import NAMESPACE as TREE_NAMESPACE
from muster.core.reading.watched import WATCHED, shards_of
from muster.core.workloads.registry import KINDS
from muster.kube import scalegates
from muster.kube.discovery import ServerVersion, can_i, has_status_subresource, served, server_version
from muster.model import api
from muster.model.api import ApiResource
from muster.model.elastic import SIGNAL
from muster.model.text import counted
from muster.ports import ApiStatusError, ApiTransport
from muster_cli.findings import Finding
from muster_cli.nativechecks import native_findings
from muster_cli.owners import owner_findings
from muster_cli.policychecks import policy_findings

OLDEST = ServerVersion(1, 28)
NEEDED_TO_WATCH = (api.QUOTA_TREES,)
NEEDED_TO_ACT = (api.QUEUES, api.QUEUE_UNITS)

Right = tuple[ApiResource, str, str, tuple[str, ...]]
"""(resource, subresource, namespace or "" for all, verbs)"""

NAMED = {row.resource: row.name for row in WATCHED.values() if row.name}
"""{resource: the only object of the resource that Muster reads}"""

INSTALLED_BY = {
    "ray.io": "KubeRay",
    "kubeflow.org": "the Kubeflow training operator",
    "sparkoperator.k8s.io": "the Spark operator",
}
"""{API group of a workload kind: installer of the definition}"""


async def cluster_findings(
    transport: ApiTransport,
    *,
    acting: bool,
    policies: bool = True,
    kinds: Collection[str] = KINDS,
    ours: str | None = "",
    native: bool = False,
) -> list[Finding]:
    """All findings. ``acting``: with the rights to write. Raises ApiUnreachableError.

    ``policies``: false for a simulated server, which has no policies. ``kinds``: the enabled workload kinds.
    ``ours``: as of :func:`owner_findings`. ``native``: kube-scheduler is to place the
    gangs of jobs.
    """
    try:
        version = await server_version(transport)
    except ApiStatusError as err:
        return [
            Finding("bad", "API server", f"it does not tell its version: {err}", "check the address and credentials")
        ]
    findings = [_version(version)]
    findings += await _definitions(transport, acting=acting)
    served_kinds, absent = await _kinds(transport, kinds)
    findings += absent
    findings += await _permissions(transport, acting=acting, kinds=served_kinds)
    if policies:
        findings += await policy_findings(transport, version, acting=acting)
    findings += await native_findings(transport, placed=native, acting=acting, policies=policies)
    if acting and "RayCluster" in served_kinds:
        findings.append(await _scale_gates(transport))
    findings += await owner_findings(transport, acting=acting, kinds=served_kinds, ours=ours)
    return findings


def _version(version: ServerVersion) -> Finding:
    shown = version.git or f"{version.major}.{version.minor}"
    if (version.major, version.minor) < (OLDEST.major, OLDEST.minor):
        return Finding("bad", "API server", f"is {shown}, too old", f"upgrade it to {OLDEST.major}.{OLDEST.minor}")
    return Finding("ok", "API server", shown)


async def _definitions(transport: ApiTransport, *, acting: bool) -> list[Finding]:
    wanted = [*NEEDED_TO_WATCH, *NEEDED_TO_ACT]
    there = await asyncio.gather(*(served(transport, resource) for resource in wanted))
    findings = []
    for resource, exists in zip(wanted, there, strict=True):
        if exists:
            continue
        fix = f"apply the definition of {resource} from deploy/crds"
        needed = acting or resource in NEEDED_TO_WATCH
        detail = f"is not served as {resource.api_version}"
        findings.append(Finding("bad" if needed else "note", f"definition {resource.kind}", detail, fix))
    if not findings:
        findings.append(Finding("ok", "definitions", ", ".join(resource.kind for resource in wanted)))
    return findings


async def _kinds(transport: ApiTransport, kinds: Collection[str]) -> tuple[list[str], list[Finding]]:
    """The enabled kinds that the cluster has, and the findings about missing kinds, which are skipped."""
    there = await asyncio.gather(*(served(transport, KINDS[kind].resource) for kind in kinds))
    existing = [kind for kind, exists in zip(kinds, there, strict=True) if exists]
    missing = [KINDS[kind].resource for kind in kinds if kind not in existing]
    findings = [Finding("ok" if existing else "bad", "kinds", f"{', '.join(existing) or 'none'} can be queued")]
    for group in dict.fromkeys(resource.group for resource in missing):
        names = [resource for resource in missing if resource.group == group]
        detail = f"not served as {', '.join(sorted({kind.api_version for kind in names}))}: skipped"
        fix = f"install {INSTALLED_BY.get(group, group)}, or leave them out of MUSTER_KINDS"
        findings.append(Finding("note", f"kinds {', '.join(kind.kind for kind in names)}", detail, fix))
    return existing, findings


async def _permissions(transport: ApiTransport, *, acting: bool, kinds: Collection[str]) -> list[Finding]:
    rights = [*watching_rights(kinds), *(await acting_rights(transport, kinds) if acting else ())]
    missing = await asyncio.gather(*(_missing(transport, right) for right in rights))
    findings = []
    for (resource, subresource, namespace, _), verbs in zip(rights, missing, strict=True):
        if verbs:
            name = f"{resource}/{subresource}" if subresource else str(resource)
            where = f"in namespace {namespace}" if namespace else "in all namespaces" if resource.namespaced else ""
            words = " ".join(part for part in (", ".join(verbs), name, where) if part)
            fix = f"grant it: verbs {list(verbs)} on {name!r} of API group {resource.group or '(core)'}"
            findings.append(Finding("bad", "permission", f"we may not {words}", fix))
    if not findings:
        checks = sum(len(verbs) for *_, verbs in rights)
        findings.append(Finding("ok", "permissions", f"{counted(checks, 'right')} that {_whom(acting)} needs"))
    return findings


def _whom(acting: bool) -> str:
    return "acting" if acting else "watching"


def watching_rights(kinds: Collection[str] = KINDS) -> list[Right]:
    """What the watcher needs."""
    rows = [WATCHED[shard] for shard in shards_of(kinds)]
    return [(row.resource, "", row.namespace, ("list", "watch")) for row in rows]


async def acting_rights(transport: ApiTransport, kinds: Collection[str] = KINDS) -> list[Right]:
    """What the actuator and the presenter need besides."""
    rights: list[Right] = [
        *((KINDS[kind].resource, "", "", ("get", "patch")) for kind in kinds),
        (api.PODS, "binding", "", ("create",)),
        (api.PODS, "", "", ("get", "list", "delete")),
        (api.DISRUPTION_BUDGETS, "", "", ("list",)),
        (api.PROVISIONING_REQUESTS, "", "", ("create", "delete")),
        (api.POD_TEMPLATES, "", "", ("create", "delete")),
        (api.QUEUE_UNITS, "", "", ("create", "patch")),
        (api.QUEUES, "", QUEUE_NAMESPACE, ("create", "patch", "delete")),
        (api.EVENTS, "", "", ("create", "patch")),
        (api.PODS, "status", "", ("patch",)),
        *((resource, "", "", ("create", "patch", "delete")) for resource in api.POD_GROUPS),
        (api.KAI_POD_GROUPS, "", "", ("create", "list", "patch", "watch")),
        (api.NAMESPACES, "", "", ("create",)),
    ]
    for resource, namespace in ((api.QUEUE_UNITS, ""), (api.QUEUES, QUEUE_NAMESPACE)):
        if await has_status_subresource(transport, resource):
            rights.append((resource, "status", namespace, ("patch",)))
    split = await has_status_subresource(transport, api.QUOTA_TREES)
    rights.append((api.QUOTA_TREES, "status" if split else "", TREE_NAMESPACE, ("patch",)))
    return rights


async def _missing(transport: ApiTransport, right: Right) -> tuple[str, ...]:
    resource, subresource, namespace, verbs = right
    answers = await asyncio.gather(
        *(
            can_i(transport, verb, resource, namespace, name=NAMED.get(resource, ""), subresource=subresource)
            for verb in verbs
        )
    )
    return tuple(verb for verb, answer in zip(verbs, answers, strict=True) if not answer.allowed)


async def _scale_gates(transport: ApiTransport) -> Finding:
    """Whether Ray's autoscaler is shown which worker groups quota refuses."""
    try:
        lacking = await scalegates.lacking(transport)
    except ApiStatusError as err:
        lacking = (str(err),)
    if lacking:
        return Finding("note", "scale gates", f"scaleStrategy.scaleGate is not written: {'; '.join(lacking)}")
    return Finding("ok", "scale gates", f"scaleStrategy.scaleGate gets entry {SIGNAL} while quota refuses growth")
