"""Upgrades of RayServices: the new cluster of an upgrade is growth, and starts once the quota is granted.

KubeRay makes the new cluster at once, and the traffic moves once the new cluster serves. Where the policies hold, every
cluster of a RayService begins suspended. The bridge lifts the suspension of the first cluster, whose quota is the
admission; for the new cluster of an upgrade the bridge first asks for the quota of a whole cluster beside the serving
one. Denied, the new cluster waits suspended, and one that has started is suspended: the serving cluster is never the
price of the new one. KubeRay 1.6 takes the suspension back at once: the bridge then tries again, less and less often.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.autoscaling.bridgestate import BridgeState, GrowthAsked, ServiceCluster
from muster.events.base import Cause, Decision
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested, GrowthUnit
from muster.events.facts import ChildGone, ChildObserved
from muster.model.elastic import PENDING, ReplicaCost
from muster.model.keys import Position
from muster.model.workload import Workload

REST_MS = 5_000
"""Pause between two writes of the same value; doubled each time."""
LONGEST_REST = 8
"""Most doublings of the pause."""
UNIT = GrowthUnit({PENDING: 1})


# --- folds ------------------------------------------------------------------------------------------------------------


def cluster_observed(state: BridgeState, at: Position, event: ChildObserved) -> None:
    """A RayCluster of a RayService is as it is now."""
    child = event.child
    family = state.services.setdefault(child.owner_uid, {})
    known = family.get(child.ref.uid)
    if known is None:
        known = family[child.ref.uid] = ServiceCluster(child.ref, child.held, Cause(at.seq, at.item))
    known.held, known.cause = child.held, Cause(at.seq, at.item)


def cluster_gone(state: BridgeState, _at: Position, event: ChildGone) -> None:
    for owner, family in [*state.services.items()]:
        if family.pop(event.ref.uid, None) is not None and not family:
            del state.services[owner]


def ordered(cluster: ServiceCluster, now: int, *, suspend: bool) -> None:
    """The field is to be written: the same value not again at once, whether the write fails or is taken back."""
    cluster.tries = cluster.tries + 1 if cluster.wrote is suspend else 0
    cluster.wrote, cluster.rests_until = suspend, now + REST_MS * 2 ** min(cluster.tries, LONGEST_REST)


def whole_of(workload: Workload) -> ReplicaCost:
    """The charge of a whole cluster by the spec of now."""
    counted, full = workload.need.get("ack", {}), workload.need.get("full", {})
    pods = sum(pods.count for pods in workload.pod_sets)
    return ReplicaCost(counted, full if full != counted else None, pods, workload.gpu_memory)


# --- decisions --------------------------------------------------------------------------------------------------------


def decisions(state: BridgeState) -> Iterator[Decision]:
    """The requests for new clusters, and the writes that hold a cluster or let a cluster start."""
    for owner in state.services:
        decision = _next_of(state, owner)
        if decision is not None:
            yield decision


def deadlines(state: BridgeState) -> Iterator[int]:
    for family in state.services.values():
        yield from (cluster.rests_until for cluster in family.values() if cluster.rests_until)


def request(state: BridgeState, owner: str) -> tuple[GrowthUnit, ...]:
    """The unit by which a RayService asks for the new cluster of an upgrade; empty where no upgrade waits."""
    return (UNIT,) if state.pending_of(owner) is not None else ()


def opens(state: BridgeState, owner: str) -> bool:
    """Whether a granted new cluster has not started yet."""
    grant, newest = state.grants.get(owner), state.newest_of(owner)
    return grant is not None and newest is not None and newest.held and newest.ref.uid == grant.opened


def taken_over(state: BridgeState, event: GrowthGranted) -> None:
    """The new cluster of an upgrade is granted."""
    grant = state.grants[event.ref.uid]
    if event.pending is not None and PENDING in event.added:
        grant.opened, grant.waits = event.pending.uid, ""
        state.upgrades.pop(event.ref.uid, None)


def _next_of(state: BridgeState, owner: str) -> Decision | None:
    grant, job, newest = state.grants.get(owner), state.jobs.get(owner), state.newest_of(owner)
    if grant is None or job is None or not job.runs:
        return None
    pending, asked = state.pending_of(owner), state.upgrades.get(owner)
    if not state.asks_by_itself(owner):
        due = _request(state, owner, pending, asked)
        if due is not None:
            return due
    if newest is None or newest.ref.uid in state.gates:
        return None
    hold = pending is newest
    if newest.held is hold or (hold and grant.waits != newest.ref.name):
        return None
    if newest.wrote is hold and state.now < newest.rests_until:
        return None
    return GateSet(
        cause=newest.cause,
        ref=newest.ref,
        owner=grant.ref,
        attempt=grant.attempt,
        groups=(),
        most={},
        ceilings={},
        suspend=hold,
    )


def _request(
    state: BridgeState, owner: str, pending: ServiceCluster | None, asked: GrowthAsked | None
) -> GrowthRequested | None:
    """The request of a service that serves by a cluster of a fixed size, unless the same request is open."""
    grant, job = state.grants[owner], state.jobs[owner]
    cluster = pending.ref if pending is not None else None
    if (asked.pending if asked is not None else None) == cluster:
        return None
    about = cluster or (asked.cluster if asked is not None else None)
    newest = state.newest_of(owner)
    if about is None or newest is None:
        return None
    return GrowthRequested(
        cause=newest.cause,
        ref=grant.ref,
        attempt=grant.attempt,
        cluster=about,
        granted=grant.groups,
        units=(UNIT,) if pending is not None else (),
        each={PENDING: job.whole} if pending is not None else {},
        pending=cluster,
        start=job.sizes if pending is not None else {},
    )
