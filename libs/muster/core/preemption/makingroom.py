"""Jobs with room in their quota and no place on the nodes: other jobs are moved or evicted for such a job.

One search follows every ``gang_deferred``: in KAI queues first for moves, then between queues, then in the queue of the
job. The preemptor proposes the victims. The gang admitter keeps the places. If quota has become short meanwhile, the
proposal brings the job back to its queue. Only queued jobs can hold a claim. Without victims that leave room, the job
rests until the candidates or the nodes change.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import structs

from muster.core.preemption import plans
from muster.core.preemption.claimants import left_of
from muster.core.preemption.plans import outranked, owed, site_now, weigh, with_moves
from muster.core.preemption.preemptorstate import HOUR_MS, PreemptorState, RetryGate, UnplacedClaimant
from muster.core.queueing.queues import Job
from muster.core.quota.candidates import basis
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.quotaledger import UNBOUNDED, leaf_of, waits
from muster.core.victimsearch import search
from muster.core.victimsearch.prices import Found
from muster.events.base import Cause
from muster.events.claims import ClaimOpened
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    PreemptionProposed,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    ReclaimDeferred,
    WorkloadDequeued,
)
from muster.events.facts import ObjectUnreadable, WorkloadGone, WorkloadObserved
from muster.events.reasons import OrderKind
from muster.model.keys import Position, root_of

ROOM_MS = 600_000
"""The time after the departure of the last victim in which no further job is suspended for the same claimant."""


def deferred(state: PreemptorState, at: Position, event: GangDeferred) -> None:
    """A job has found no place. No victim leaves for the job while room is kept for an earlier gang.

    A job back in its queue by its own proposal keeps its search: otherwise two jobs that take each other's quota would
    propose without end.
    """
    job = state.queues.jobs.get(event.ref.uid)
    before = _drop(state, event.ref.uid)
    if job is None or event.shortage.kept_for:
        return
    unplaced = state.unplaced[event.ref.uid] = UnplacedClaimant(structs.replace(job), at.at, Cause(at.seq, at.item))
    insort(state.unplaced_in.setdefault(root_of(job.queue), {}).setdefault(job.queue, []), _entry(unplaced))
    weigh(state, job.queue)
    if before is not None and (before.job.queue, before.job.demand) == (job.queue, job.demand):
        unplaced.since, unplaced.again_at = before.since, before.again_at
        if before.asked or (at.at < before.gate.rest and not before.ordered):
            unplaced.asked, unplaced.tried, unplaced.gate = before.asked, before.tried, before.gate
    _noted(state, unplaced)


def _entry(unplaced: UnplacedClaimant) -> tuple[int, str]:
    return -unplaced.job.priority, unplaced.job.ref.uid


def _noted(state: PreemptorState, unplaced: UnplacedClaimant) -> None:
    """Note from when victims may leave for a job, and until when the job rests."""
    unplaced.may_at = max(state.claims_from(unplaced.job), unplaced.since + state.grace_ms(unplaced.job))
    state.unplaced_from.put(unplaced.job.ref.uid, unplaced.may_at)
    _rests(state, unplaced, unplaced.gate)


def _rests(state: PreemptorState, unplaced: UnplacedClaimant, gate: RetryGate) -> None:
    unplaced.gate = gate
    state.rests.put(unplaced.job.ref.uid, gate.rest)


def _drop(state: PreemptorState, uid: str) -> UnplacedClaimant | None:
    dropped = state.unplaced.pop(uid, None)
    if dropped is not None:
        root, queue = root_of(dropped.job.queue), dropped.job.queue
        here = state.unplaced_in[root]
        here[queue].remove(_entry(dropped))
        if not here[queue]:
            del here[queue]
        if not here:
            del state.unplaced_in[root]
        state.unplaced_from.put(uid, 0)
        state.rests.put(uid, 0)
        weigh(state, queue)
    return dropped


def over(state: PreemptorState, _at: Position, event: GangAdmitted | WorkloadDequeued | WorkloadGone) -> None:
    _drop(state, event.ref.uid)


def observed(state: PreemptorState, _at: Position, event: WorkloadObserved | ObjectUnreadable) -> None:
    """New labels may change the delays of the job."""
    ref = event.workload.ref if isinstance(event, WorkloadObserved) else event.ref
    unplaced = state.unplaced.get(ref.uid)
    if unplaced is not None:
        _noted(state, unplaced)


def rules_changed(state: PreemptorState, _at: Position, _event: QuotaTreeAccepted | QuotaTreeRemoved) -> None:
    """The rules may say something else of how long jobs wait."""
    for unplaced in state.unplaced.values():
        _noted(state, unplaced)


def proposed(state: PreemptorState, event: PreemptionProposed) -> None:
    unplaced = state.unplaced.get(event.ref.uid)
    if unplaced is not None and event.kind in _KINDS:
        unplaced.tried = {**_tried(state, unplaced), event.kind: None}
        unplaced.asked = True


def searched(state: PreemptorState, uid: str, gate: RetryGate) -> None:
    """No rule has victims for the job; the rules are tried again when this gate opens."""
    unplaced = state.unplaced.get(uid)
    if unplaced is not None:
        unplaced.tried = dict.fromkeys(_KINDS)
        _rests(state, unplaced, gate)


def stale(state: PreemptorState, uid: str, gate: RetryGate) -> None:
    """The proposed jobs are not suspended, because the state has changed since the proposal. The job asks again at
    once, but only once until the gate opens: two jobs could take each other's quota meanwhile.
    """
    unplaced = state.unplaced.get(uid)
    if unplaced is None or not unplaced.asked:
        return
    unplaced.asked = False
    if unplaced.again_at <= state.now:
        unplaced.again_at = gate.rest
        gate = structs.replace(gate, rest=0)
    _rests(state, unplaced, gate)


def ordered(state: PreemptorState, event: EvictionOrdered | ClaimOpened, now: int) -> None:
    """Victims are suspended for the job. If quota is short too, the job waits in its queue for the quota."""
    if isinstance(event, ClaimOpened) or not event.for_nodes:
        _drop(state, event.ref.uid)
        return
    unplaced, victims = state.unplaced.get(event.ref.uid), [victim.ref.uid for victim in event.victims]
    if unplaced is not None:
        unplaced.asked, unplaced.ordered = False, True
        unplaced.awaits = tuple(uid for uid in victims if uid in state.queues.ledger.charges)
        searched(state, event.ref.uid, state.shut(now + ROOM_MS))


def left(state: PreemptorState, uid: str, at: int) -> None:
    """A victim has left; ``at``: log time (ms)."""
    for unplaced in state.unplaced.values():
        if uid in unplaced.awaits:
            unplaced.awaits = tuple(victim for victim in unplaced.awaits if victim != uid)
            _rests(state, unplaced, state.shut(at + ROOM_MS))


def awaited_in_vain(state: PreemptorState, uid: str) -> None:
    """A victim stays: another may be suspended at once for the same job."""
    for unplaced in state.unplaced.values():
        if uid in unplaced.awaits:
            unplaced.awaits, unplaced.tried = (), {}


def _tried(state: PreemptorState, unplaced: UnplacedClaimant) -> dict[str, None]:
    """The rules without victims for the job lately; none once the gate has opened."""
    return {} if state.opens(unplaced.gate) else unplaced.tried


def proposal_due(state: PreemptorState) -> PreemptionProposed | ReclaimDeferred | None:
    """The decision for the first due job with candidates: a proposal, or a deferral without victims; None without such
    a job.
    """
    if not state.unplaced:
        return None
    priorities = state.queues.queue_priorities
    waiting = [unplaced for unplaced in _in_question(state) if _is_due(state, unplaced)]
    waiting.sort(key=lambda unplaced: (-priorities.get(unplaced.job.queue, 0), unplaced.job.place))
    seen: set[str] = set()
    for unplaced in waiting:
        alike = repr((unplaced.job.queue, unplaced.job.priority, unplaced.job.demand, list(_tried(state, unplaced))))
        if alike in seen:
            continue
        seen.add(alike)
        decision = _proposal(state, unplaced)
        if decision is not None:
            return decision
    return None


def _in_question(state: PreemptorState) -> Iterator[UnplacedClaimant]:
    """The jobs for which a rule may find victims; a glance rules out all others."""
    ledger, unplaced = state.queues.ledger, state.unplaced
    leaving = ledger.leaving.extra
    inner = {**ledger.inner_below, **{path: None for path in leaving if path in ledger.pooled}}
    for root, here in state.unplaced_in.items():
        glance = not ledger.by_shares(root)
        if not glance:
            whole = dict.fromkeys(here)
        elif inner:
            paths = {**inner, **ledger.below, **leaving}
            whole = {queue: None for queue in here if any(path in paths for path in (queue, *chain_of(queue)[:-1]))}
        else:
            few: Iterable[str] = here if len(here) < len(ledger.below) else ledger.below
            whole = {queue: None for queue in few if queue in here and queue in ledger.below}
            whole |= {path: None for path in leaving if path in here}
        for queue in whole:
            left = left_of(ledger, queue, chain_of(queue), leaving) if glance else lambda _: UNBOUNDED
            some = ledger.guaranteed.get(root, {})
            lowest = state.runs[queue][0].priority if queue in state.runs else UNBOUNDED
            for _, uid in here[queue]:
                job = state.queues.jobs.get(uid, unplaced[uid].job)
                guaranteed = not glance or any(job.demand.request.get(name) for name in some)
                if job.priority > lowest or (guaranteed and left is not None and _is_within(left, job)):
                    yield unplaced[uid]
        for queue in state.outranked:
            for negated, uid in here[queue] if queue in here and queue not in whole else ():
                if state.runs[queue][0].priority < -negated:
                    yield unplaced[uid]


def _is_within(left: Callable[[str], int], job: Job) -> bool:
    return all(amount <= left(name) for name, amount in counted(job.demand).items())


def _is_due(state: PreemptorState, unplaced: UnplacedClaimant) -> bool:
    """Whether the job still waits unchanged, and no victim is leaving for the job."""
    job, ledger = unplaced.job, state.queues.ledger
    uid = job.ref.uid
    workload = state.queues.workloads.get(uid)
    return (
        workload is not None
        and waits(workload)
        and uid not in ledger.charges
        and not unplaced.awaits
        and len(_tried(state, unplaced)) < len(_KINDS)
        and not _about_to_be_tried(state, unplaced)
        and leaf_of(ledger, workload) == job.queue
        and state.queues.demand_of(workload) == job.demand
        and state.in_turn(state.queues.jobs.get(uid, job))
        and state.now >= unplaced.may_at
    )


def _about_to_be_tried(state: PreemptorState, unplaced: UnplacedClaimant) -> bool:
    """Whether the job is in its queue and its quota has room."""
    uid, ledger = unplaced.job.ref.uid, state.queues.ledger
    queued = uid in state.queues.jobs
    return queued and ledger.shortfall(unplaced.job.queue, unplaced.job.demand, now=state.now, uid=uid) is None


def deadlines(state: PreemptorState) -> Iterator[int]:
    """Log times (ms) at which victims may leave for a job without a further event."""
    now, unplaced = state.now, state.unplaced
    yield from (at for at, _ in islice(state.unplaced_from.after(now), 1))
    over = (at for at, uid in state.rests.after(now) if state.has_changed(unplaced[uid].gate))
    yield from islice(over, 1)
    if state.moves or state.stays or state.queues.ledger.protects:
        for here in state.unplaced_in.values():
            for queue in here:
                yield from _later(state, queue)


def _later(state: PreemptorState, queue: str) -> Iterator[int]:
    """Log times (ms) from which further candidates may leave for a queue."""
    if state.moves:
        yield from (at + HOUR_MS for at in state.moved.values() if at + HOUR_MS > state.now)
    if (state.stays or state.queues.ledger.protects) and (at := state.evictable_from(queue, own=True)):
        yield at


def _proposal(state: PreemptorState, unplaced: UnplacedClaimant) -> PreemptionProposed | ReclaimDeferred | None:
    job, tried = state.queues.jobs.get(unplaced.job.ref.uid, unplaced.job), _tried(state, unplaced)
    looked = False
    for kind in _KINDS:
        plan = _KINDS[kind](state, job) if kind not in tried else search.NO_VICTIMS
        looked = looked or plan.looked
        if plan.uids:
            return plans.clear(state, unplaced, job, kind, plan)
    if not looked:
        return None
    again = [unplaced.again_at] if unplaced.again_at > state.now else []  # A plan was stale.
    return ReclaimDeferred(
        cause=unplaced.cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        path=job.queue,
        resource="",
        reason="nodes_stay",
        until=min([*_later(state, job.queue), *again], default=0),
        supply=state.supply,
        nodes=state.places.ledger.changes,
    )


def _elsewhere(state: PreemptorState, job: Job) -> Found:
    """The jobs of KAI queues to move for the job, least lost work first. No job is evicted where moves are enough."""
    ledger, site = state.queues.ledger, site_now(state, job) if state.moves else None
    if site is None or not state.reclaims(job.queue):
        return search.NO_VICTIMS
    if ledger.shortfall(job.queue, job.demand, uid=job.ref.uid) is not None:
        return search.NO_VICTIMS
    runs = {leaf: running for leaf, running in state.runs.items() if ledger.by_shares(leaf)}
    candidates = with_moves(state, job, state.candidates(job.queue).only(runs))
    return search.elsewhere(basis(ledger, job.ref.uid), job.queue, job.demand, candidates, site)


def _above_share(state: PreemptorState, job: Job) -> Found:
    if not state.reclaims(job.queue) or not any(leaf != job.queue for leaf in state.runs):
        return search.NO_VICTIMS
    ledger = state.queues.ledger
    if not ledger.by_shares(job.queue) and not basis(ledger, job.ref.uid).owed_at(job.queue, job.demand):
        return search.NO_VICTIMS  # Said before the nodes are looked at.
    return owed(state, job, site_now(state, job))


def _lower(state: PreemptorState, job: Job) -> Found:
    runs = state.runs.get(job.queue)
    if not runs or runs[0].priority >= job.priority:
        return search.NO_VICTIMS
    return outranked(state, job, site_now(state, job), others=False)


_KINDS: Mapping[OrderKind, Callable[[PreemptorState, Job], Found]] = {
    "move": _elsewhere,
    "guarantee": _above_share,
    "priority": _lower,
}
