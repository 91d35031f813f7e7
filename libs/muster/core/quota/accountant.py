"""The quota accountant: the one authority on quota. Reserves, denies, adopts and releases charges, and judges trees.

A decision is made against the limits in force at its ``in_seq``: used + reserved + asked <= limit at the leaf and
every ancestor. Usage passes a limit only where a later fact lowered it or something ran around the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from muster.core.quota import folds
from muster.core.quota.ledger import Scratch
from muster.core.quota.state import (
    AccountantState,
    Proposal,
    release_reason,
)
from muster.core.quota.tree import read_tree
from muster.core.stage import Arm, Violation, first
from muster.events.base import Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectUnreadable,
    PodGone,
    PodObserved,
    QuotaTreeGone,
    QuotaTreeObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.quota import Violation as BrokenRule
from muster.model.workload import Workload


class QuotaAccountant:
    """The stage ``quota_accountant``."""

    name: ClassVar[str] = "quota_accountant"

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
            CandidatesProposed: folds.proposed,
            QuotaReserved: folds.reserved,
            QuotaDenied: folds.denied,
            WorkloadAdopted: folds.adopted,
            SuspensionRecorded: folds.suspension_recorded,
            QuotaReleased: folds.released,
            GangAdmitted: folds.admitted,
            EffectApplied: folds.effect_applied,
            EffectFailed: folds.effect_failed,
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
                scratch.add(entry.queue, entry.request, -1)
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
        if not state.admitting:
            return
        for uid in state.due_adoption:
            workload = state.workloads[uid]
            queue, request = state.ledger.leaf_of[workload.ref.namespace], self._need(state, workload)
            scratch.add(queue, request)
            yield WorkloadAdopted(
                cause=state.causes[uid],
                ref=workload.ref,
                attempt=state.attempts.get(uid, 0),
                queue=queue,
                request=request,
                reason="bypassed" if uid in state.attempts else "already_running",
            )
        for uid, proposal in state.proposals.items():
            if uid not in state.due_adoption:
                yield self._answer(state, proposal, scratch)

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
        short = state.ledger.shortfall(candidate.queue, candidate.request, scratch)
        if short is None:
            scratch.add(candidate.queue, candidate.request)
            return QuotaReserved(
                cause=cause,
                ref=candidate.ref,
                attempt=candidate.attempt,
                queue=candidate.queue,
                request=candidate.request,
                generation=candidate.generation,
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
        )

    @staticmethod
    def _need(state: AccountantState, workload: Workload) -> dict[str, int]:
        tree = state.ledger.tree
        return workload.need.get(tree.profile if tree else "ack", {})

    def next_deadline(self, state: AccountantState) -> int | None:
        return min(state.deadlines.values(), default=None)

    # --- check ------------------------------------------------------------------------------------------------

    def check(self, state: AccountantState) -> list[Violation]:
        """I5: usage is the sum of the charges. I6: every entry is charged once, and nothing else is."""
        found = []
        if state.ledger.recount() != state.ledger.used:
            found.append(Violation("I5", f"ledger says {state.ledger.used}, charges sum to {state.ledger.recount()}"))
        if state.entries.keys() != state.ledger.charges.keys():
            odd = sorted(state.entries.keys() ^ state.ledger.charges.keys())
            found.append(Violation("I6", f"charged and not entered, or entered and not charged: {odd[:5]}"))
        return found
