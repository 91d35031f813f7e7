"""Ray clusters with refused growth, as claimants. A refused piece of growth asks like a waiting job.

The preemptor plans for one piece of a cluster at a time, as many times as the piece is owed. A piece without victims is
passed over, and the next piece is planned for. After the last piece the cluster rests like a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from muster.core.preemption.preemptorstate import PreemptorState, RefusedGrowth
from muster.core.queueing.book import Denial, Shape
from muster.core.queueing.queues import Job
from muster.core.quota.rayclaims import asked_times, demand_of_growth
from muster.core.stage import put
from muster.events.base import Cause
from muster.events.decisions import QuotaReleased, ReclaimDeferred
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthOption, GrowthRequested, GrowthWithdrawn
from muster.events.facts import ChildGone, ChildObserved
from muster.events.raydemand import RayDemandObserved
from muster.model.demand import Shortfall
from muster.model.elastic import Counts, Elastic, granted_before
from muster.model.keys import Position

# --- what is kept of Ray clusters -------------------------------------------------------------------------------------


def scales_itself(state: PreemptorState, uid: str, elastic: Elastic | None) -> None:
    """A cluster charged with a fixed size is granted the same size once the cluster scales."""
    holding = state.charged.get(uid)
    if holding is not None and holding.groups is None and elastic is not None:
        holding.groups, holding.fixed = granted_before(holding.fixed, elastic), {}


def child_observed(state: PreemptorState, _at: Position, event: ChildObserved) -> None:
    """A new RayCluster may change the smallest worker groups of a workload; plans are then tried again."""
    workload = state.queues.workloads.get(event.child.owner_uid)
    before = state.scaling.of(workload) if workload is not None else None
    state.scaling.observed(event)
    scales_itself(state, event.child.owner_uid, event.child.elastic)
    after = state.scaling.of(workload) if workload is not None else None
    if _minimum(before) != _minimum(after):
        state.supply += 1


def head_heard(state: PreemptorState, _at: Position, event: RayDemandObserved) -> None:
    """The idle workers of a Ray cluster, by worker group: idle workers go first."""
    counts: Counts = {}
    for worker in event.demand.idle:
        counts[worker.group] = counts.get(worker.group, 0) + 1
    known = event.ref.uid in state.scaling.owner_of or event.ref.uid in state.queues.workloads
    put(state.idle, event.ref.uid, counts if counts and known else None)


def _minimum(elastic: Elastic | None) -> Counts | None:
    """{worker group: replicas never taken}; None where the cluster releases no workers."""
    return {group.name: group.least for group in elastic.groups} if elastic is not None else None


def child_gone(state: PreemptorState, _at: Position, event: ChildGone) -> None:
    state.scaling.forget(event.ref.uid)
    state.idle.pop(event.ref.uid, None)


# --- growing ----------------------------------------------------------------------------------------------------------


Claimant = tuple[Shape, Job]
Entitled = Callable[[Shape, Job], bool]
"""Whether something may be proposed for a claimant."""


def requested(state: PreemptorState, at: Position, event: GrowthRequested) -> None:
    """Keep the request of the cluster; a new request replaces the older request."""
    before = state.growing.pop(event.ref.uid, None)
    if event.units:
        state.growing[event.ref.uid] = RefusedGrowth(event, before.since if before is not None else at.at)


def denied(state: PreemptorState, at: Position, event: GrowthDenied) -> None:
    growth = state.growing.get(event.ref.uid)
    if growth is not None and growth.asked.attempt == event.attempt:
        growth.refusals = tuple(
            (refusal.groups, refusal.short) for refusal in event.refusals if not refusal.short.hopeless
        )
        growth.cause, growth.passed = Cause(at.seq, at.item), ()
        if event.ref.uid not in state.queues.ledger.claims.by_uid:
            state.gates.pop(event.ref.uid, None)


def over(state: PreemptorState, _at: Position, event: GrowthGranted | GrowthWithdrawn | QuotaReleased) -> None:
    """The request is void: the cluster asks again for the missing replicas."""
    state.growing.pop(event.ref.uid, None)


def passed_over(state: PreemptorState, event: ReclaimDeferred) -> bool:
    """Nothing can be taken back for a piece; whether another is planned for."""
    growth = state.growing.get(event.ref.uid)
    if growth is None or event.growth is None:
        return False
    growth.passed = (*growth.passed, event.growth.groups)
    if all(groups in growth.passed for groups, _ in growth.refusals):
        growth.passed = ()
        return False
    return True


def job_of(state: PreemptorState, uid: str) -> Job | None:
    """A cluster with refused growth, as a job of its queue; None where the cluster may claim nothing."""
    growth, charge = state.growing.get(uid), state.queues.ledger.charges.get(uid)
    workload, claim = state.queues.workloads.get(uid), state.queues.ledger.claims.by_uid.get(uid)
    holding, awaits = state.charged.get(uid), claim is not None and claim.awaits
    if growth is None or charge is None or workload is None or uid in state.leaving or growth.cause is None:
        return None
    if charge.over or awaits or holding is None or holding.left is not None or holding.attempt != growth.asked.attempt:
        return None
    job = state.queues.jobs.get(uid)
    priority = job.priority if job is not None else state.queues.priority_of(workload)
    return Job(
        growth.asked.ref,
        growth.asked.attempt,
        "waiting",
        charge.queue,
        key_of(uid),
        charge.demand,
        priority,
        queued_at=growth.since,
        rank=growth.since,
        generation=0,
        cause=growth.cause,
    )


def key_of(uid: str) -> str:
    """The key of a cluster's growth among the keys of shapes."""
    return f"growth {uid}"


def refused(state: PreemptorState, may_claim: Callable[[str], bool]) -> dict[str, list[str]]:
    """{queue: uids of clusters with refused growth}, of the queues that may claim."""
    by_queue: dict[str, list[str]] = {}
    for uid in state.growing:
        charge = state.queues.ledger.charges.get(uid)
        if charge is not None and (charge.queue in by_queue or may_claim(charge.queue)):
            by_queue.setdefault(charge.queue, []).append(uid)
    return by_queue


def claimants(state: PreemptorState, uids: Iterable[str], entitled: Entitled) -> Iterator[Claimant]:
    """For every cluster its first entitled piece, as many times as the piece is entitled."""
    for uid in uids:
        growth, job = state.growing[uid], None if state.is_gated(uid) else job_of(state, uid)
        if job is None:
            continue
        pieces = ((groups, short) for groups, short in growth.refusals if groups not in growth.passed)
        tried = (_largest(state, growth, job, groups, short, entitled) for groups, short in pieces)
        pair = next((pair for pair in tried if pair is not None), None)
        if pair is not None:
            yield pair


def _largest(
    state: PreemptorState, refused: RefusedGrowth, job: Job, groups: Counts, short: Shortfall, entitled: Entitled
) -> Claimant | None:
    """A piece, as many times as asked for and entitled; None where the piece is not entitled once."""
    low, high = 0, asked_times(refused.asked, groups)
    best: Claimant | None = None
    while low < high:
        middle = (low + high + 1) // 2 if best is not None else 1
        pair = _claimant(state, refused, job, GrowthOption(groups, middle), short)
        if entitled(*pair):
            low, best = middle, pair
        elif best is None:
            return None
        else:
            high = middle - 1
    return best


def _claimant(
    state: PreemptorState, refused: RefusedGrowth, job: Job, growth: GrowthOption, short: Shortfall
) -> Claimant:
    ledger = state.queues.ledger
    demand = demand_of_growth(refused.asked, growth, ledger.tree_of(job.queue), ledger.charges[job.ref.uid])
    asks = structs.replace(job, demand=demand, growth=growth)
    return Shape(job.queue, demand, [job.place], denial=Denial(job.cause, short)), asks


def deadlines(state: PreemptorState) -> Iterator[int]:
    """Log times (ms) from which a cluster may claim owed quota without a further event."""
    for uid in state.growing:
        waits = state.delay_ms(uid) or key_of(uid) in state.owed_since
        job = job_of(state, uid) if waits else None
        if job is not None:
            yield state.claims_from(job)
            yield state.grace_over_at(job) or 0
