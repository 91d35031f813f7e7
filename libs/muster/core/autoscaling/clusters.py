"""Ray clusters that scale themselves, as the bridge knows them: one function per event."""

from __future__ import annotations

from muster.core.autoscaling.gate import next_of, unused
from muster.core.autoscaling.state import BridgeState, Cluster, Grant, GrowthAsked, HeadSaid, Reclaim, Worker
from muster.core.autoscaling.wish import wish_of
from muster.core.quota.claims import is_down
from muster.core.stage import Arm
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, QuotaReleased, QuotaReserved, WorkloadAdopted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested, GrowthWithdrawn, WorkersChosen, WorkersKept
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectGone,
    PodGone,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Elastic
from muster.model.keys import Position, Ref

REST_MS = 5_000
"""How long nothing is written to a cluster again after a write that failed."""
SCALED = ("RayCluster", "RayJob", "RayService")
"""Kinds whose clusters may scale themselves, from the start or later."""
WORKER, NODE_TYPE, GROUP = "worker", "ray.io/node-type", "ray.io/group"
REPLICA = "ray.io/worker-group-replica-name"
"""Labels that KubeRay gives its pods, and what one of them says of a worker."""


def arms() -> dict[type[Event], Arm]:
    """{event type: how it changes what is known of these clusters}"""
    return {
        WorkloadObserved: workload_observed,
        WorkloadGone: workload_gone,
        ChildObserved: child_observed,
        ChildGone: child_gone,
        PodObserved: pod_observed,
        PodGone: pod_gone,
        RayDemandObserved: heard,
        QuotaReserved: charged,
        WorkloadAdopted: charged,
        QuotaReleased: released,
        GrowthRequested: requested,
        GrowthGranted: granted,
        GrowthWithdrawn: granted,
        GateSet: gate_set,
        EvictionOrdered: reclaim_ordered,
        WorkersChosen: chosen,
        WorkersKept: kept,
        EffectApplied: written,
        EffectFailed: written,
    }


def workload_observed(state: BridgeState, at: Position, event: WorkloadObserved) -> None:
    workload = event.workload
    uid, elastic = workload.ref.uid, workload.elastic
    if elastic is None:
        state.sizes.pop(uid, None)
        if uid in state.clusters and state.clusters_seen.newer(uid, workload.rv):
            _forget(state, uid)
        return
    state.sizes[uid] = elastic.sizes
    grant = state.grants.get(uid)
    if grant is not None and not grant.groups:  # It was admitted with a fixed size, and scales itself from here on.
        grant.groups = elastic.sizes
    if workload.ref.kind == "RayCluster" and state.clusters_seen.newer(uid, workload.rv):
        runs = not workload.suspended and workload.phase in ("starting", "running")
        _seen(state, at, workload.ref, uid, workload.rv, elastic, runs=runs)


def workload_gone(state: BridgeState, at: Position, event: WorkloadGone) -> None:
    state.sizes.pop(event.ref.uid, None)
    _gone(state, at, event, child=False)


def child_observed(state: BridgeState, at: Position, event: ChildObserved) -> None:
    child = event.child
    if child.ref.kind != "RayCluster" or not child.owner_uid:
        return
    if child.elastic is None:
        if child.ref.uid in state.clusters and state.clusters_seen.newer(child.ref.uid, child.rv):
            _forget(state, child.ref.uid)
        return
    if state.clusters_seen.newer(child.ref.uid, child.rv):
        _seen(state, at, child.ref, child.owner_uid, child.rv, child.elastic, runs=True)


def child_gone(state: BridgeState, at: Position, event: ChildGone) -> None:
    _gone(state, at, event, child=True)
    if event.ref.uid not in state.clusters:
        state.heard.pop(event.ref.uid, None)


def _gone(state: BridgeState, at: Position, event: ObjectGone, *, child: bool) -> None:
    """It is gone as what it was last known as; one that changed its role before that is not."""
    cluster = state.clusters.get(event.ref.uid)
    if cluster is None or (cluster.owner != event.ref.uid) is not child:
        return
    if state.clusters_seen.end(event, at.at):
        _forget(state, event.ref.uid)


def pod_observed(state: BridgeState, at: Position, event: PodObserved) -> None:
    pod = event.pod
    if pod.labels.get(NODE_TYPE) != WORKER or not pod.owner_uid or not state.workers_seen.newer(pod.ref.uid, pod.rv):
        return
    if pod.over:
        _worker_over(state, pod.ref.uid)
    elif pod.ref.uid not in state.worker_of:
        state.worker_of[pod.ref.uid] = pod.owner_uid
        groups = state.workers.setdefault(pod.owner_uid, {})
        worker = Worker(pod.ref, pod.labels.get(REPLICA, pod.ref.name), bool(pod.node), pod.created)
        groups.setdefault(pod.labels.get(GROUP, ""), {})[pod.ref.uid] = worker
        recheck(state, pod.owner_uid)
    elif pod.node:
        for workers in state.workers[state.worker_of[pod.ref.uid]].values():
            if pod.ref.uid in workers:
                workers[pod.ref.uid].bound = True


def pod_gone(state: BridgeState, at: Position, event: PodGone) -> None:
    if event.ref.uid in state.workers_seen.versions and state.workers_seen.end(event, at.at):
        _worker_over(state, event.ref.uid)


def _worker_over(state: BridgeState, uid: str) -> None:
    cluster = state.worker_of.pop(uid, None)
    if cluster is not None:
        groups = state.workers[cluster]
        for group in [group for group, pods in groups.items() if pods.pop(uid, None) is not None and not pods]:
            del groups[group]
        if not groups:
            del state.workers[cluster]
        recheck(state, cluster)


def heard(state: BridgeState, at: Position, event: RayDemandObserved) -> None:
    uid, known = event.ref.uid, state.heard.get(event.ref.uid)
    if uid in state.clusters_seen.ended:
        return
    if known is None or (event.attempt, event.read_at) > (known.attempt, known.read_at):
        state.heard[uid] = HeadSaid(event.attempt, event.read_at, event.demand)
        cluster = state.clusters.get(uid)
        if cluster is not None:
            cluster.cause = Cause(at.seq, at.item)
            _wishes(state, cluster)
        recheck(state, uid)


# --- what is granted ------------------------------------------------------------------------------------------------


def charged(state: BridgeState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    if event.ref.kind in SCALED:
        state.grants[uid] = Grant(event.ref, event.attempt, dict(state.sizes.get(uid, {})))
        _wishes_of_owner(state, uid)


def released(state: BridgeState, _at: Position, event: QuotaReleased) -> None:
    grant = state.grants.get(event.ref.uid)
    if grant is not None and grant.attempt <= event.attempt:
        del state.grants[event.ref.uid]
        state.reclaims.pop(event.ref.uid, None)
        cluster = state.cluster_of.get(event.ref.uid, "")
        state.chosen.pop(cluster, None)
        state.growing.pop(cluster, None)
        recheck(state, cluster)


def granted(state: BridgeState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
    grant = state.grants.get(event.ref.uid)
    if grant is None or grant.attempt != event.attempt:
        return
    grant.groups = dict(event.groups)
    if isinstance(event, GrowthWithdrawn):
        grant.giving = {}
    reclaim = state.reclaims.get(event.ref.uid)
    if reclaim is not None and is_down(grant.groups, reclaim.left):
        del state.reclaims[event.ref.uid]
        state.chosen.pop(event.cluster.uid, None)
    cluster = state.clusters.get(event.cluster.uid)
    if cluster is not None:
        cluster.cause, cluster.unused_since = Cause(at.seq, at.item), 0
    state.growing.pop(event.cluster.uid, None)
    recheck(state, event.cluster.uid)


def requested(state: BridgeState, _at: Position, event: GrowthRequested) -> None:
    grant = state.grants.get(event.ref.uid)
    if event.units and grant is not None and grant.attempt == event.attempt and event.cluster.uid in state.clusters:
        state.growing[event.cluster.uid] = GrowthAsked(event.attempt, event.granted, event.units)
    else:
        state.growing.pop(event.cluster.uid, None)
    recheck(state, event.cluster.uid)


def gate_set(state: BridgeState, at: Position, event: GateSet) -> None:
    grant = state.grants.get(event.owner.uid)
    if event.ref.uid not in state.clusters or grant is None or grant.attempt != event.attempt:
        return
    state.gates[event.ref.uid] = Cause(at.seq, at.item)
    if event.workers or event.claimant is not None:
        state.chosen.pop(event.ref.uid, None)
    grant.giving = dict(event.granted)
    recheck(state, event.ref.uid)


def reclaim_ordered(state: BridgeState, at: Position, event: EvictionOrdered) -> None:
    """Clusters are to give back workers for a job."""
    for part in event.partial:
        grant = state.grants.get(part.ref.uid)
        if grant is not None and grant.attempt == part.attempt:
            left, cause = dict(part.left), Cause(at.seq, at.item)
            state.reclaims[part.ref.uid] = Reclaim(event.ref, part.attempt, left, cause, at.at)
            recheck(state, state.cluster_of.get(part.ref.uid, ""))


def chosen(state: BridgeState, _at: Position, event: WorkersChosen) -> None:
    """Unless it has given back enough by now, or is gone."""
    reclaim = state.reclaims.get(event.owner.uid)
    if event.ref.uid in state.clusters and reclaim is not None and reclaim.attempt == event.attempt:
        state.chosen[event.ref.uid] = event
        recheck(state, event.ref.uid)


def kept(state: BridgeState, _at: Position, event: WorkersKept) -> None:
    reclaim = state.reclaims.get(event.ref.uid)
    if reclaim is not None and reclaim.attempt == event.attempt:
        del state.reclaims[event.ref.uid]
        cluster = state.cluster_of.get(event.ref.uid, "")
        state.chosen.pop(cluster, None)
        recheck(state, cluster)


def written(state: BridgeState, at: Position, event: EffectApplied | EffectFailed) -> None:
    """A write to a cluster is done, or cannot be."""
    if event.action != "gate" or state.gates.get(event.ref.uid) != event.cause:
        return
    del state.gates[event.ref.uid]
    cluster = state.clusters.get(event.ref.uid)
    if cluster is None:
        return
    if isinstance(event, EffectApplied):
        cluster.written_rv, cluster.unused_since = event.rv, 0
    else:
        cluster.rests_until = at.at + REST_MS
        grant = state.grants.get(cluster.owner)
        if grant is not None:
            grant.giving = {}
    recheck(state, event.ref.uid)


# --- upkeep -----------------------------------------------------------------------------------------------------------


def _seen(state: BridgeState, at: Position, ref: Ref, owner: str, rv: int, elastic: Elastic, *, runs: bool) -> None:
    cause = Cause(at.seq, at.item)
    cluster = state.clusters.get(ref.uid)
    if cluster is not None and cluster.owner != owner:
        _forget(state, ref.uid)
        cluster = None
    if cluster is None:
        cluster = state.clusters[ref.uid] = Cluster(ref, owner, elastic, rv, cause)
    cluster.owner, cluster.elastic, cluster.rv, cluster.cause, cluster.runs = owner, elastic, rv, cause, runs
    state.cluster_of[owner] = ref.uid
    _wishes(state, cluster)
    recheck(state, ref.uid)


def _forget(state: BridgeState, uid: str) -> None:
    cluster = state.clusters.pop(uid)
    grant = state.grants.get(cluster.owner)
    if grant is not None:
        grant.giving = {}  # Its next sight shows what came of the write that was to lower it.
    for table in (state.growing, state.gates, state.due, state.heard, state.chosen):
        table.pop(uid, None)
    if state.cluster_of.get(cluster.owner) == uid:
        del state.cluster_of[cluster.owner]


def _wishes_of_owner(state: BridgeState, owner: str) -> None:
    cluster = state.clusters.get(state.cluster_of.get(owner, ""))
    if cluster is not None:
        _wishes(state, cluster)
        recheck(state, cluster.ref.uid)


def _wishes(state: BridgeState, cluster: Cluster) -> None:
    """What it wants by what is known now; what an older attempt wanted counts no more."""
    grant, known = state.grants.get(cluster.owner), state.heard.get(cluster.ref.uid)
    of_now = known is not None and (grant is None or known.attempt == grant.attempt)
    cluster.wish = wish_of(cluster.elastic, known.demand if known is not None and of_now else None)


def recheck(state: BridgeState, uid: str) -> None:
    """Bring ``due`` and what is unused in line with the state."""
    cluster = state.clusters.get(uid)
    if cluster is None:
        state.due.pop(uid, None)
        return
    grant = state.grants.get(cluster.owner)
    if grant is None or not unused(state, cluster, grant):
        cluster.unused_since = 0
    elif not cluster.unused_since:
        cluster.unused_since = state.now
    if next_of(state, cluster) is not None:
        state.due[uid] = None
    else:
        state.due.pop(uid, None)
