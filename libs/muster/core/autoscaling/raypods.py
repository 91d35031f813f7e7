"""Live pods of Ray clusters that scale themselves, heads and workers: one function per event."""

from __future__ import annotations

from muster.core.autoscaling.state import BridgeState, Worker
from muster.core.autoscaling.upkeep import recheck, wishes
from muster.core.objects.labels import RAY_GROUP, RAY_NODE_TYPE, RAY_WORKER, is_ray_head
from muster.events.facts import PodGone, PodObserved
from muster.model.keys import Position
from muster.model.workload import PodState

REPLICA = "ray.io/worker-group-replica-name"
"""Label that the hosts of one replica share."""


def pod_observed(state: BridgeState, at: Position, event: PodObserved) -> None:
    pod = event.pod
    if is_ray_head(pod.labels) and pod.owner_uid:
        _head_over(state, pod.ref.uid)
        if not pod.over:
            state.head_of[pod.ref.uid] = pod.owner_uid
            state.heads.setdefault(pod.owner_uid, {})[pod.ref.uid] = pod.running
        recheck(state, pod.owner_uid)
    if pod.labels.get(RAY_NODE_TYPE) != RAY_WORKER or not pod.owner_uid:
        return
    if pod.over:
        _worker_over(state, pod.ref.uid)
    elif pod.ref.uid not in state.worker_of:
        state.worker_of[pod.ref.uid] = pod.owner_uid
        groups = state.workers.setdefault(pod.owner_uid, {})
        replica = pod.labels.get(REPLICA, pod.ref.name)
        worker = Worker(pod.ref, replica, bool(pod.node), pod.created, pod.request, pod.deleting)
        worker.stuck_since = at.at if _stuck(pod) else 0
        groups.setdefault(pod.labels.get(RAY_GROUP, ""), {})[pod.ref.uid] = worker
        recheck(state, pod.owner_uid)
    else:
        for workers in state.workers[state.worker_of[pod.ref.uid]].values():
            if pod.ref.uid in workers:
                _worker_changed(state, at, workers[pod.ref.uid], pod)


def _stuck(pod: PodState) -> bool:
    """Whether its scheduler says that no node takes it."""
    return not pod.node and not pod.deleting and pod.trouble is not None and pod.trouble.code == "Unschedulable"


def _worker_changed(state: BridgeState, at: Position, worker: Worker, pod: PodState) -> None:
    cluster = state.clusters.get(state.worker_of[pod.ref.uid])
    if cluster is not None and pod.node and not worker.bound:
        cluster.watch.barren = 0
    worker.bound, worker.deleting = worker.bound or bool(pod.node), pod.deleting
    since = (worker.stuck_since or at.at) if _stuck(pod) else 0
    if since != worker.stuck_since:
        worker.stuck_since = since
        recheck(state, state.worker_of[pod.ref.uid])
    if worker.request != pod.request:  # It was grown in place, or made smaller.
        worker.request = pod.request
        if cluster is not None:
            wishes(state, cluster)
            recheck(state, cluster.ref.uid)


def pod_gone(state: BridgeState, _at: Position, event: PodGone) -> None:
    uid = event.ref.uid
    cluster = state.head_of.get(uid)
    if cluster is not None:
        _head_over(state, uid)
        recheck(state, cluster)
    _worker_over(state, uid)


def _head_over(state: BridgeState, uid: str) -> None:
    cluster = state.head_of.pop(uid, None)
    if cluster is not None:
        del state.heads[cluster][uid]
        if not state.heads[cluster]:
            del state.heads[cluster]


def _worker_over(state: BridgeState, uid: str) -> None:
    cluster = state.worker_of.pop(uid, None)
    if cluster is not None:
        groups = state.workers[cluster]
        for group in [group for group, pods in groups.items() if pods.pop(uid, None) is not None and not pods]:
            del groups[group]
        if not groups:
            del state.workers[cluster]
        recheck(state, cluster)
