"""The quota accountant: the one authority on quota. Reserves, denies, adopts and releases charges, and judges trees.

A decision is made against the limits in force at its ``in_seq``: used + reserved + asked <= limit at the leaf and
every ancestor. Usage passes a limit only where a later fact lowered it or something ran around the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from muster.core.objects.labels import quota_name
from muster.core.preemption.inqueue import objection
from muster.core.quota import beside, folds
from muster.core.quota.charging import charge_of, demand_in
from muster.core.quota.demand import Scratch, demand_of
from muster.core.quota.ledger import leaf_of
from muster.core.quota.state import (
    AccountantState,
    Proposal,
    claim_over,
    evictable,
    release_reason,
    timed_out,
)
from muster.core.quota.tree import read_tree
from muster.core.rulesets import NEWEST
from muster.core.stage import Arm, Violation, first
from muster.events.base import Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
    ClaimEnded,
    ClaimOpened,
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    PlanStale,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    SuspensionOrdered,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectUnreadable,
    PodGone,
    PodObserved,
    QueueGone,
    QueueObserved,
    QuotaTreeGone,
    QuotaTreeObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.quota import Violation as BrokenRule


class QuotaAccountant:
    """The stage ``quota_accountant``."""

    name: ClassVar[str] = "quota_accountant"
    newest_ruleset: ClassVar[int] = NEWEST

    def initial(self) -> AccountantState:
        return AccountantState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {
            QuotaTreeObserved: folds.tree_observed,
            QuotaTreeGone: folds.tree_gone,
            QuotaTreeAccepted: folds.tree_accepted,
            QuotaTreeRejected: folds.tree_rejected,
            QuotaTreeRemoved: folds.tree_removed,
            WorkloadObserved: folds.workload_observed,
            WorkloadGone: folds.workload_gone,
            ObjectUnreadable: folds.unreadable,
            ChildObserved: folds.child_observed,
            ChildGone: folds.child_gone,
            PodObserved: folds.pod_observed,
            PodGone: folds.pod_gone,
            WorkloadQueued: folds.workload_queued,
            WorkloadDequeued: folds.workload_dequeued,
            CandidatesProposed: folds.proposed,
            QuotaReserved: folds.reserved,
            QuotaDenied: folds.denied,
            WorkloadAdopted: folds.adopted,
            SuspensionRecorded: folds.suspension_recorded,
            QuotaReleased: folds.released,
            GangAdmitted: folds.admitted,
            GangDeferred: folds.deferred,
            EffectApplied: folds.effect_applied,
            EffectFailed: folds.effect_failed,
            PreemptionProposed: folds.preemption_proposed,
            EvictionOrdered: folds.eviction_ordered,
            ClaimOpened: folds.claim_opened,
            PlanStale: folds.plan_stale,
            ClaimEnded: folds.claim_ended,
            SuspensionOrdered: folds.suspension_ordered,
            QueueObserved: folds.queue_observed,
            QueueGone: folds.queue_gone,
        }

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: AccountantState) -> list[Decision]:
        """Trees first (alone in their commit), then releases, adoptions, and the answers to proposals."""
        trees = list(self._trees(state))
        return trees if trees else first(self._charges(state))

    def _trees(self, state: AccountantState) -> Iterator[Decision]:
        if "elasticquotatrees" in state.unsynced:
            return
        force = state.ledger.tree
        if force is not None and force.ref.uid not in state.trees:
            yield QuotaTreeRemoved(cause=state.tree_causes[force.ref.uid], ref=force.ref)
            return
        queue = sorted(state.trees.values(), key=lambda tree: (tree.created, tree.ref.name, tree.ref.uid))
        owner = force.ref.uid if force is not None else None
        for observed in queue:
            uid = observed.ref.uid
            if state.judged.get(uid) == observed.rv:
                continue
            cause = state.tree_causes[uid]
            if owner is not None and owner != uid:
                other = state.trees[owner].ref
                rule = BrokenRule("root", "one_tree", f"tree {other.key} is in force; delete it before using this one")
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=(rule,))
                continue
            tree, broken = read_tree(observed)
            if broken:
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=tuple(broken[:100]))
            else:
                owner = uid
                yield QuotaTreeAccepted(cause=cause, tree=tree, rv=observed.rv)

    def _charges(self, state: AccountantState) -> Iterator[Decision]:
        scratch = Scratch()
        for uid in list(state.due_release) + [u for u, at in state.deadlines.items() if at <= state.now]:
            entry = state.entries[uid]
            reason = release_reason(state, entry)
            if reason is not None:
                scratch.add(entry.queue, state.ledger.charges[uid].demand, -1)
                yield QuotaReleased(
                    cause=state.causes.get(uid, entry.cause),
                    ref=entry.ref,
                    attempt=entry.attempt,
                    queue=entry.queue,
                    request=entry.request,
                    reason=reason,
                )
        for uid in state.due_suspension:
            entry = state.entries[uid]
            yield SuspensionRecorded(cause=state.causes.get(uid, entry.cause), ref=entry.ref, attempt=entry.attempt)
        claim, over = state.ledger.claim, claim_over(state)
        if claim is not None and over is not None:
            yield ClaimEnded(cause=state.causes.get(claim.uid, state.claim_cause), ref=claim.ref, outcome=over)
        if not state.admitting:
            return
        yield from self._timeouts(state)
        if over is None and not scratch.extra:  # what is released in this commit may make an eviction needless
            yield from self._plans(state)
        for uid in state.due_adoption:
            if uid in state.beside:
                adopted = beside.adoption(state.ledger, state.beside[uid])
                scratch.add(adopted.queue, charge_of(adopted).demand)
                yield adopted
                continue
            workload = state.workloads[uid]
            queue, demand = leaf_of(state.ledger, workload) or "", demand_of(state.ledger.tree, workload)
            scratch.add(queue, demand)
            yield WorkloadAdopted(
                cause=state.causes[uid],
                ref=workload.ref,
                attempt=state.attempts.get(uid, 0),
                queue=queue,
                request=demand.request,
                reason="bypassed" if uid in state.attempts else "already_running",
                pods=demand.pods,
                preemptible=demand.preemptible,
                named=quota_name(workload.labels),
            )
        for uid, proposal in state.proposals.items():
            if uid not in state.due_adoption:
                answer = self._answer(state, proposal, scratch)
                yield answer
                if (
                    claim is not None
                    and isinstance(answer, QuotaReserved)
                    and claim.served_by(uid, answer.queue, demand_in(answer))
                ):
                    return  # that ends the claim: what it held counts no more, so the others are answered after it

    def _answer(self, state: AccountantState, proposal: Proposal, scratch: Scratch) -> Decision:
        candidate, cause = proposal.candidate, proposal.cause
        uid, workload = candidate.ref.uid, state.workloads.get(candidate.ref.uid)
        stale = (
            workload is None
            or not workload.suspended
            or workload.phase not in ("waiting", "suspending")
            or workload.generation != candidate.generation
            or uid in state.entries
            or state.attempts.get(uid) != candidate.attempt
            or candidate.queue not in state.ledger.nodes
        )
        if stale:
            return QuotaDenied(
                cause=cause, ref=candidate.ref, attempt=candidate.attempt, queue=candidate.queue, reason="stale"
            )
        demand = demand_in(candidate)
        short = state.ledger.shortfall(candidate.queue, demand, scratch)
        if short is None:
            scratch.add(candidate.queue, demand)
            return QuotaReserved(
                cause=cause,
                ref=candidate.ref,
                attempt=candidate.attempt,
                queue=candidate.queue,
                request=candidate.request,
                generation=candidate.generation,
                pods=candidate.pods,
                preemptible=candidate.preemptible,
                named=quota_name(workload.labels) if workload is not None else "",
            )
        return QuotaDenied(
            cause=cause,
            ref=candidate.ref,
            attempt=candidate.attempt,
            queue=candidate.queue,
            reason="exceeds_limit" if short.hopeless else "insufficient_quota",
            request=candidate.request,
            path=short.path,
            resource=short.resource,
            asked=short.asked,
            used=short.used,
            limit=short.limit,
            of_min=short.of_min,
            held=short.held,
            tries=candidate.tries,
            of_runtime=short.of_runtime,
        )

    @staticmethod
    def _timeouts(state: AccountantState) -> Iterator[Decision]:
        for uid, at in state.deadlines.items():
            entry = state.entries[uid]
            if at <= state.now and timed_out(state, entry):
                yield SuspensionOrdered(
                    cause=entry.cause, ref=entry.ref, attempt=entry.attempt, reason="running_timeout"
                )

    @staticmethod
    def _plans(state: AccountantState) -> Iterator[Decision]:
        """Answers to proposed preemptions: at most one becomes a claim, the others are void."""
        claim, free = state.ledger.claim, True
        for plan in state.plans.values():
            proposed = plan.proposed
            may = free and (claim is None or (claim.yields and bool(proposed.victims)))
            stale = _objection(state, proposed) if may else "something is held for somebody else already"
            if stale:
                yield PlanStale(cause=plan.cause, ref=proposed.ref, attempt=proposed.attempt, reason=stale)
                continue
            free = False
            until = state.now + (state.ledger.tree.rules.claim_ms if state.ledger.tree else 0)
            common: dict[str, Any] = {
                "cause": plan.cause,
                "ref": proposed.ref,
                "attempt": proposed.attempt,
                "queue": proposed.queue,
                "request": proposed.request,
                "pods": proposed.pods,
                "preemptible": proposed.preemptible,
                "until": until,
            }
            if proposed.victims:
                yield EvictionOrdered(
                    **common,
                    victims=proposed.victims,
                    path=proposed.path,
                    resource=proposed.resource,
                    priority=proposed.priority,
                )
            else:
                yield ClaimOpened(**common, top=proposed.path)

    def next_deadline(self, state: AccountantState) -> int | None:
        claim = [state.ledger.claim.until] if state.ledger.claim is not None else []
        return min((at for at in (*state.deadlines.values(), *claim) if at > state.now), default=None)

    # --- check ------------------------------------------------------------------------------------------------

    def check(self, state: AccountantState) -> list[Violation]:
        """I5: usage is the sum of the charges, and runtime quota follows from what is asked for.

        I6: every entry is charged once, and nothing else is.
        """
        found = []
        if state.ledger.recount() != state.ledger.used:
            found.append(Violation("I5", f"ledger says {state.ledger.used}, charges sum to {state.ledger.recount()}"))
        if (shares := state.ledger.shares).runtime != (afresh := shares.as_asked(state.ledger.nodes)):
            found.append(Violation("I5", f"runtime quota is {shares.runtime}, and {afresh} by what is asked for"))
        if state.entries.keys() != state.ledger.charges.keys():
            odd = sorted(state.entries.keys() ^ state.ledger.charges.keys())
            found.append(Violation("I6", f"charged and not entered, or entered and not charged: {odd[:5]}"))
        return found


def _objection(state: AccountantState, proposed: PreemptionProposed) -> str:
    """Why a proposed preemption no longer holds; empty when it does."""
    uid, workload = proposed.ref.uid, state.workloads.get(proposed.ref.uid)
    if (
        workload is None
        or not workload.suspended
        or workload.phase not in ("waiting", "suspending")
        or uid in state.entries
        or state.attempts.get(uid) != proposed.attempt
        or proposed.queue not in state.ledger.nodes
    ):
        return "the claimant no longer waits as it did"
    demand = demand_in(proposed)
    if not proposed.victims:
        return "" if state.ledger.shortfall(proposed.queue, demand) is not None else "it fits meanwhile"
    if not all(evictable(state, victim.ref.uid, victim.attempt) for victim in proposed.victims):
        return "a victim may not be suspended any more"
    priorities = {victim.ref.uid: victim.priority for victim in proposed.victims}

    def outranked(victim: str) -> bool:
        """As both were queued; of what never was (it was adopted) the proposal says what it is."""
        lower, higher = state.priorities.get(victim, priorities[victim]), state.priorities.get(uid)
        return lower is not None and higher is not None and lower < higher and priorities[victim] is not None

    return objection(state.ledger.without_claim(), proposed.queue, demand, list(priorities), outranked)
