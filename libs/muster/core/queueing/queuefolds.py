"""How events change the queues: a function per event type, the same for every stage that keeps a book of the queues.

Each function returns the uids of workloads with a possible change of standing. The events are decisions, and facts
about jobs, PriorityClasses, Queues and QueueUnits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, assert_never

from msgspec.structs import replace

from muster.core.observed.seen import Seen
from muster.core.queueing.book import Denial, shape_key
from muster.core.queueing.queues import Job, Queues, Retry, WaitsForNodes, back_to, is_current, job_from, withdraw
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.books import ask_of, charge_of, claimant_of
from muster.core.quota.ledger.quotaledger import waits
from muster.core.quota.trees.rules import union
from muster.core.stage import Arm, folds_in, leave_out, mark, put
from muster.events.base import Cause, Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened, VictimStays
from muster.events.decisions import (
    CandidatesProposed,
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    PlacesFound,
    PreemptionProposed,
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
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GrowthGranted, GrowthWithdrawn, WorkersKept
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
from muster.events.reasons import after_release
from muster.events.shares import SharesChanged
from muster.events.system import PlacementChosen
from muster.model.keys import Position
from muster.model.quota import flavors_text

# --- objects ----------------------------------------------------------------------------------------------------------


def class_observed(queues: Queues, at: Position, event: PriorityClassObserved) -> Iterable[str]:
    queues.priority_classes[event.ref.name] = event.value
    mark(queues.default_classes, event.ref.name, event.is_default)
    return queues.workloads


def class_gone(queues: Queues, at: Position, event: PriorityClassGone) -> Iterable[str]:
    queues.priority_classes.pop(event.ref.name, None)
    queues.default_classes.pop(event.ref.name, None)
    return queues.workloads


def queue_observed(queues: Queues, _at: Position, event: QueueObserved) -> Iterable[str]:
    before = queues.queue_paths.get(event.ref.uid, event.path)
    queues.queue_paths[event.ref.uid] = event.path
    queues.queue_specs[event.ref.uid] = event
    for path in dict.fromkeys((before, event.path)):
        _queue_says(queues, path)
    return ()


def queue_gone(queues: Queues, at: Position, event: QueueGone) -> Iterable[str]:
    path = queues.queue_paths.pop(event.ref.uid, "")
    queues.queue_specs.pop(event.ref.uid, None)
    _queue_says(queues, path)
    return ()


def _queue_says(queues: Queues, path: str) -> None:
    """Apply the Queue objects of a quota path: the fields of the first by name, and the pauses of all."""
    queues.book.stirred[path] = None
    objects = [event for event in queues.queue_specs.values() if event.path == path]
    if not objects:
        leave_out(path, queues.queue_priorities, queues.policies, queues.backoffs, queues.paused, queues.pauses)
        return
    event = min(objects, key=lambda queue: (queue.ref.name, queue.ref.uid))
    queues.queue_priorities[path] = event.priority
    queues.policies[path] = event.policy
    put(queues.backoffs, path, (event.backoff_ms[0], event.backoff_ms[-1]) if event.backoff_ms else None)
    pausing = min(
        (queue for queue in objects if queue.paused), key=lambda queue: (queue.ref.name, queue.ref.uid), default=event
    )
    queues.paused[path] = union(*(queue.paused for queue in objects))
    queues.pauses[path] = (pausing.paused_by, pausing.paused_reason)


def unit_observed(queues: Queues, at: Position, event: QueueUnitObserved) -> Iterable[str]:
    """A priority written into a QueueUnit by another client moves the job; Muster's own writes repeat the known
    priority.
    """
    uid, job = event.owner_uid, queues.jobs.get(event.owner_uid)
    workload = queues.workloads.get(uid)
    if not uid:
        return ()
    queues.unit_owners[event.ref.uid] = uid
    known, before = uid in queues.unit_priorities, queues.unit_priorities.get(uid)
    queues.unit_priorities[uid] = event.priority
    if event.priority is None or (known and event.priority == before):
        return ()
    if job is not None and event.priority == job.priority:
        return ()
    if workload is not None and event.priority == queues.own_priority_of(workload):
        queues.unit_wishes.pop(uid, None)
    else:
        queues.unit_wishes[uid] = event.priority
    return (uid,)


def unit_gone(queues: Queues, at: Position, event: QueueUnitGone) -> Iterable[str]:
    """The job keeps the priority asked for; the last seen priority of the unit is forgotten."""
    owner = queues.unit_owners.pop(event.ref.uid, "")
    if owner not in queues.workloads:
        queues.unit_priorities.pop(owner, None)
        queues.unit_wishes.pop(owner, None)
    return ()


# --- folds ------------------------------------------------------------------------------------------------------------


BACKOFF_MS = 5_000
BACKOFF_MAX_MS = 300_000
"""After the API server refused to resume a workload: 5 s, doubled up to 5 min."""


def workload_observed(queues: Queues, at: Position, event: WorkloadObserved) -> Iterable[str]:
    uid = event.workload.ref.uid
    queues.workloads[uid] = event.workload
    if not waits(event.workload):
        queues.ledger.unpark(uid)
    if uid in queues.ledger.charges and not event.workload.suspended:
        queues.resumed[uid] = None
    return (uid,)


def workload_gone(queues: Queues, at: Position, event: WorkloadGone) -> Iterable[str]:
    return forget(queues, event.ref.uid)


def unreadable(queues: Queues, at: Position, event: ObjectUnreadable) -> Iterable[str]:
    return forget(queues, event.ref.uid) if event.ref.uid in queues.workloads else ()


def forget(queues: Queues, uid: str) -> Iterable[str]:
    """The request of the workload is unknown from now on."""
    leave_out(uid, queues.workloads, queues.refusals, queues.failures, queues.not_before)
    leave_out(uid, queues.unplaced, queues.passed, queues.flavor_waits)
    queues.ledger.unpark(uid)
    leave_out(uid, queues.stale, queues.unit_priorities, queues.unit_wishes)
    return (uid,)


def tree_accepted(queues: Queues, at: Position, event: QuotaTreeAccepted) -> Iterable[str]:
    queues.ledger.install(event.tree)
    return _trees_changed(queues, at.at)


def shares_changed(queues: Queues, _at: Position, event: SharesChanged) -> Iterable[str]:
    """The past use of queues counts from now on."""
    queues.ledger.note_usage(event.usage)
    return ()


def tree_removed(queues: Queues, at: Position, event: QuotaTreeRemoved) -> Iterable[str]:
    queues.ledger.remove(event.ref.uid)
    return _trees_changed(queues, at.at)


def _trees_changed(queues: Queues, now: int) -> Iterable[str]:
    queues.passed.clear()
    for uid, charge in queues.ledger.charges.items():
        if uid in queues.jobs and uid in queues.resumed:
            _stands_at(queues.jobs[uid], charge.queue)
    queues.book.rejudge(queues.ledger)
    return queues.workloads


def reserved(queues: Queues, at: Position, event: QuotaReserved | WorkloadAdopted) -> Iterable[str]:
    uid = event.ref.uid
    queues.unplaced.pop(uid, None)
    if isinstance(event, QuotaReserved):
        queues.reserved[uid] = None
    else:
        queues.passed.pop(uid, None)
    job = queues.jobs.get(uid)
    if job is not None:
        withdraw(queues, job)
        job.status = "charged"
        job.placement = event.placement if isinstance(event, QuotaReserved) else ""
    queues.ledger.charge(uid, charge_of(event, at), claimant_of(event))
    queues.book.moved(event.queue, queues.ledger, Cause(at.seq, at.item))
    queues.book.resized(queues.ledger, Cause(at.seq, at.item))
    return (uid,)


def moved(queues: Queues, at: Position, event: QuotaMoved) -> Iterable[str]:
    """A charge follows its workload to another leaf."""
    job, cause = queues.jobs.get(event.ref.uid), Cause(at.seq, at.item)
    before = queues.ledger.move(event.ref.uid, event.queue, event.named)
    if before is not None:
        for queue in (before.queue, event.queue):
            queues.book.moved(queue, queues.ledger, cause)
    queues.book.resized(queues.ledger, cause)
    if job is not None and job.status == "charged" and job.attempt == event.attempt:
        _stands_at(job, event.queue)
    return (event.ref.uid,)


def _stands_at(job: Job, queue: str) -> None:
    """A charged job belongs to the leaf of its charge."""
    job.queue, job.shape = queue, shape_key(queue, job.demand)


def denied(queues: Queues, at: Position, event: QuotaDenied) -> Iterable[str]:
    job = queues.jobs.get(event.ref.uid)
    if job is None or job.status != "proposed" or job.attempt != event.attempt:
        return ()
    withdraw(queues, job)
    job.status = "waiting"
    job.cause = Cause(at.seq, at.item)
    queues.book.add(job.shape, job.queue, job.demand, job.place, queues.ledger)
    if event.short is not None:
        queues.book.deny(job.shape, Denial(job.cause, event.short), queues.ledger)
        backoff = queues.backoffs.get(job.queue)
        if backoff is not None:
            tries = event.tries or 1
            queues.retries[job.shape] = Retry(tries, at.at + min(backoff[0] * 2 ** min(tries - 1, 16), backoff[1]))
    return ()


def released(queues: Queues, at: Position, event: QuotaReleased) -> Iterable[str]:
    uid = event.ref.uid
    charge = queues.ledger.release(uid, event.attempt, at.at)
    if charge is not None and after_release(event.reason) == "unplaced" and waits(queues.workloads.get(uid)):
        queues.ledger.park(uid, event.attempt, charge)
    queues.reserved.pop(uid, None)
    if charge is not None:
        queues.book.moved(charge.queue, queues.ledger, Cause(at.seq, at.item))
    queues.book.resized(queues.ledger, Cause(at.seq, at.item))
    job = queues.jobs.get(uid)
    left = None
    if job is not None and job.status == "charged":
        if event.attempt < job.attempt:
            job.status = "waiting"
            queues.book.add(job.shape, job.queue, job.demand, job.place, queues.ledger)
        else:
            left = queues.jobs.pop(uid)
    queues.resumed.pop(uid, None)
    _waits_after(queues, at, event, left)
    return (uid, *(_owed_again(queues, uid, charge.queue) if charge is not None else ()))


def _owed_again(queues: Queues, released: str, queue: str) -> Iterator[str]:
    """Borrowers without places that a guarantee covers from now on, because a queue uses less: they are queued again,
    because jobs within a guarantee find places that borrowers do not.
    """
    above = chain_of(queue)[:-1]
    for uid, unplaced in queues.unplaced.items() if above else ():
        demand = unplaced.borrows
        if demand is None or unplaced.found or uid == released or chain_of(unplaced.queue)[-2:-1] != above[-1:]:
            continue
        if queues.ledger.owed(unplaced.queue, demand):
            queues.unplaced[uid] = replace(unplaced, found=True)
            yield uid


def _waits_after(queues: Queues, at: Position, event: QuotaReleased, left: Job | None) -> None:
    """When a workload may be queued again after its charge ended. ``left``: its job, unless a newer attempt waits."""
    uid, is_there = event.ref.uid, event.ref.uid in queues.workloads
    match after_release(event.reason):
        case "edited":
            if left is not None and is_current(queues, left):
                queues.stale[uid] = left.generation
        case "unplaced":
            if left is not None and is_there:
                queues.unplaced[uid] = WaitsForNodes(
                    event.attempt,
                    left.queue,
                    left.demand.basis,
                    left.priority,
                    left.placement,
                    left.place,
                    left.queued_at,
                    flavors=left.demand.flavors,
                    borrows=None if event.owed else left.demand,
                )
                if left.demand.flavors:
                    queues.passed.setdefault(uid, {})[flavors_text(left.demand.flavors)] = event.attempt
        case "not_started":
            if is_there:
                failures = queues.failures[uid] = queues.failures.get(uid, 0) + 1
                queues.not_before[uid] = at.at + min(BACKOFF_MS * 2 ** min(failures - 1, 10), BACKOFF_MAX_MS)
        case "late":
            if is_there and queues.ledger.tree_of(event.queue) is not None:
                queues.not_before[uid] = at.at + queues.ledger.rules_of(event.queue).backoff_ms
        case "over" | "queued" | "evicted" | "moved":
            pass
        case never:
            assert_never(never)


def deferred(queues: Queues, _at: Position, event: GangDeferred) -> Iterable[str]:
    """The nodes of further flavors have no room either."""
    uid = event.ref.uid
    job = queues.jobs.get(uid) if uid in queues.workloads else None
    if job is not None and (job.status, job.attempt) == ("charged", event.attempt):
        for flavors in event.without:  # After the release, the admitter watches no nodes for the job.
            queues.passed.setdefault(uid, {})[flavors_text(flavors)] = event.attempt
    return ()


def places_found(queues: Queues, _at: Position, event: PlacesFound) -> Iterable[str]:
    uid = event.ref.uid
    unplaced, back = queues.unplaced.get(uid), back_to(queues, uid, event.flavors)
    if unplaced is not None and unplaced.attempt == event.attempt:
        queues.unplaced[uid] = replace(unplaced, found=True)
    elif not back:
        return ()
    return (uid,)


def preemption_proposed(queues: Queues, _at: Position, event: PreemptionProposed) -> Iterable[str]:
    """Victims may leave for a job that waits for nodes. Where quota is short too, the job is queued again in its old
    place: quota is held only for queued jobs.
    """
    unplaced = queues.unplaced.get(event.ref.uid)
    if unplaced is None or unplaced.attempt != event.attempt or event.short is None:
        return ()
    queues.unplaced[event.ref.uid] = replace(unplaced, short=True)
    return (event.ref.uid,)


def admitted(queues: Queues, _at: Position, event: GangAdmitted) -> Iterable[str]:
    """The job has its places: where no job passes the head, later jobs may be tried."""
    leave_out(event.ref.uid, queues.reserved, queues.passed, queues.flavor_waits)
    return ()


def placement_chosen(queues: Queues, _at: Position, event: PlacementChosen) -> Iterable[str]:
    queues.places = event.strategy is not None
    return ()


def charge_changed(
    queues: Queues, at: Position, event: ChargeChanged | GrowthGranted | GrowthWithdrawn
) -> Iterable[str]:
    moved = queues.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
    if isinstance(event, GrowthWithdrawn):
        queues.ledger.shrunk(event.ref.uid, event.groups, at.at)
    if isinstance(event, GrowthGranted):
        queues.ledger.grown(event.ref.uid, event.added, at.at)
    if moved is not None:
        queues.book.moved(moved[0], queues.ledger, Cause(at.seq, at.item))
        queues.book.resized(queues.ledger, Cause(at.seq, at.item))
    return ()


def claims_changed(
    queues: Queues,
    at: Position,
    event: ClaimOpened | EvictionOrdered | VictimStays | EffectFailed | WorkersKept | ClaimEnded,
) -> Iterable[str]:
    match event:
        case ClaimOpened() | EvictionOrdered():
            queues.ledger.ordered(event, at.at)
        case ClaimEnded():
            queues.ledger.end_claim(event.ref.uid)
        case VictimStays() | EffectFailed(action="suspend") | WorkersKept(unasked=False):
            queues.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
        case _:
            pass
    return ()


def effect_applied(queues: Queues, at: Position, event: EffectApplied) -> Iterable[str]:
    if event.action != "resume":
        return ()
    queues.failures.pop(event.ref.uid, None)
    queues.not_before.pop(event.ref.uid, None)
    if event.ref.uid in queues.ledger.charges:
        queues.resumed[event.ref.uid] = None
    return (event.ref.uid,)


def queued(queues: Queues, at: Position, event: WorkloadQueued) -> Iterable[str]:
    uid = event.ref.uid
    old = queues.jobs.get(uid)
    leave_out(uid, queues.refusals, queues.not_before, queues.unplaced, queues.stale)
    back_to(queues, uid, event.flavors)
    queues.flavor_waits.pop(uid, None)
    if event.flavor_until:
        queues.flavor_waits[uid] = event.flavor_until
    if old is not None:
        withdraw(queues, old)
    queues.ledger.queued(uid, ask_of(event))
    queues.book.resized(queues.ledger, Cause(at.seq, at.item))
    job = queues.jobs[uid] = job_from(event, Cause(at.seq, at.item))
    if uid in queues.ledger.charges:
        job.status = "charged"
    else:
        queues.book.add(job.shape, job.queue, job.demand, job.place, queues.ledger)
    return (uid,)


def dequeued(queues: Queues, at: Position, event: WorkloadDequeued) -> Iterable[str]:
    queues.ledger.dequeued(event.ref.uid, event.attempt)
    queues.passed.pop(event.ref.uid, None)
    queues.flavor_waits.pop(event.ref.uid, None)
    queues.book.resized(queues.ledger, Cause(at.seq, at.item))
    job = queues.jobs.get(event.ref.uid)
    if job is not None and job.attempt == event.attempt and job.status != "charged":
        withdraw(queues, job)
        del queues.jobs[event.ref.uid]
    return (event.ref.uid,)


def refused(queues: Queues, _at: Position, event: WorkloadRefused) -> Iterable[str]:
    queues.refusals[event.ref.uid] = event.refusal
    return (event.ref.uid,)


def proposed(queues: Queues, _at: Position, event: CandidatesProposed) -> Iterable[str]:
    for candidate in event.candidates:
        if queues.retries:
            queues.retries.pop(shape_key(candidate.queue, candidate.demand), None)
        job = queues.jobs.get(candidate.ref.uid)
        if job is not None and job.attempt == candidate.attempt and job.status == "waiting":
            queues.book.opened(job.shape)
            queues.book.take(job.shape, job.place, queues.ledger)
            queues.proposed.add(job.queue, job.demand)
            queues.book.used(job.queue)
            job.status = "proposed"
    return ()


Fold = Callable[[Queues, Position, Any], Iterable[str]]

FOLDS: Mapping[type[Event], Fold] = {kind: fold for kind, (fold,) in folds_in(sys.modules[__name__]).items()}
"""{event type: its fold}"""


class KeepsQueues(Protocol):
    """A state with a book of the queues."""

    queues: Queues
    seen: Seen


def arms() -> dict[type[Event], Arm]:
    """The arms of a stage that keeps the queues without decisions about them."""
    return {kind: _kept(fold) for kind, fold in FOLDS.items()}


def folded(fold: Fold, state: KeepsQueues, event: Any, at: Position) -> Iterable[str]:
    """Fold an event into the queues of a state; returns the uids of the jobs touched."""
    touched = fold(state.queues, at, event)
    if isinstance(event, WorkloadGone | WorkloadDequeued | QuotaReleased):
        state.queues.ledger.forget(event.ref.uid, state.seen)
    return touched


def _kept(fold: Fold) -> Arm:
    def arm(state: KeepsQueues, at: Position, event: Any) -> None:
        folded(fold, state, event, at)

    return arm
