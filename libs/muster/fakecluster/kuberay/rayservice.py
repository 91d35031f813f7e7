"""A RayService: from its observed objects to the operator's next writes. Pure; KubeRay 1.7.

The status names a cluster before the cluster is made. A changed ``rayClusterConfig`` (replicas, suspension and new
groups are added apart) makes a second cluster, which takes over once ready; a cluster no longer named is deleted a
minute later. A suspension under way deletes everything, whatever the spec says meanwhile.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.fakecluster.apiserver.names import derived_suffix, stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.clusterstatus import is_true
from muster.fakecluster.kuberay.events import warning
from muster.fakecluster.kuberay.groups import config_hash
from muster.fakecluster.kuberay.rayjob import with_empty_structs
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.kuberay.validation import cluster_spec_problem, name_problem
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, Merge, OperationPlan, Replace, owner_of
from muster.model.api import PODS, RAYCLUSTERS, RAYSERVICES

LINGERS_S = 60
"""How long a cluster stays that the service names no longer, where ``rayClusterDeletionDelaySeconds`` is not set."""
REQUEUE_MS = 2_000
HASH = "ray.io/hash-without-replicas-and-workers-to-delete"
GROUPS = "ray.io/num-worker-groups"
READY, SUSPENDING, SUSPENDED, UPGRADING = "Ready", "Suspending", "Suspended", "UpgradeInProgress"


class RayServiceSeen(Struct, frozen=True):
    """A RayService, and the clusters under its control."""

    service: Obj
    clusters: dict[str, Obj] = field(default_factory=dict)
    """By name."""
    unnamed_since: dict[str, int] = field(default_factory=dict)
    """name of a cluster that the service names no longer -> since when, ms"""


class _Look:
    """A look at a service, and the results so far."""

    def __init__(self, seen: RayServiceSeen, now: int) -> None:
        self.seen, self.now = seen, now
        self.old: Obj = seen.service.get("status") or {}
        self.status: Obj = dict(self.old)
        self.spec: Obj = seen.service["spec"]
        self.operations: list[ApiOperation] = []

    def named(self, key: str) -> str:
        return str((self.status.get(key) or {}).get("rayClusterName", ""))

    def name(self, key: str, cluster: str) -> None:
        self.status[key] = {"rayClusterName": cluster} if cluster else {}

    def mark(self, kind: str, status: str, reason: str) -> None:
        entries = [dict(entry) for entry in self.status.get("conditions") or ()]
        current = next((entry for entry in entries if entry["type"] == kind), None)
        if current is None:
            current = {"type": kind}
            entries.append(current)
        if (current.get("status"), current.get("reason")) != (status, reason):
            current |= {"status": status, "reason": reason, "message": "", "lastTransitionTime": stamp(self.now)}
        self.status["conditions"] = entries

    def delete(self, cluster: Obj) -> None:
        meta = cluster["metadata"]
        if not meta.get("deletionTimestamp"):
            self.operations.append(DeleteObject(RAYCLUSTERS, meta["namespace"], meta["name"], meta["uid"]))

    def plan(self) -> OperationPlan:
        if self.status != self.old:
            body = {**self.seen.service, "status": self.status}
            self.operations.append(Replace(RAYSERVICES, body, "status"))
        return OperationPlan(tuple(self.operations), REQUEUE_MS)


def reconcile_rayservice(seen: RayServiceSeen, now: int, settings: OperatorSettings) -> OperationPlan:
    """What the operator does about a RayService at ``now`` (ms)."""
    service = seen.service
    if service["spec"].get("managedBy") not in (None, words.MANAGER):
        return OperationPlan()
    if service["metadata"].get("deletionTimestamp"):
        return _let_go(seen, now)
    if words.SERVICE_FINALIZER not in (service["metadata"].get("finalizers") or ()):
        return OperationPlan((_with_finalizer(service),))
    look = _Look(seen, now)
    problem = name_problem(service["metadata"]["name"]) or cluster_spec_problem(service["spec"]["rayClusterConfig"])
    if problem:
        look.mark(READY, "False", "ValidationFailed")
        look.operations.append(warning(service, "ValidationFailed", problem, now))
    elif is_true(look.old, SUSPENDING):
        _suspend(look)
    elif is_true(look.old, SUSPENDED):
        if not look.spec.get("suspend"):
            look.mark(SUSPENDED, "False", "RayServiceResumed")
            for kind in (READY, UPGRADING):
                look.mark(kind, "False", "Initializing")
    elif look.spec.get("suspend"):
        look.mark(SUSPENDING, "True", "SuspendRequested")
        for kind in (READY, UPGRADING):
            look.mark(kind, "False", "SuspendInProgress")
        look.name("activeServiceStatus", "")
        look.name("pendingServiceStatus", "")
    else:
        _serve(look, settings)
    return look.plan()


def _with_finalizer(service: Obj) -> Replace:
    """The operator writes back what it has decoded, so its empty structs come along and the generation grows."""
    meta, config = service["metadata"], with_empty_structs(service["spec"]["rayClusterConfig"])
    finalizers = [*(meta.get("finalizers") or ()), words.SERVICE_FINALIZER]
    spec = {**service["spec"], "rayClusterConfig": config}
    return Replace(RAYSERVICES, {**service, "metadata": {**meta, "finalizers": finalizers}, "spec": spec})


def _let_go(seen: RayServiceSeen, now: int) -> OperationPlan:
    """Its clusters go before it does."""
    look, meta = _Look(seen, now), seen.service["metadata"]
    for cluster in seen.clusters.values():
        look.delete(cluster)
    kept = [finalizer for finalizer in meta.get("finalizers") or () if finalizer != words.SERVICE_FINALIZER]
    if not seen.clusters and kept != (meta.get("finalizers") or []):
        look.operations.append(Replace(RAYSERVICES, {**seen.service, "metadata": {**meta, "finalizers": kept}}))
    return OperationPlan(tuple(look.operations))


def _suspend(look: _Look) -> None:
    look.name("activeServiceStatus", "")
    look.name("pendingServiceStatus", "")
    for cluster in look.seen.clusters.values():
        look.delete(cluster)
    if look.seen.clusters:
        return
    look.status.pop("serviceStatus", None)
    for kind in (SUSPENDING, UPGRADING, READY):
        look.mark(kind, "False", "SuspendComplete")
    look.mark(SUSPENDED, "True", "SuspendComplete")


def _serve(look: _Look, settings: OperatorSettings) -> None:
    config = look.spec["rayClusterConfig"]
    active, pending = look.named("activeServiceStatus"), look.named("pendingServiceStatus")
    clusters = look.seen.clusters
    if pending and is_ready(clusters.get(pending)):
        look.name("activeServiceStatus", pending)
        look.name("pendingServiceStatus", "")
        look.status["serviceStatus"] = "Running"
        look.mark(UPGRADING, "False", "NoPendingCluster")
        active, pending = pending, ""
    _answer(look, clusters.get(active))
    newest = pending or active
    if settings.version == "1.6" and newest in clusters:
        _pass_suspension_on(look, clusters[newest], bool(config.get("suspend")))
    changed = newest in clusters and not _is_of(clusters[newest], config)
    if changed and _has_fewer_groups(clusters[newest], config):
        look.operations.append(_with_groups(clusters[newest], config))
    elif not newest or (changed and (look.spec.get("upgradeStrategy") or {}).get("type") != "None"):
        meta = look.seen.service["metadata"]
        suffix = derived_suffix("service", meta["name"], meta["uid"], config_hash(config), look.now)
        look.name("pendingServiceStatus", f"{meta['name']}-{suffix}")
        look.mark(UPGRADING, "True" if active else "False", "BothActivePendingClustersExist" if active else "Initial")
    for name in (pending, active):  # Made at the look after the one that named it.
        if name and name not in clusters:
            made = cluster_of(look, name)
            look.operations.append(Create(RAYCLUSTERS, made["metadata"]["namespace"], made))
    lingers_ms = look.spec.get("rayClusterDeletionDelaySeconds", LINGERS_S) * 1000
    for name, since in look.seen.unnamed_since.items():
        if name in clusters and look.now >= since + lingers_ms:
            look.delete(clusters[name])


def _answer(look: _Look, cluster: Obj | None) -> None:
    """Whether the serving cluster can serve: all pods, then the head, which is marked when ready."""
    if cluster is None:
        if look.named("activeServiceStatus"):
            look.mark(READY, "False", "ZeroServeEndpoints")
        return
    head = ((cluster.get("status") or {}).get("head") or {}).get("podName")
    if not is_ready(cluster):
        look.mark(READY, "False", "ZeroServeEndpoints")
        return
    look.mark(READY, "True", "NonZeroServeEndpoints")
    if head:
        serves = {"metadata": {"labels": {words.SERVES: "true"}}}
        look.operations.append(Merge(PODS, cluster["metadata"]["namespace"], head, serves))


def _pass_suspension_on(look: _Look, cluster: Obj, wanted: bool) -> None:
    """What was written on the RayCluster itself is undone."""
    if bool(cluster["spec"].get("suspend")) != wanted:
        look.operations.append(Replace(RAYCLUSTERS, {**cluster, "spec": {**cluster["spec"], "suspend": wanted}}))


def _is_of(cluster: Obj, config: Obj) -> bool:
    return bool(cluster["metadata"]["annotations"].get(HASH) == config_hash(config))


def _has_fewer_groups(cluster: Obj, config: Obj) -> bool:
    """Whether the config is the cluster's with more worker groups: these are added in place."""
    notes = cluster["metadata"]["annotations"]
    groups = int(notes.get(GROUPS, 0))
    more = groups < len(config.get("workerGroupSpecs") or ())
    return more and bool(notes.get(HASH) == config_hash(config, groups))


def _with_groups(cluster: Obj, config: Obj) -> Replace:
    """The cluster with the new groups; existing groups stay."""
    meta, groups = cluster["metadata"], cluster["spec"].get("workerGroupSpecs") or []
    spec = {**cluster["spec"], "workerGroupSpecs": [*groups, *config["workerGroupSpecs"][len(groups) :]]}
    notes = {**meta["annotations"], **_notes(config)}
    return Replace(RAYCLUSTERS, {**cluster, "metadata": {**meta, "annotations": notes}, "spec": spec})


def _notes(config: Obj) -> dict[str, str]:
    return {HASH: config_hash(config), GROUPS: str(len(config.get("workerGroupSpecs") or ()))}


def cluster_of(look: _Look, name: str) -> Obj:
    """The RayCluster of a RayService; it gets the service's labels and annotations."""
    meta, config = look.seen.service["metadata"], look.spec["rayClusterConfig"]
    labels = {**(meta.get("labels") or {}), words.FROM_NAME: meta["name"], words.FROM_KIND: "RayService"}
    notes = {**(meta.get("annotations") or {}), **_notes(config)}
    owner = owner_of(look.seen.service)
    made = {"name": name, "namespace": meta["namespace"], "labels": labels, "annotations": notes}
    return {
        "apiVersion": look.seen.service["apiVersion"],
        "kind": "RayCluster",
        "metadata": {**made, "ownerReferences": owner},
        "spec": config,
    }


def is_ready(cluster: Obj | None) -> bool:
    return cluster is not None and (cluster.get("status") or {}).get("state") == words.READY
