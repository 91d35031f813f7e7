"""The preemptor: for whom work should be suspended, and whose; the accountant judges it and only then it is ordered.

It proposes for one claimant at a time: whoever stays within the guarantee of its own queue and is refused above it.
Queues in their order (priority, used/min, age), in each the head first. Without anybody to reclaim for, it looks for
whom work of lower priority in their own queue should give way, where the tree asks for that. Without those, it proposes
that what leaves is held for a head that has waited too long, so that big work does not starve behind small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from muster.core.preemption import folds, inqueue
from muster.core.preemption.reclaim import victims
from muster.core.preemption.state import PreemptorState
from muster.core.queueing.book import Shape
from muster.core.queueing.sorter import QueueSorter
from muster.core.queueing.state import Job
from muster.core.quota.demand import Shortfall
from muster.core.rulesets import NEWEST
from muster.core.stage import Arm, Violation, in_turn
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import (
    ClaimEnded,
    ClaimOpened,
    DeferralReason,
    EvictionOrdered,
    PlanStale,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    ReclaimDeferred,
    SuspensionOrdered,
    Victim,
    WorkloadAdopted,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import QueueObserved, WorkloadGone, WorkloadObserved
from muster.events.system import TimeReached
from muster.model.quota import DEFAULT_RULES


class Preemptor:
    """The stage ``preemptor``."""

    name: ClassVar[str] = "preemptor"
    newest_ruleset: ClassVar[int] = NEWEST

    def initial(self) -> PreemptorState:
        return PreemptorState()

    def arms(self) -> Mapping[type[Event], Arm]:
        arms = dict(QueueSorter().arms())
        own: dict[type[Event], Arm] = {
            WorkloadObserved: folds.workload_observed,
            WorkloadGone: folds.workload_gone,
            QuotaReserved: folds.charged,
            WorkloadAdopted: folds.charged,
            QuotaReleased: folds.released,
            QuotaDenied: folds.denied,
            QuotaTreeAccepted: folds.rules_changed,
            QuotaTreeRemoved: folds.rules_changed,
            QueueObserved: folds.queue_observed,
            EffectApplied: folds.effect_applied,
            EffectFailed: folds.effect_failed,
            PreemptionProposed: folds.proposed,
            ReclaimDeferred: folds.deferred,
            PlanStale: folds.plan_stale,
            EvictionOrdered: folds.ordered,
            ClaimOpened: folds.ordered,
            SuspensionOrdered: folds.suspension_ordered,
            ClaimEnded: folds.claim_ended,
            TimeReached: folds.time_reached,
        }
        return arms | {kind: in_turn(arms[kind], arm) if kind in arms else arm for kind, arm in own.items()}

    def decide(self, state: PreemptorState) -> list[Decision]:
        """A proposal for the claimant that comes first, or why nothing can be taken back for it."""
        claim = state.ledger.claim
        if not state.admitting or state.open or (claim is not None and not claim.yields):
            return []
        owed, outranking = self._owed(state), self._outranking(state)
        if outranking:
            # Whoever lets priority preempt does not want lower priority of the same queue to be helped before it.
            first = {job.queue: job.place for _, job in reversed(outranking)}
            owed = [pair for pair in owed if pair[1].queue not in first or pair[1].place <= first[pair[1].queue]]
            helped = {job.ref.uid for _, job in owed}
            if _in_order(state, [*owed, *outranking])[0][1].ref.uid not in helped:
                return [self._preempt(state, *outranking[0])]
        if owed:
            return [self._reclaim(state, *owed[0])]
        if claim is not None:
            return []
        aged = self._aged(state)
        return [aged] if aged is not None else []

    @staticmethod
    def _owed(state: PreemptorState) -> list[tuple[Shape, Job]]:
        """Who is refused what its own queue is guaranteed, and would be let in if there were room; the first first."""
        if state.ledger.tree is None or state.ledger.tree.rules.reclaim == "disabled":
            return []
        found = [
            (shape, job)
            for queue in state.book.queues
            if state.hungry(queue)
            for shape in state.refused(queue)
            if state.ledger.owed(queue, shape.demand)
            and state.in_turn(job := state.jobs[shape.waiting[0][3]])
            and not state.is_barred(job.ref.uid)
        ]
        return _in_order(state, found)

    @staticmethod
    def _outranking(state: PreemptorState) -> list[tuple[Shape, Job]]:
        """Who waits where work of lower priority runs that could make room, and gives way; the first first."""
        if state.ledger.tree is None:
            return []
        ledger = state.ledger.without_claim()
        found = [
            (shape, job)
            for queue in state.book.queues
            if queue in state.runs and queue in ledger.nodes and ledger.nodes[queue].preempts
            for shape in state.refused(queue)
            if (job := state.jobs[shape.waiting[0][3]]).priority > state.runs[queue][0][0]
            and not state.is_barred(job.ref.uid)
            and state.may_be_next(job)
            and state.outranks(queue, job.priority, shape.demand, ledger)
        ]
        return _in_order(state, found)

    @staticmethod
    def _preempt(state: PreemptorState, shape: Shape, job: Job) -> Decision:
        """Work of lower priority in its own queue gives way, or it is said why none does."""
        cause, short = _refusal(state, shape, job)
        found = _in_its_queue(state, job, cause, short)
        if found is not None:
            return found
        young = bool(_lower_victims(state, job, lambda _: True))
        reason: DeferralReason = "lower_too_young" if young else "lower_stays"
        if _lower_victims(state, job, state.may_evict_unpaused):
            reason = "lower_paused"
        until = state.ripe_at(job.queue) if reason == "lower_too_young" else 0
        return _deferral(state, job, cause, short, reason, until)

    @staticmethod
    def _reclaim(state: PreemptorState, shape: Shape, job: Job) -> Decision:
        """Who is above its own guarantee gives back, or it is said why nobody does."""
        cause, short = _refusal(state, shape, job)
        ledger = state.ledger.without_claim()
        uids = victims(ledger, shape.queue, shape.demand, state.runs, state.may_evict)
        if not uids and ledger.nodes[shape.queue].preempts and state.may_be_next(job):
            found = _in_its_queue(state, job, cause, short)
            if found is not None:
                return found
        if not uids:
            paused = any("evictions" in state.resting(leaf) for leaf in state.runs)
            paused = paused and bool(victims(ledger, shape.queue, shape.demand, state.runs, state.may_evict_unpaused))
            ripe = 0 if paused else state.ripe_at()
            reason: DeferralReason = "evictions_paused" if paused else "too_young" if ripe else "nothing_evictable"
            return _deferral(state, job, cause, short, reason, ripe)
        return _proposal(
            state,
            job,
            cause,
            short,
            victims=tuple(_victim(state, uid) for uid in uids),
            withheld="" if state.reclaims() else "reclaim_disabled",
        )

    @staticmethod
    def _aged(state: PreemptorState) -> PreemptionProposed | None:
        """That what leaves is held for the one that has waited longest at the head of its queue."""
        jobs = [job for uid in state.aged if (job := state.jobs.get(uid)) is not None and job.status == "waiting"]
        for job in sorted(jobs, key=lambda job: (job.queued_at, job.ref.uid)):
            if state.rests(job.ref.uid) or not state.in_turn(job):
                continue
            shape = state.book.shapes[job.shape]
            short = state.ledger.shortfall(job.queue, job.demand)
            if shape.denial is None or short is None or short.hopeless or short.of_min or short.of_runtime:
                continue
            return _proposal(state, job, shape.denial.cause, short)
        return None

    def next_deadline(self, state: PreemptorState) -> int | None:
        times = [bar.until for uid, bar in state.barred.items() if bar.until > state.now and uid in state.jobs]
        if state.age_check > state.now:  # one that other news has overtaken must not hide what comes after it
            times.append(state.age_check)
        times += [bar.rest for bar in state.barred.values() if bar.rest > state.now and bar.supply != state.supply]
        return min(times, default=None)

    def check(self, state: PreemptorState) -> list[Violation]:
        """I5 for the copy of the ledger; what is listed as running is charged there."""
        found = []
        if state.ledger.recount() != state.ledger.used:
            found.append(Violation("I5", f"copy says {state.ledger.used}, charges sum to {state.ledger.recount()}"))
        listed = {run[3] for runs in state.runs.values() for run in runs}
        if odd := sorted(listed - state.ledger.charges.keys()):
            found.append(Violation("I6", f"listed as running and not charged: {odd[:5]}"))
        return found


def _in_order(state: PreemptorState, found: list[tuple[Shape, Job]]) -> list[tuple[Shape, Job]]:
    """Queues in their order, in each the head first."""
    if len(found) > 1:
        ledger, priorities = state.ledger, state.queue_priorities
        found.sort(
            key=lambda pair: (
                -priorities.get(pair[0].queue, 0),
                ledger.share(pair[0].queue),
                pair[0].queue,
                pair[1].place,
            )
        )
    return found


def _refusal(state: PreemptorState, shape: Shape, job: Job) -> tuple[Cause, Shortfall]:
    """What refused those of this shape, and what they lack by now without regard to any claim."""
    short = state.ledger.without_claim().shortfall(shape.queue, shape.demand)
    if shape.denial is None or short is None:
        raise AssertionError(f"{job.ref} is parked and fits")
    return shape.denial.cause, short


def _lower_victims(state: PreemptorState, job: Job, may: Callable[[str], bool]) -> list[str]:
    """Whom the rules let give way to a job in whose queue lower priority does."""
    rules = state.ledger.tree.rules if state.ledger.tree is not None else DEFAULT_RULES
    ledger, reclaims = state.ledger.without_claim(), rules.reclaim != "disabled"
    return inqueue.victims(ledger, job.queue, job.demand, job.priority, state.runs, may, reclaims=reclaims)


def _in_its_queue(state: PreemptorState, job: Job, cause: Cause, short: Shortfall) -> PreemptionProposed | None:
    """That work of lower priority in its own queue gives way to it, if that makes room."""
    uids = _lower_victims(state, job, state.may_evict)
    if not uids:
        return None
    chosen = tuple(_victim(state, uid, job) for uid in uids)
    withheld = state.ledger.tree is not None and not state.ledger.tree.rules.reclaim and state.foreign
    return _proposal(
        state,
        job,
        cause,
        short,
        victims=chosen,
        withheld="reclaim_disabled" if withheld else "",
        priority=job.priority if any(each.priority is not None for each in chosen) else None,
    )


def _deferral(
    state: PreemptorState, job: Job, cause: Cause, short: Shortfall, reason: DeferralReason, until: int
) -> ReclaimDeferred:
    """That nobody is evicted for it now; ``until``: log time that may change that, 0: only news may."""
    return ReclaimDeferred(
        cause=cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        path=short.path,
        resource=short.resource,
        reason=reason,
        until=until,
        supply=state.supply,
    )


def _proposal(
    state: PreemptorState,
    job: Job,
    cause: Cause,
    short: Shortfall,
    *,
    victims: tuple[Victim, ...] = (),
    withheld: Literal["", "reclaim_disabled"] = "",
    priority: int | None = None,
) -> PreemptionProposed:
    return PreemptionProposed(
        cause=cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        request=job.demand.request,
        pods=job.demand.pods,
        preemptible=job.demand.preemptible,
        victims=victims,
        path=short.path,
        resource=short.resource,
        asked=short.asked,
        used=short.used,
        limit=short.limit,
        withheld=withheld,
        supply=state.supply,
        priority=priority,
    )


def _victim(state: PreemptorState, uid: str, claimant: Job | None = None) -> Victim:
    """``claimant``: whom it gives way to for its priority, if they are of one queue."""
    charge, job, workload = state.ledger.charges[uid], state.jobs.get(uid), state.workloads[uid]
    attempt = job.attempt if job is not None else state.attempts.get(uid, 0)
    outranked = claimant is not None and charge.queue == claimant.queue
    priority = state.started[uid].run[0] if outranked else None
    return Victim(workload.ref, attempt, charge.queue, charge.request, charge.pods, priority)
