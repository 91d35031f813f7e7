"""How the sorter's state changes: one function per event, and the upkeep of what is due."""

from __future__ import annotations

from muster.core.queueing.book import Denial, shape_key
from muster.core.queueing.standing import is_current, standing_of
from muster.core.queueing.state import Job, Refusal, Retry, SorterState, job_from
from muster.core.quota.charging import ask_of, charge_of, claim_of, demand_in
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import (
    CandidatesProposed,
    EvictionOrdered,
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectApplied
from muster.events.facts import (
    ObjectUnreadable,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    QueueUnitGone,
    QueueUnitObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.keys import Position
from muster.model.workload import Workload

BACKOFF_MS = 5_000
BACKOFF_MAX_MS = 300_000
"""After the API server refused to resume a workload: 5 s, doubled up to 5 min."""
NODES_BACKOFF_MAX_MS = 60_000
"""After a gang found no place on the nodes: no longer than this, since room may come at any time."""


def workload_observed(state: SorterState, at: Position, event: WorkloadObserved) -> None:
    uid = event.workload.ref.uid
    if state.seen.newer(uid, event.workload.rv):
        state.workloads[uid] = event.workload
        if uid in state.ledger.charges and not event.workload.suspended:
            state.resumed[uid] = None
        learn(state, event.workload, at)
        recheck(state, uid, at)


def learn(state: SorterState, workload: Workload, at: Position) -> None:
    """Its run begins or ends: learned from where the tree orders by that."""
    if state.decides and state.order() == "learned":
        charge = state.ledger.charges.get(workload.ref.uid)
        queue, request = (charge.queue, charge.request) if charge is not None else ("", {})
        state.learned.observed(workload, queue, request, at.at)


def workload_gone(state: SorterState, at: Position, event: WorkloadGone) -> None:
    if state.seen.end(event.ref.uid, at.at):
        forget(state, at, event.ref.uid)


def unreadable(state: SorterState, at: Position, event: ObjectUnreadable) -> None:
    if event.ref.uid in state.workloads and state.seen.newer(event.ref.uid, event.rv):
        forget(state, at, event.ref.uid)


def forget(state: SorterState, at: Position, uid: str) -> None:
    state.workloads.pop(uid, None)
    state.learned.gone(uid)
    state.attempts.pop(uid, None)
    state.refusals.pop(uid, None)
    state.failures.pop(uid, None)
    state.not_before.pop(uid, None)
    state.stale.pop(uid, None)
    state.unit_priorities.pop(uid, None)
    state.unit_wishes.pop(uid, None)
    recheck(state, uid, at)


def class_observed(state: SorterState, at: Position, event: PriorityClassObserved) -> None:
    if state.seen.newer(event.ref.uid, event.rv):
        state.priority_classes[event.ref.name] = event.value
        if event.is_default:
            state.default_classes[event.ref.name] = None
        else:
            state.default_classes.pop(event.ref.name, None)
        recheck_all(state, at)


def class_gone(state: SorterState, at: Position, event: PriorityClassGone) -> None:
    if state.seen.end(event.ref.uid, at.at):
        state.priority_classes.pop(event.ref.name, None)
        state.default_classes.pop(event.ref.name, None)
        recheck_all(state, at)


def queue_observed(state: SorterState, _at: Position, event: QueueObserved) -> None:
    if state.seen.newer(event.ref.uid, event.rv):
        before = state.queue_paths.get(event.ref.uid, event.path)
        state.queue_paths[event.ref.uid] = event.path
        state.queue_specs[event.ref.uid] = event
        for path in dict.fromkeys((before, event.path)):
            _queue_says(state, path)


def queue_gone(state: SorterState, at: Position, event: QueueGone) -> None:
    if state.seen.end(event.ref.uid, at.at):
        path = state.queue_paths.pop(event.ref.uid, "")
        state.queue_specs.pop(event.ref.uid, None)
        _queue_says(state, path)


def _queue_says(state: SorterState, path: str) -> None:
    """What the Queue object of a quota path says of its queue; of several the first by name counts."""
    objects = [event for event in state.queue_specs.values() if event.path == path]
    if not objects:
        for told in (state.queue_priorities, state.policies, state.backoffs, state.paused, state.pauses):
            told.pop(path, None)
        return
    event = min(objects, key=lambda each: (each.ref.name, each.ref.uid))
    state.queue_priorities[path] = event.priority
    state.policies[path] = event.policy
    if event.backoff_ms:
        state.backoffs[path] = (event.backoff_ms[0], event.backoff_ms[-1])
    else:
        state.backoffs.pop(path, None)
    state.paused[path] = event.paused
    state.pauses[path] = (event.paused_by, event.paused_reason)


def unit_observed(state: SorterState, at: Position, event: QueueUnitObserved) -> None:
    """A priority written into a QueueUnit by somebody else moves its job; ours only says what already holds."""
    uid, job = event.owner_uid, state.jobs.get(event.owner_uid)
    workload = state.workloads.get(uid)
    if not uid or not state.seen.newer(event.ref.uid, event.rv):
        return
    state.unit_owners[event.ref.uid] = uid
    known, before = uid in state.unit_priorities, state.unit_priorities.get(uid)
    state.unit_priorities[uid] = event.priority
    if event.priority is None or (known and event.priority == before):
        return
    if job is not None and event.priority == job.priority:
        return
    if workload is not None and event.priority == state.own_priority_of(workload):
        state.unit_wishes.pop(uid, None)
    else:
        state.unit_wishes[uid] = event.priority
    recheck(state, uid, at)


def unit_gone(state: SorterState, at: Position, event: QueueUnitGone) -> None:
    """Its job keeps the priority that was asked for; what was seen of the unit is forgotten."""
    if state.seen.end(event.ref.uid, at.at):
        owner = state.unit_owners.pop(event.ref.uid, "")
        if owner not in state.workloads:
            state.unit_priorities.pop(owner, None)
            state.unit_wishes.pop(owner, None)


def tree_accepted(state: SorterState, at: Position, event: QuotaTreeAccepted) -> None:
    state.ledger.install(event.tree)
    for uid in state.resumed:
        if uid in state.jobs and uid in state.ledger.charges:
            _stands_at(state.jobs[uid], state.ledger.charges[uid].queue)
    state.book.rejudge(state.ledger)
    recheck_all(state, at)


def tree_removed(state: SorterState, at: Position, event: QuotaTreeRemoved) -> None:
    state.ledger.remove(event.ref.uid)
    state.book.rejudge(state.ledger)
    recheck_all(state, at)


def reserved(state: SorterState, at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    job = state.jobs.get(uid)
    if job is not None:
        withdraw(state, job)
        job.status = "charged"
    charge = charge_of(event)
    state.ledger.charge(uid, charge)
    state.book.moved(event.queue, charge.demand, state.ledger, Cause(at.seq, at.item))
    state.book.resized(state.ledger, Cause(at.seq, at.item))
    recheck(state, uid, at)


def moved(state: SorterState, at: Position, event: QuotaMoved) -> None:
    """A charge follows its workload to another leaf."""
    job, cause = state.jobs.get(event.ref.uid), Cause(at.seq, at.item)
    before = state.ledger.move(event.ref.uid, event.queue, event.named)
    if before is not None:
        for queue in (before.queue, event.queue):
            state.book.moved(queue, before.demand, state.ledger, cause)
    state.book.resized(state.ledger, cause)
    if job is not None and job.status == "charged" and job.attempt == event.attempt:
        _stands_at(job, event.queue)
    recheck(state, event.ref.uid, at)


def _stands_at(job: Job, queue: str) -> None:
    """What is charged is told of at the leaf it is charged at."""
    job.queue, job.shape = queue, shape_key(queue, job.demand)


def denied(state: SorterState, at: Position, event: QuotaDenied) -> None:
    job = state.jobs.get(event.ref.uid)
    if job is None or job.status != "proposed" or job.attempt != event.attempt:
        return
    withdraw(state, job)
    job.status = "waiting"
    job.cause = Cause(at.seq, at.item)
    state.book.add(job.shape, job.queue, job.demand, job.place, state.ledger)
    if event.reason != "stale":
        denial = Denial(
            job.cause,
            event.path,
            event.resource,
            event.asked,
            event.used,
            event.limit,
            event.of_min,
            event.held,
            event.of_runtime,
        )
        state.book.deny(job.shape, denial, state.ledger)
        backoff = state.backoffs.get(job.queue)
        if backoff is not None:
            tries = event.tries or 1
            state.retries[job.shape] = Retry(tries, at.at + min(backoff[0] * 2 ** min(tries - 1, 16), backoff[1]))


def released(state: SorterState, at: Position, event: QuotaReleased) -> None:
    uid = event.ref.uid
    charge = state.ledger.release(uid, event.attempt, at.at)
    if charge is not None:
        state.book.moved(charge.queue, charge.demand, state.ledger, Cause(at.seq, at.item))
    state.book.resized(state.ledger, Cause(at.seq, at.item))
    job = state.jobs.get(uid)
    if job is not None and job.status == "charged":
        if event.attempt < job.attempt:
            job.status = "waiting"
            state.book.add(job.shape, job.queue, job.demand, job.place, state.ledger)
        else:
            del state.jobs[uid]
            if event.reason == "superseded" and is_current(state, job):
                state.stale[uid] = job.generation
    state.resumed.pop(uid, None)
    if event.reason in ("resume_failed", "no_nodes") and uid in state.workloads:
        failures = state.failures[uid] = state.failures.get(uid, 0) + 1
        most = BACKOFF_MAX_MS if event.reason == "resume_failed" else NODES_BACKOFF_MAX_MS
        state.not_before[uid] = at.at + min(BACKOFF_MS * 2 ** min(failures - 1, 10), most)
    elif event.reason == "timed_out" and uid in state.workloads and state.ledger.tree_of(event.queue) is not None:
        state.not_before[uid] = at.at + state.ledger.rules_of(event.queue).backoff_ms
    recheck(state, uid, at)


def charge_changed(state: SorterState, at: Position, event: ChargeChanged) -> None:
    moved = state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
    if moved is not None:
        state.book.moved(*moved, state.ledger, Cause(at.seq, at.item))
        state.book.resized(state.ledger, Cause(at.seq, at.item))


def claim_opened(state: SorterState, at: Position, event: EvictionOrdered | ClaimOpened) -> None:
    state.ledger.claims.open(claim_of(event, at.at))


def claim_ended(state: SorterState, _at: Position, event: ClaimEnded) -> None:
    state.ledger.claims.end(event.ref.uid)


def effect_applied(state: SorterState, at: Position, event: EffectApplied) -> None:
    if event.action != "resume":
        return
    state.failures.pop(event.ref.uid, None)
    state.not_before.pop(event.ref.uid, None)
    if event.ref.uid in state.ledger.charges:
        state.resumed[event.ref.uid] = None
    recheck(state, event.ref.uid, at)


def queued(state: SorterState, at: Position, event: WorkloadQueued) -> None:
    uid = event.ref.uid
    old = state.jobs.get(uid)
    state.attempts[uid] = event.attempt
    state.refusals.pop(uid, None)
    state.not_before.pop(uid, None)
    state.stale.pop(uid, None)
    if old is not None:
        withdraw(state, old)
    state.ledger.queued(uid, ask_of(event))
    state.book.resized(state.ledger, Cause(at.seq, at.item))
    job = state.jobs[uid] = job_from(event, Cause(at.seq, at.item))
    if uid in state.ledger.charges:
        job.status = "charged"
    else:
        state.book.add(job.shape, job.queue, job.demand, job.place, state.ledger)
    recheck(state, uid)


def dequeued(state: SorterState, at: Position, event: WorkloadDequeued) -> None:
    state.ledger.dequeued(event.ref.uid, event.attempt)
    state.book.resized(state.ledger, Cause(at.seq, at.item))
    job = state.jobs.get(event.ref.uid)
    if job is not None and job.attempt == event.attempt and job.status != "charged":
        withdraw(state, job)
        del state.jobs[event.ref.uid]
    if event.ref.uid not in state.workloads:
        state.attempts.pop(event.ref.uid, None)
    recheck(state, event.ref.uid)


def refused(state: SorterState, _at: Position, event: WorkloadRefused) -> None:
    state.refusals[event.ref.uid] = Refusal(event.reason, event.message)
    recheck(state, event.ref.uid)


def proposed(state: SorterState, _at: Position, event: CandidatesProposed) -> None:
    for candidate in event.candidates:
        if state.retries:
            state.retries.pop(shape_key(candidate.queue, demand_in(candidate)), None)
        job = state.jobs.get(candidate.ref.uid)
        if job is not None and job.attempt == candidate.attempt and job.status == "waiting":
            state.book.opened(job.shape)
            state.book.take(job.shape, job.place)
            if state.decides:
                state.proposed.add(job.queue, job.demand)
            job.status = "proposed"


def withdraw(state: SorterState, job: Job) -> None:
    """Take a job out of the waiting order, or out of the open proposals."""
    if job.status == "waiting":
        state.book.take(job.shape, job.place)
    elif job.status == "proposed":
        state.book.closed(job.shape)
        if state.decides:
            state.proposed.add(job.queue, job.demand, -1)


def recheck(state: SorterState, uid: str, at: Position | None = None) -> None:
    """Bring ``due`` in line with the state; ``at`` is the event that asks for it, if it may be a cause."""
    if not state.decides:
        return
    known = uid in state.workloads or uid in state.jobs or uid in state.ledger.charges
    if not known:
        state.causes.pop(uid, None)
    elif at is not None or uid not in state.causes:
        state.causes[uid] = Cause(at.seq, at.item) if at is not None else Cause(state.seq, 0)
    if known and standing_of(state, uid) is not None:
        state.due[uid] = None
    else:
        state.due.pop(uid, None)


def recheck_all(state: SorterState, at: Position) -> None:
    for uid in state.workloads:
        recheck(state, uid, at)
