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
from muster.model.language import listed, marked, say, translated
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
    "kubeflow.org": marked("the Kubeflow training operator"),
    "sparkoperator.k8s.io": marked("the Spark operator"),
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
            Finding(
                "bad",
                say("API server"),
                say("it does not tell its version: {err}", err=err),
                say("check the address and credentials"),
            )
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
        return Finding(
            "bad",
            say("API server"),
            say("is {shown}, too old", shown=shown),
            say("upgrade it to {major}.{minor}", major=OLDEST.major, minor=OLDEST.minor),
        )
    return Finding("ok", say("API server"), shown)


async def _definitions(transport: ApiTransport, *, acting: bool) -> list[Finding]:
    wanted = [*NEEDED_TO_WATCH, *NEEDED_TO_ACT]
    there = await asyncio.gather(*(served(transport, resource) for resource in wanted))
    findings = []
    for resource, exists in zip(wanted, there, strict=True):
        if exists:
            continue
        fix = say("apply the definition of {resource} from deploy/crds", resource=resource)
        needed = acting or resource in NEEDED_TO_WATCH
        detail = say("is not served as {api_version}", api_version=resource.api_version)
        findings.append(Finding("bad" if needed else "note", say("definition {kind}", kind=resource.kind), detail, fix))
    if not findings:
        findings.append(Finding("ok", say("definitions"), listed(resource.kind for resource in wanted)))
    return findings


async def _kinds(transport: ApiTransport, kinds: Collection[str]) -> tuple[list[str], list[Finding]]:
    """The enabled kinds that the cluster has, and the findings about missing kinds, which are skipped."""
    there = await asyncio.gather(*(served(transport, KINDS[kind].resource) for kind in kinds))
    existing = [kind for kind, exists in zip(kinds, there, strict=True) if exists]
    missing = [KINDS[kind].resource for kind in kinds if kind not in existing]
    findings = [
        Finding(
            "ok" if existing else "bad",
            say("kinds"),
            say("{existing} can be queued", existing=listed(existing) or "none"),
        )
    ]
    for group in dict.fromkeys(resource.group for resource in missing):
        names = [resource for resource in missing if resource.group == group]
        detail = say("not served as {names}: skipped", names=listed(sorted({kind.api_version for kind in names})))
        fix = say(
            "install {group}, or leave them out of MUSTER_KINDS", group=translated(INSTALLED_BY.get(group, group))
        )
        findings.append(Finding("note", say("kinds {names}", names=listed(kind.kind for kind in names)), detail, fix))
    return existing, findings


async def _permissions(transport: ApiTransport, *, acting: bool, kinds: Collection[str]) -> list[Finding]:
    rights = [*watching_rights(kinds), *(await acting_rights(transport, kinds) if acting else ())]
    missing = await asyncio.gather(*(_missing(transport, right) for right in rights))
    findings = []
    for (resource, subresource, namespace, _), verbs in zip(rights, missing, strict=True):
        if verbs:
            name = f"{resource}/{subresource}" if subresource else str(resource)
            where = (
                say("in namespace {namespace}", namespace=namespace)
                if namespace
                else say("in all namespaces")
                if resource.namespaced
                else ""
            )
            words = " ".join(part for part in (listed(verbs), name, where) if part)
            fix = say(
                "grant it: verbs {verbs} on {name!r} of API group {group}",
                verbs=list(verbs),
                name=name,
                group=resource.group or "(core)",
            )
            findings.append(Finding("bad", say("permission"), say("we may not {words}", words=words), fix))
    if not findings:
        checks = sum(len(verbs) for *_, verbs in rights)
        findings.append(
            Finding(
                "ok",
                say("permissions"),
                say("{rights} that {acting} needs", rights=counted(checks, "right"), acting=_whom(acting)),
            )
        )
    return findings


def _whom(acting: bool) -> str:
    return say("acting") if acting else say("watching")


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
        return Finding(
            "note",
            say("scale gates"),
            say("scaleStrategy.scaleGate is not written: {lacking}", lacking=say("; ").join(lacking)),
        )
    return Finding(
        "ok",
        say("scale gates"),
        say("scaleStrategy.scaleGate gets entry {signal} while quota refuses growth", signal=SIGNAL),
    )
