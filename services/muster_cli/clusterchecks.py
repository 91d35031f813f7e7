"""What a cluster must have for Muster to watch it, and to act on it.

Looked at through the API server; nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from muster.core.reading.kubequeue import QUEUE_NAMESPACE
from muster.core.reading.quotatree import NAMESPACE as TREE_NAMESPACE
from muster.core.reading.registry import WATCHED, shards_of
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
from muster_cli.rolechecks import ADMIT, SYSTEM

OLDEST = ServerVersion(1, 28)
ADMISSION = "admissionregistration.k8s.io"
CONTROLLERS = "muster-controllers"
"""The ConfigMap that names the accounts which the policies trust."""


class AdmissionPolicy(Struct, frozen=True):
    """A policy of ``deploy/policies``: its kind, its binding of the same name, and the first server that has them."""

    name: str
    resource: ApiResource
    binding: ApiResource
    since: ServerVersion
    guards: bool = True
    """Keeps jobs in their queue; else it only spares people to write something themselves."""
    steers: bool = False
    """Gives pods of gangs our name."""
    limits: bool = False
    """Keeps Muster's own actuator from what its rights would let it do."""


def _policy(
    name: str, sort: str, since: ServerVersion, *, guards: bool = True, steers: bool = False, limits: bool = False
) -> AdmissionPolicy:
    kind = f"{sort}AdmissionPolicy"
    resource = ApiResource(ADMISSION, "v1", f"{sort.lower()}admissionpolicies", kind, namespaced=False)
    binding = ApiResource(ADMISSION, "v1", f"{sort.lower()}admissionpolicybindings", f"{kind}Binding", namespaced=False)
    return AdmissionPolicy(name, resource, binding, since, guards, steers, limits)


POLICIES = (
    _policy("muster-jobs", "Validating", ServerVersion(1, 30)),
    _policy("muster-jobs-scaled", "Validating", ServerVersion(1, 30)),
    _policy("muster-cronjobs", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods", "Validating", ServerVersion(1, 30)),
    _policy("muster-pod-priorities", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods-resized", "Validating", ServerVersion(1, 30)),
    _policy("muster-ray-resized", "Validating", ServerVersion(1, 30)),
    _policy("muster-queueunits", "Validating", ServerVersion(1, 30)),
    _policy("muster-namespaces", "Validating", ServerVersion(1, 30)),
    _policy("muster-status", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods-bound", "Validating", ServerVersion(1, 30)),
    _policy("muster-tokens", "Validating", ServerVersion(1, 30)),
    _policy("muster-claims", "Validating", ServerVersion(1, 30)),
    _policy("muster-own-jobs", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-own-pods", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-own-objects", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-pod-deletions", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-jobs-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-trainings-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-cronjobs-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-jobs-kept-running", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-trainings-kept-running", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-jobs-kept-running-by-tree", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-trainings-kept-running-by-tree", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-gang-pods-steered", "Mutating", ServerVersion(1, 36), guards=False, steers=True),
    _policy("muster-gang-pods-grouped", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-gpu-shares-told", "Mutating", ServerVersion(1, 36), guards=False),
)
"""What ``deploy/policies`` holds (a test keeps them equal)."""

NEEDED_TO_WATCH = (api.QUOTA_TREES,)
NEEDED_TO_ACT = (api.QUEUES, api.QUEUE_UNITS)

Right = tuple[ApiResource, str, str, tuple[str, ...]]
"""(resource, subresource, namespace or "" for all, verbs)"""

NAMED = {row.resource: row.name for row in WATCHED.values() if row.name}
"""{resource: the only object of it that we read}"""

INSTALLED_BY = {
    "ray.io": "KubeRay",
    "kubeflow.org": "the Kubeflow training operator",
    "sparkoperator.k8s.io": "the Spark operator",
}
"""{API group of a workload kind: what brings its definition}"""


async def cluster_findings(
    transport: ApiTransport,
    *,
    acting: bool,
    policies: bool = True,
    kinds: Collection[str] = KINDS,
    ours: str = "",
    native: bool = False,
) -> list[Finding]:
    """Everything that was looked at. ``acting``: with what writing there takes. Raises ApiUnreachableError.

    ``policies``: false for a simulated server, which knows none. ``kinds``: the workload kinds that are on.
    ``ours``: the holder of the lease of the cluster that is no other Muster. ``native``: kube-scheduler is to place the
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
        findings += await _policies(transport, version, acting=acting)
    findings += await native_findings(transport, placed=native, acting=acting, policies=policies)
    if acting and "RayCluster" in served_kinds:
        findings.append(await _scale_gates(transport))
    findings += await owner_findings(transport, acting=acting, kinds=served_kinds, ours=ours)
    findings += await _tree(transport)
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
        what = f"is not served as {resource.api_version}"
        findings.append(Finding("bad" if needed else "note", f"definition {resource.kind}", what, fix))
    if not findings:
        findings.append(Finding("ok", "definitions", ", ".join(resource.kind for resource in wanted)))
    return findings


async def _kinds(transport: ApiTransport, kinds: Collection[str]) -> tuple[list[str], list[Finding]]:
    """The kinds of those that are on that the cluster has, and what to say of the others: they are skipped."""
    there = await asyncio.gather(*(served(transport, KINDS[kind].resource) for kind in kinds))
    found = [kind for kind, exists in zip(kinds, there, strict=True) if exists]
    missing = [KINDS[kind].resource for kind in kinds if kind not in found]
    findings = [Finding("ok" if found else "bad", "kinds", f"{', '.join(found) or 'none'} can be queued")]
    for group in dict.fromkeys(resource.group for resource in missing):
        names = [resource for resource in missing if resource.group == group]
        what = f"not served as {', '.join(sorted({each.api_version for each in names}))}: skipped"
        fix = f"install {INSTALLED_BY.get(group, group)}, or leave them out of MUSTER_KINDS"
        findings.append(Finding("note", f"kinds {', '.join(each.kind for each in names)}", what, fix))
    return found, findings


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
        (ADMIT, "", "", ("admit",)),
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
        (api.KAI_POD_GROUPS, "", "", ("create", "patch")),
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


async def _policies(transport: ApiTransport, version: ServerVersion, *, acting: bool) -> list[Finding]:
    """Whether queued jobs are guarded; without policies a bypass is noticed and charged, not stopped."""
    known = (version.major, version.minor)
    wanted = [policy for policy in POLICIES if known >= (policy.since.major, policy.since.minor)]
    if not wanted:
        what = "this server has none of ours: a bypass is noticed and charged, not stopped"
        return [Finding("note", "policies", what), *_steered(wanted, [])]
    missing: dict[str, AdmissionPolicy] = {}
    unknown: list[str] = []
    for policy in wanted:
        for resource in (policy.resource, policy.binding):
            answer = await transport.request("GET", resource.path(name=policy.name))
            if answer.status == 404:
                missing[f"{resource.kind} {policy.name}"] = policy
            elif not answer.ok:
                unknown.append(f"{resource.kind} {policy.name} (HTTP {answer.status})")
    findings = []
    guards = [name for name, policy in missing.items() if policy.guards]
    if guards:
        what = f"{', '.join(guards)} missing: any user may start a queued job without an admission"
        findings.append(Finding("bad" if acting else "note", "policies", what, "apply deploy/policies"))
    limits = [name for name, policy in missing.items() if policy.limits]
    if limits:
        what = f"{', '.join(limits)} missing: the credentials of Muster's actuator change anything"
        findings.append(Finding("note", "policies", what, "apply deploy/policies"))
    if unknown:
        findings.append(Finding("note", "policies", f"cannot be looked at: {', '.join(unknown)}"))
    there = [policy.name for policy in wanted if policy not in missing.values()]
    findings = findings or [Finding("ok", "policies", ", ".join(there))]
    findings += await _controllers(transport, acting=acting) if not guards else []
    return [*findings, *_steered(wanted, [name for name, policy in missing.items() if policy.steers])]


async def _controllers(transport: ApiTransport, *, acting: bool) -> list[Finding]:
    """Whether the policies know the accounts that run the kinds: without them they refuse everything."""
    answer = await transport.request("GET", api.CONFIG_MAPS.path(SYSTEM, CONTROLLERS))
    if answer.status == 404:
        what = f"ConfigMap {SYSTEM}/{CONTROLLERS} missing: the policies refuse every job and pod of managed namespaces"
        return [Finding("bad" if acting else "note", "policies", what, "kubectl apply -f deploy/rbac/controllers.yaml")]
    if not answer.ok:
        return []
    data = msgspec.json.decode(answer.body).get("data") or {}
    resources = [f"{row.resource.plural}.{row.resource.group}" for row in KINDS.values()]
    unnamed = [resource for resource in resources if not data.get(resource, "").strip()]
    if not unnamed:
        return []
    named = f"ConfigMap {SYSTEM}/{CONTROLLERS} names no account"
    what = f"{named} for {', '.join(unnamed)}: what the operator makes of these is refused"
    return [Finding("note", "policies", what, f"kubectl -n {SYSTEM} edit configmap {CONTROLLERS}")]


def _steered(wanted: Collection[AdmissionPolicy], missing: Collection[str]) -> list[Finding]:
    """Whether pods of gangs get our name as their scheduler, where they name none."""
    what = "pods with the marks of a gang have to say schedulerName: muster themselves"
    if missing:
        return [Finding("note", "gang pods", f"{', '.join(missing)} missing: {what}", "apply deploy/policies")]
    if not any(policy.steers for policy in wanted):
        return [Finding("note", "gang pods", f"this server changes no objects by policy: {what}")]
    return []


async def _tree(transport: ApiTransport) -> list[Finding]:
    found = await _trees(transport, TREE_NAMESPACE)
    if found is None:
        return []  # Missing definitions and permissions are findings of their own.
    names = [name for _, name in found]
    everywhere = await _trees(transport) or []
    ignored = [f"{namespace}/{name}" for namespace, name in everywhere if namespace != TREE_NAMESPACE]
    queues = await _kai_queues(transport)
    findings = [] if queues and not names else [_in_force(names, ignored)]
    findings += [Finding("ok", "KAI queues", counted(queues, "queue"))] if queues else []
    if ignored:
        what = f"{', '.join(ignored)}: ignored, because a tree counts only in namespace {TREE_NAMESPACE}"
        fix = f"set metadata.namespace to {TREE_NAMESPACE} and apply it again, or delete it"
        findings.append(Finding("note", "quota tree", what, fix))
    return findings


def _in_force(names: Sequence[str], ignored: Sequence[str]) -> Finding:
    if len(names) > 1:
        others = ", ".join(names[1:])
        return Finding("note", "quota tree", f"only the oldest of {', '.join(names)} counts", f"delete {others}")
    if names:
        return Finding("ok", "quota tree", f"{TREE_NAMESPACE}/{names[0]}")
    what = f"there is no ElasticQuotaTree in {TREE_NAMESPACE}: nothing can be admitted"
    fix = f"move {ignored[0]} to {TREE_NAMESPACE}" if ignored else "apply one; `muster up` shows an example"
    return Finding("note", "quota tree", what, fix)


async def _kai_queues(transport: ApiTransport) -> int:
    """How many queues of KAI Scheduler there are, as far as one page tells; 0 where they may not be listed."""
    answer = await transport.request("GET", api.KAI_QUEUES.path(), query={"limit": "500"})
    return len(msgspec.json.decode(answer.body)["items"]) if answer.ok else 0


async def _scale_gates(transport: ApiTransport) -> Finding:
    """Whether Ray's autoscaler is shown which worker groups quota refuses."""
    try:
        lacking = await scalegates.lacking(transport)
    except ApiStatusError as err:
        lacking = (str(err),)
    if lacking:
        return Finding("note", "scale gates", f"scaleStrategy.scaleGate is not written: {'; '.join(lacking)}")
    return Finding("ok", "scale gates", f"scaleStrategy.scaleGate gets entry {SIGNAL} while quota refuses growth")


async def _trees(transport: ApiTransport, namespace: str = "") -> list[tuple[str, str]] | None:
    """(namespace, name) of the quota trees, the oldest first; None where they may not be listed."""
    answer = await transport.request("GET", api.QUOTA_TREES.path(namespace), query={"limit": "50"})
    if not answer.ok:
        return None
    items = [item["metadata"] for item in msgspec.json.decode(answer.body)["items"]]
    items.sort(key=lambda meta: (meta.get("creationTimestamp", ""), meta["name"]))
    return [(meta["namespace"], meta["name"]) for meta in items]
