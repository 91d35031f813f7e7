"""One RayService: from its observed objects to the operator's next writes. Pure; KubeRay 1.7.

A cluster is named in the status before it is made. A changed ``rayClusterConfig`` (its replicas apart) makes a second
one, which takes over once it is ready; what the service names no longer is deleted a minute later. A suspension that
has begun deletes everything, whatever the spec says meanwhile.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.fakecluster.apiserver.names import derived_suffix, stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.clusterstatus import is_true
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, OperationPlan, Replace, owner_of
from muster.model.api import RAYCLUSTERS, RAYSERVICES

LINGERS_MS = 60_000
"""How long a cluster stays that the service names no longer."""
REQUEUE_MS = 2_000
HASH = "ray.io/hash-without-replicas-and-workers-to-delete"
SCALED = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
"""What of a worker group changes without a new cluster."""
READY, SUSPENDING, SUSPENDED, UPGRADING = "Ready", "Suspending", "Suspended", "UpgradeInProgress"


class RayServiceSeen(Struct, frozen=True):
    """A RayService, and the clusters that name it as their controller."""

    service: Obj
    clusters: dict[str, Obj] = field(default_factory=dict)
    """By name."""
    unnamed_since: dict[str, int] = field(default_factory=dict)
    """name of a cluster that the service names no longer -> since when, ms"""


class _Look:
    """One look at a service, and what comes of it so far."""

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
        found = next((entry for entry in entries if entry["type"] == kind), None)
        if found is None:
            found = {"type": kind}
            entries.append(found)
        if (found.get("status"), found.get("reason")) != (status, reason):
            found |= {"status": status, "reason": reason, "message": "", "lastTransitionTime": stamp(self.now)}
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


def reconcile_rayservice(seen: RayServiceSeen, now: int) -> OperationPlan:
    """What the operator does about a RayService at ``now`` (ms)."""
    if seen.service["metadata"].get("deletionTimestamp"):
        return OperationPlan()
    if seen.service["spec"].get("managedBy") not in (None, words.MANAGER):
        return OperationPlan()
    look = _Look(seen, now)
    if is_true(look.old, SUSPENDING):
        _suspend(look)
    elif is_true(look.old, SUSPENDED):
        if not look.spec.get("suspend"):
            look.mark(SUSPENDED, "False", "RayServiceResumed")
    elif look.spec.get("suspend"):
        look.mark(SUSPENDING, "True", "SuspendInProgress")
    else:
        _serve(look)
    return look.plan()


def _suspend(look: _Look) -> None:
    for cluster in look.seen.clusters.values():
        look.delete(cluster)
    if look.seen.clusters:
        return
    look.name("activeServiceStatus", "")
    look.name("pendingServiceStatus", "")
    look.status.pop("serviceStatus", None)
    for kind in (SUSPENDING, UPGRADING, READY):
        look.mark(kind, "False", "SuspendComplete")
    look.mark(SUSPENDED, "True", "SuspendComplete")


def _serve(look: _Look) -> None:
    goal = config_hash(look.spec["rayClusterConfig"])
    active, pending = look.named("activeServiceStatus"), look.named("pendingServiceStatus")
    clusters = look.seen.clusters
    if pending and is_ready(clusters.get(pending)):
        look.name("activeServiceStatus", pending)
        look.name("pendingServiceStatus", "")
        look.status["serviceStatus"] = "Running"
        look.mark(UPGRADING, "False", "NoPendingCluster")
        look.mark(READY, "True", "NonZeroServeEndpoints")
        active, pending = pending, ""
    newest = pending or active
    changed = newest in clusters and clusters[newest]["metadata"]["annotations"].get(HASH) != goal
    strategy = (look.spec.get("upgradeStrategy") or {}).get("type")
    if not newest or (changed and strategy != "None"):
        meta = look.seen.service["metadata"]
        suffix = derived_suffix("service", meta["name"], meta["uid"], goal, look.now)
        look.name("pendingServiceStatus", f"{meta['name']}-{suffix}")
        look.mark(UPGRADING, "True" if active else "False", "BothActivePendingClustersExist" if active else "Initial")
    for name in (pending, active):  # Made at the look after the one that named it.
        if name and name not in clusters:
            made = cluster_of(look, name)
            look.operations.append(Create(RAYCLUSTERS, made["metadata"]["namespace"], made))
    for name, since in look.seen.unnamed_since.items():
        if name in clusters and look.now >= since + LINGERS_MS:
            look.delete(clusters[name])


def cluster_of(look: _Look, name: str) -> Obj:
    """The RayCluster of a RayService; it gets the service's labels and annotations."""
    meta, config = look.seen.service["metadata"], look.spec["rayClusterConfig"]
    labels = {**(meta.get("labels") or {}), words.FROM_NAME: meta["name"], words.FROM_KIND: "RayService"}
    notes = {**(meta.get("annotations") or {}), HASH: config_hash(config)}
    owner = owner_of(look.seen.service)
    made = {"name": name, "namespace": meta["namespace"], "labels": labels, "annotations": notes}
    return {
        "apiVersion": look.seen.service["apiVersion"],
        "kind": "RayCluster",
        "metadata": {**made, "ownerReferences": owner},
        "spec": config,
    }


def config_hash(config: Obj) -> str:
    """What of a cluster's spec tells whether a new cluster is needed."""
    groups: list[Any] = [
        {key: value for key, value in group.items() if key not in SCALED}
        for group in config.get("workerGroupSpecs") or ()
    ]
    return derived_suffix("hash", repr({**config, "workerGroupSpecs": groups}))


def is_ready(cluster: Obj | None) -> bool:
    return cluster is not None and (cluster.get("status") or {}).get("state") == words.READY
