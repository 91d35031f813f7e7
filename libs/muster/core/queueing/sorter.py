"""The queue sorter: who waits where, in what order, and who should be tried now.

Order inside a queue (policy Round): priority, then queued-at, then namespace/name, then uid. One that does not fit
never blocks one behind it. Between queues: priority of the Queue object, then used/min, then age.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from muster.core.queueing.book import Denial
from muster.core.queueing.choice import Standing, choose
from muster.core.queueing.state import Job, Refusal, SorterState, job_from, queued_at_of
from muster.core.stage import MAX_DECISIONS, Arm, Violation, first
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
    DequeueReason,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    RefusalReason,
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
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.keys import Position
from muster.model.workload import Workload

BACKOFF_MS = 5_000
BACKOFF_MAX_MS = 300_000
"""After the API server refused to resume a workload: 5 s, doubled up to 5 min."""


class QueueSorter:
    """The stage ``queue_sorter``."""

    name: ClassVar[str] = "queue_sorter"

    def initial(self) -> SorterState:
        return SorterState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {
            WorkloadObserved: self._workload_observed,
            WorkloadGone: self._workload_gone,
            ObjectUnreadable: self._unreadable,
            PriorityClassObserved: self._class_observed,
            PriorityClassGone: self._class_gone,
            QueueObserved: self._queue_observed,
            QueueGone: self._queue_gone,
            WorkloadQueued: self._queued,
            WorkloadDequeued: self._dequeued,
            WorkloadRefused: self._refused,
            CandidatesProposed: self._proposed,
            QuotaTreeAccepted: self._tree_accepted,
            QuotaTreeRemoved: self._tree_removed,
            QuotaReserved: self._reserved,
            QuotaDenied: self._denied,
            WorkloadAdopted: self._reserved,
            QuotaReleased: self._released,
            EffectApplied: self._effect_applied,
        }

    # --- fold: the cluster ------------------------------------------------------------------------------------

    def _workload_observed(self, state: SorterState, at: Position, event: WorkloadObserved) -> None:
        uid = event.workload.ref.uid
        if state.seen.newer(uid, event.workload.rv):
            state.workloads[uid] = event.workload
            if uid in state.ledger.charges and not event.workload.suspended:
                state.resumed[uid] = None
            self._recheck(state, uid, at)

    def _workload_gone(self, state: SorterState, at: Position, event: WorkloadGone) -> None:
        if state.seen.end(event.ref.uid, at.at):
            self._forget(state, at, event.ref.uid)

    def _unreadable(self, state: SorterState, at: Position, event: ObjectUnreadable) -> None:
        if event.ref.uid in state.workloads and state.seen.newer(event.ref.uid, event.rv):
            self._forget(state, at, event.ref.uid)

    def _forget(self, state: SorterState, at: Position, uid: str) -> None:
        state.workloads.pop(uid, None)
        state.attempts.pop(uid, None)
        state.refusals.pop(uid, None)
        state.failures.pop(uid, None)
        state.not_before.pop(uid, None)
        state.stale.pop(uid, None)
        self._recheck(state, uid, at)

    def _class_observed(self, state: SorterState, at: Position, event: PriorityClassObserved) -> None:
        if state.seen.newer(event.ref.uid, event.rv):
            state.priority_classes[event.ref.name] = event.value
            if event.is_default:
                state.default_class = event.ref.name
            self._recheck_all(state, at)

    def _class_gone(self, state: SorterState, at: Position, event: PriorityClassGone) -> None:
        if state.seen.end(event.ref.uid, at.at):
            state.priority_classes.pop(event.ref.name, None)
            if state.default_class == event.ref.name:
                state.default_class = ""
            self._recheck_all(state, at)

    def _queue_observed(self, state: SorterState, _at: Position, event: QueueObserved) -> None:
        if state.seen.newer(event.ref.uid, event.rv):
            state.queue_paths[event.ref.uid] = event.path
            state.queue_priorities[event.path] = event.priority

    def _queue_gone(self, state: SorterState, at: Position, event: QueueGone) -> None:
        if state.seen.end(event.ref.uid, at.at):
            path = state.queue_paths.pop(event.ref.uid, "")
            if path not in state.queue_paths.values():
                state.queue_priorities.pop(path, None)

    # --- fold: the quota --------------------------------------------------------------------------------------

    def _tree_accepted(self, state: SorterState, at: Position, event: QuotaTreeAccepted) -> None:
        state.ledger.install(event.tree)
        state.book.rejudge(state.ledger)
        self._recheck_all(state, at)

    def _tree_removed(self, state: SorterState, at: Position, _event: QuotaTreeRemoved) -> None:
        state.ledger.install(None)
        state.book.rejudge(state.ledger)
        self._recheck_all(state, at)

    def _reserved(self, state: SorterState, at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
        uid = event.ref.uid
        job = state.jobs.get(uid)
        if job is not None:
            self._withdraw(state, job)
            job.status = "charged"
        state.ledger.charge(uid, event.ref.namespace, event.queue, event.request)
        state.book.moved(event.queue, event.request, state.ledger, Cause(at.seq, at.item))
        self._recheck(state, uid, at)

    def _denied(self, state: SorterState, at: Position, event: QuotaDenied) -> None:
        job = state.jobs.get(event.ref.uid)
        if job is None or job.status != "proposed" or job.attempt != event.attempt:
            return
        self._withdraw(state, job)
        job.status = "waiting"
        job.cause = Cause(at.seq, at.item)
        state.book.add(job.shape, job.queue, job.request, job.place, state.ledger)
        if event.reason != "stale":
            denial = Denial(job.cause, event.path, event.resource, event.asked, event.used, event.limit)
            state.book.deny(job.shape, denial, state.ledger)

    def _released(self, state: SorterState, at: Position, event: QuotaReleased) -> None:
        uid = event.ref.uid
        charge = state.ledger.release(uid)
        if charge is not None:
            state.book.moved(charge.queue, charge.request, state.ledger, Cause(at.seq, at.item))
        job = state.jobs.get(uid)
        if job is not None and job.status == "charged":
            if event.attempt < job.attempt:
                job.status = "waiting"
                state.book.add(job.shape, job.queue, job.request, job.place, state.ledger)
            else:
                del state.jobs[uid]
                if event.reason == "superseded":
                    state.stale[uid] = job.generation
        state.resumed.pop(uid, None)
        if event.reason == "resume_failed" and uid in state.workloads:
            failures = state.failures[uid] = state.failures.get(uid, 0) + 1
            state.not_before[uid] = at.at + min(BACKOFF_MS * 2 ** min(failures - 1, 10), BACKOFF_MAX_MS)
        self._recheck(state, uid, at)

    def _effect_applied(self, state: SorterState, at: Position, event: EffectApplied) -> None:
        state.failures.pop(event.ref.uid, None)
        state.not_before.pop(event.ref.uid, None)
        if event.ref.uid in state.ledger.charges:
            state.resumed[event.ref.uid] = None
        self._recheck(state, event.ref.uid, at)

    # --- fold: the queues -------------------------------------------------------------------------------------

    def _queued(self, state: SorterState, at: Position, event: WorkloadQueued) -> None:
        uid = event.ref.uid
        old = state.jobs.get(uid)
        state.attempts[uid] = event.attempt
        state.refusals.pop(uid, None)
        state.not_before.pop(uid, None)
        state.stale.pop(uid, None)
        if old is not None:
            self._withdraw(state, old)
        job = state.jobs[uid] = job_from(event, Cause(at.seq, at.item))
        if uid in state.ledger.charges:
            job.status = "charged"
        else:
            state.book.add(job.shape, job.queue, job.request, job.place, state.ledger)
        self._recheck(state, uid)

    def _dequeued(self, state: SorterState, _at: Position, event: WorkloadDequeued) -> None:
        job = state.jobs.get(event.ref.uid)
        if job is not None and job.attempt == event.attempt and job.status != "charged":
            self._withdraw(state, job)
            del state.jobs[event.ref.uid]
        self._recheck(state, event.ref.uid)

    def _refused(self, state: SorterState, _at: Position, event: WorkloadRefused) -> None:
        state.refusals[event.ref.uid] = Refusal(event.reason, event.message)
        self._recheck(state, event.ref.uid)

    def _proposed(self, state: SorterState, _at: Position, event: CandidatesProposed) -> None:
        for candidate in event.candidates:
            job = state.jobs.get(candidate.ref.uid)
            if job is not None and job.attempt == candidate.attempt and job.status == "waiting":
                state.book.opened(job.shape)
                state.book.take(job.shape, job.place)
                state.proposed.add(job.queue, job.request)
                job.status = "proposed"

    def _withdraw(self, state: SorterState, job: Job) -> None:
        """Take a job out of the waiting order, or out of the open proposals."""
        if job.status == "waiting":
            state.book.take(job.shape, job.place)
        elif job.status == "proposed":
            state.book.closed(job.shape)
            state.proposed.add(job.queue, job.request, -1)

    def _recheck(self, state: SorterState, uid: str, at: Position | None = None) -> None:
        """Bring ``due`` in line with the state; ``at`` is the event that asks for it, if it may be a cause."""
        known = uid in state.workloads or uid in state.jobs or uid in state.ledger.charges
        if not known:
            state.causes.pop(uid, None)
        elif at is not None or uid not in state.causes:
            state.causes[uid] = Cause(at.seq, at.item) if at is not None else Cause(state.seq, 0)
        if known and self._standing(state, uid) is not None:
            state.due[uid] = None
        else:
            state.due.pop(uid, None)

    def _recheck_all(self, state: SorterState, at: Position) -> None:
        for uid in state.workloads:
            self._recheck(state, uid, at)

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: SorterState) -> list[Decision]:
        """First whose standing changes (queued, dequeued, refused), then who should be tried now."""
        if not state.admitting:
            return []
        standings = first(self._standings(state), MAX_DECISIONS - 1)
        candidates = choose(state, standings)
        if not candidates:
            return [*standings]
        return [*standings, CandidatesProposed(cause=candidates[0].cause, candidates=tuple(candidates))]

    def _standings(self, state: SorterState) -> Iterator[Standing]:
        rested = [uid for uid, until in state.not_before.items() if until <= state.now and uid not in state.due]
        for uid in [*state.due, *rested]:
            decision = self._standing(state, uid)
            if decision is not None:
                yield decision

    def _standing(self, state: SorterState, uid: str) -> Standing | None:
        """The one decision that brings a workload's standing in line with what is known of it, if any is due."""
        job, workload = state.jobs.get(uid), state.workloads.get(uid)
        cause = state.causes[uid]
        leaf = state.ledger.leaf_of.get(workload.ref.namespace) if workload else None
        if job is not None and job.status != "charged":
            leaves = _why_leaves(workload, leaf)
            if leaves is not None:
                return WorkloadDequeued(
                    cause=cause, ref=job.ref, attempt=job.attempt, queue=job.queue, reason=leaves
                )
        if workload is None or not workload.suspended or workload.phase not in ("waiting", "suspending"):
            return None
        refusal = self._refusal(state, workload, leaf) if uid not in state.ledger.charges else None
        if refusal is not None:
            told = state.refusals.get(uid)
            if told is not None and (told.reason, told.message) == refusal:
                return None
            return WorkloadRefused(cause=cause, ref=workload.ref, reason=refusal[0], message=refusal[1])
        if leaf is None or state.not_before.get(uid, 0) > state.now:
            return None
        return self._queue(state, workload, leaf, job, cause)

    def _queue(
        self, state: SorterState, workload: Workload, leaf: str, job: Job | None, cause: Cause
    ) -> WorkloadQueued | None:
        uid = workload.ref.uid
        if uid in state.ledger.charges and (job is None or uid in state.resumed):
            return None
        if state.stale.get(uid) == workload.generation:
            return None
        request, priority = state.need_of(workload), state.priority_of(workload)
        if job is not None and (job.generation, job.priority, job.queue) == (workload.generation, priority, leaf):
            if job.request == request:
                return None
        return WorkloadQueued(
            cause=cause,
            ref=workload.ref,
            attempt=state.attempts.get(uid, 0) + 1,
            queue=leaf,
            request=request,
            priority=priority,
            queued_at=job.queued_at if job is not None else queued_at_of(workload, state.now),
            generation=workload.generation,
        )

    @staticmethod
    def _refusal(state: SorterState, workload: Workload, leaf: str | None) -> tuple[RefusalReason, str] | None:
        if workload.refusal:
            return "cannot_suspend", workload.refusal
        if state.ledger.tree is None:
            return "no_tree", "no valid ElasticQuotaTree is in force in kube-system; apply one and it is queued"
        if leaf is None:
            namespace = workload.ref.namespace
            return (
                "unbound",
                f"no quota claims namespace {namespace}; add it to the namespaces of a leaf of ElasticQuotaTree "
                f"{state.ledger.tree.ref.key}, or set spec.suspend to false yourself",
            )
        return None

    def next_deadline(self, state: SorterState) -> int | None:
        return min(state.not_before.values(), default=None)

    def check(self, state: SorterState) -> list[Violation]:
        """I5 for the copy of the ledger; every job stands exactly where its status says."""
        found = []
        if state.ledger.recount() != state.ledger.used:
            found.append(Violation("I5", f"copy says {state.ledger.used}, charges sum to {state.ledger.recount()}"))
        listed = {place[3] for shape in state.book.shapes.values() for place in shape.waiting}
        waiting = {uid for uid, job in state.jobs.items() if job.status == "waiting"}
        if listed != waiting or state.book.waiting != len(waiting):
            found.append(Violation("I16", f"waiting jobs and the order differ: {sorted(listed ^ waiting)[:5]}"))
        return found


def _why_leaves(workload: Workload | None, leaf: str | None) -> DequeueReason | None:
    if workload is None:
        return "gone"
    if workload.phase == "finished":
        return "finished"
    if not workload.suspended:
        return "started_outside"
    if workload.refusal:
        return "refused"
    return "unbound" if leaf is None else None
