"""What the preemptor keeps of Ray clusters that scale themselves: one function per event."""

from __future__ import annotations

from muster.core.preemption.state import PreemptorState
from muster.events.facts import ChildGone, ChildObserved
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Counts, Elastic, granted_before
from muster.model.keys import Position


def scales_itself(state: PreemptorState, uid: str, elastic: Elastic | None) -> None:
    """One that was charged with a fixed size is granted just that once it scales itself."""
    if uid in state.charged and uid not in state.granted and elastic is not None:
        state.granted[uid] = granted_before(state.fixed.pop(uid, {}), elastic)


def child_observed(state: PreemptorState, _at: Position, event: ChildObserved) -> None:
    """What a Ray cluster may give depends on the one that runs; a plan is tried again where that has changed."""
    workload = state.queues.workloads.get(event.child.owner_uid)
    before = state.scaling.of(workload) if workload is not None else None
    state.scaling.observed(event)
    scales_itself(state, event.child.owner_uid, event.child.elastic)
    after = state.scaling.of(workload) if workload is not None else None
    if _minimum(before) != _minimum(after):
        state.supply += 1


def head_heard(state: PreemptorState, _at: Position, event: RayDemandObserved) -> None:
    """Which workers of a Ray cluster have nothing to do: those go first."""
    counts: Counts = {}
    for each in event.demand.idle:
        counts[each.group] = counts.get(each.group, 0) + 1
    known = event.ref.uid in state.scaling.owner_of or event.ref.uid in state.queues.workloads
    if counts and known:
        state.idle[event.ref.uid] = counts
    else:
        state.idle.pop(event.ref.uid, None)


def _minimum(elastic: Elastic | None) -> Counts | None:
    """What the worker groups of a cluster never give; None where it gives nothing."""
    return {group.name: group.least for group in elastic.groups} if elastic is not None else None


def child_gone(state: PreemptorState, _at: Position, event: ChildGone) -> None:
    state.scaling.forget(event.ref.uid)
    state.idle.pop(event.ref.uid, None)
