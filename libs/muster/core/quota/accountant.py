"""The quota accountant: the one authority on quota. Reserves, denies, adopts and releases charges, and judges trees.

A decision is made against the limits in force at its ``in_seq``: used + reserved + asked <= limit at the leaf and
every ancestor. Usage passes a limit only where a later fact lowered it or something ran around the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from muster.core.quota.ledger import Scratch
from muster.core.quota.state import (
    AccountantState,
    Entry,
    Proposal,
    idle_deadline,
    must_adopt,
    note_idle,
    release_reason,
    suspended_by_others,
)
from muster.core.quota.tree import read_tree
from muster.core.stage import Arm, Violation, first
from muster.events.base import Cause, Decision, Event
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
from muster.model.keys import Position
from muster.model.quota import Violation as BrokenRule
from muster.model.workload import Workload


class QuotaAccountant:
    """The stage ``quota_accountant``."""

    name: ClassVar[str] = "quota_accountant"

    def initial(self) -> AccountantState:
        return AccountantState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {
            QuotaTreeObserved: self._tree_observed,
            QuotaTreeGone: self._tree_gone,
            QuotaTreeAccepted: self._tree_accepted,
            QuotaTreeRejected: self._tree_rejected,
            QuotaTreeRemoved: self._tree_removed,
            WorkloadObserved: self._workload_observed,
            WorkloadGone: self._workload_gone,
            ObjectUnreadable: self._unreadable,
            ChildObserved: self._child_observed,
            ChildGone: self._child_gone,
            PodObserved: self._pod_observed,
            PodGone: self._pod_gone,
            WorkloadQueued: self._workload_queued,
            CandidatesProposed: self._proposed,
            QuotaReserved: self._reserved,
            QuotaDenied: self._denied,
            WorkloadAdopted: self._adopted,
            SuspensionRecorded: self._suspension_recorded,
            QuotaReleased: self._released,
            GangAdmitted: self._admitted,
            EffectApplied: self._effect_applied,
            EffectFailed: self._effect_failed,
        }

    # --- fold: trees ------------------------------------------------------------------------------------------

    def _tree_observed(self, state: AccountantState, at: Position, event: QuotaTreeObserved) -> None:
        if state.seen.newer(event.ref.uid, event.rv):
            state.trees[event.ref.uid] = event
            state.tree_causes[event.ref.uid] = Cause(at.seq, at.item)

    def _tree_gone(self, state: AccountantState, at: Position, event: QuotaTreeGone) -> None:
        if state.seen.end(event.ref.uid, at.at):
            state.trees.pop(event.ref.uid, None)
            state.judged.pop(event.ref.uid, None)
            state.tree_causes[event.ref.uid] = Cause(at.seq, at.item)

    def _tree_accepted(self, state: AccountantState, _at: Position, event: QuotaTreeAccepted) -> None:
        state.judged[event.tree.ref.uid] = event.rv
        state.ledger.install(event.tree)
        for uid, entry in state.entries.items():
            entry.queue = state.ledger.charges[uid].queue
        for uid in state.workloads:
            self._recheck(state, uid)

    def _tree_rejected(self, state: AccountantState, _at: Position, event: QuotaTreeRejected) -> None:
        state.judged[event.ref.uid] = event.rv

    def _tree_removed(self, state: AccountantState, _at: Position, event: QuotaTreeRemoved) -> None:
        state.ledger.install(None)
        state.judged.clear()
        state.tree_causes.pop(event.ref.uid, None)
        for uid in state.workloads:
            self._recheck(state, uid)

    # --- fold: workloads --------------------------------------------------------------------------------------

    def _workload_observed(self, state: AccountantState, at: Position, event: WorkloadObserved) -> None:
        workload = event.workload
        uid = workload.ref.uid
        if not state.seen.newer(uid, workload.rv):
            return
        state.workloads[uid] = workload
        state.causes[uid] = Cause(at.seq, at.item)
        entry = state.entries.get(uid)
        if entry is not None:
            entry.child = workload.child
            if not workload.suspended and workload.phase != "finished":
                entry.resumed_rv = workload.rv
                entry.suspension_recorded = False
        self._recheck(state, uid)

    def _workload_gone(self, state: AccountantState, at: Position, event: WorkloadGone) -> None:
        if state.seen.end(event.ref.uid, at.at):
            self._forget(state, at, event.ref.uid)

    def _unreadable(self, state: AccountantState, at: Position, event: ObjectUnreadable) -> None:
        """An object that can no longer be read may still run: its charge stays until it is seen to be gone."""
        if event.ref.uid in state.workloads and state.seen.newer(event.ref.uid, event.rv):
            if event.ref.uid in state.entries:
                state.causes[event.ref.uid] = Cause(at.seq, at.item)
            else:
                self._forget(state, at, event.ref.uid)

    def _forget(self, state: AccountantState, at: Position, uid: str) -> None:
        state.workloads.pop(uid, None)
        state.attempts.pop(uid, None)
        state.causes.pop(uid, None)
        if uid in state.entries:
            state.causes[uid] = Cause(at.seq, at.item)
        else:
            state.last_child.pop(uid, None)
        self._recheck(state, uid)

    def _child_observed(self, state: AccountantState, at: Position, event: ChildObserved) -> None:
        owner = state.presence.child_observed(event)
        if owner is not None:
            state.last_child[owner] = event.child.ref.name
        self._touched(state, at, owner)

    def _child_gone(self, state: AccountantState, at: Position, event: ChildGone) -> None:
        self._touched(state, at, state.presence.child_gone(event, at.at))

    def _pod_observed(self, state: AccountantState, at: Position, event: PodObserved) -> None:
        self._touched(state, at, state.presence.pod_observed(event))

    def _pod_gone(self, state: AccountantState, at: Position, event: PodGone) -> None:
        self._touched(state, at, state.presence.pod_gone(event, at.at))

    def _touched(self, state: AccountantState, at: Position, uid: str | None) -> None:
        if uid is not None and (uid in state.entries or uid in state.workloads):
            state.causes[uid] = Cause(at.seq, at.item)
            self._recheck(state, uid)

    # --- fold: proposals and charges --------------------------------------------------------------------------

    def _workload_queued(self, state: AccountantState, _at: Position, event: WorkloadQueued) -> None:
        state.attempts[event.ref.uid] = event.attempt
        self._recheck(state, event.ref.uid)

    def _proposed(self, state: AccountantState, at: Position, event: CandidatesProposed) -> None:
        for candidate in event.candidates:
            state.proposals[candidate.ref.uid] = Proposal(candidate, Cause(at.seq, at.item))

    def _reserved(self, state: AccountantState, at: Position, event: QuotaReserved) -> None:
        self._answered(state, event)
        self._open(state, at, event)

    def _adopted(self, state: AccountantState, at: Position, event: WorkloadAdopted) -> None:
        workload = state.workloads.get(event.ref.uid)
        entry = self._open(state, at, event)
        if workload is not None and workload.suspended:
            entry.resumed_rv, entry.suspension_recorded = max(1, workload.rv - 1), True
        elif workload is not None:
            entry.resumed_rv = workload.rv
        self._recheck(state, event.ref.uid)

    def _open(self, state: AccountantState, at: Position, event: QuotaReserved | WorkloadAdopted) -> Entry:
        uid = event.ref.uid
        entry = Entry(event.ref, event.attempt, event.queue, event.request, Cause(at.seq, at.item))
        workload = state.workloads.get(uid)
        if workload is not None:
            entry.child = workload.child
        state.entries[uid] = entry
        state.ledger.charge(uid, event.ref.namespace, event.queue, event.request)
        self._recheck(state, uid)
        return entry

    def _denied(self, state: AccountantState, _at: Position, event: QuotaDenied) -> None:
        self._answered(state, event)

    @staticmethod
    def _answered(state: AccountantState, event: QuotaReserved | QuotaDenied) -> None:
        """A newer proposal of the same workload may have come in after this answer was decided: it stays open."""
        proposal = state.proposals.get(event.ref.uid)
        if proposal is not None and proposal.candidate.attempt == event.attempt:
            del state.proposals[event.ref.uid]

    def _released(self, state: AccountantState, _at: Position, event: QuotaReleased) -> None:
        uid = event.ref.uid
        state.entries.pop(uid, None)
        state.ledger.release(uid)
        if uid not in state.workloads:
            state.causes.pop(uid, None)
            state.last_child.pop(uid, None)
        self._recheck(state, uid)

    def _admitted(self, state: AccountantState, at: Position, event: GangAdmitted) -> None:
        entry = self._entry(state, event.ref.uid, event.attempt)
        if entry is not None:
            entry.cause = Cause(at.seq, at.item)
            entry.admitted = True
            self._recheck(state, event.ref.uid)

    def _effect_applied(self, state: AccountantState, at: Position, event: EffectApplied) -> None:
        entry = self._entry(state, event.ref.uid, event.attempt)
        if entry is not None:
            entry.resumed_rv = max(entry.resumed_rv, event.rv, 1)
            entry.cause = Cause(at.seq, at.item)
            self._recheck(state, event.ref.uid)

    def _effect_failed(self, state: AccountantState, at: Position, event: EffectFailed) -> None:
        entry = self._entry(state, event.ref.uid, event.attempt)
        if entry is not None:
            entry.failed = event.reason
            state.causes[event.ref.uid] = Cause(at.seq, at.item)
            self._recheck(state, event.ref.uid)

    def _suspension_recorded(self, state: AccountantState, _at: Position, event: SuspensionRecorded) -> None:
        entry = self._entry(state, event.ref.uid, event.attempt)
        if entry is not None:
            entry.suspension_recorded = True
            self._recheck(state, event.ref.uid)

    @staticmethod
    def _entry(state: AccountantState, uid: str, attempt: int) -> Entry | None:
        entry = state.entries.get(uid)
        return entry if entry is not None and entry.attempt == attempt else None

    def _recheck(self, state: AccountantState, uid: str) -> None:
        """Bring the ``due`` dicts and the deadline of one workload in line with the state."""
        entry, workload = state.entries.get(uid), state.workloads.get(uid)
        deadline = None
        if entry is not None:
            note_idle(state, entry)
            deadline = idle_deadline(state, entry)
        _set(state.due_release, uid, entry is not None and release_reason(state, entry) is not None)
        _set(state.due_suspension, uid, entry is not None and suspended_by_others(workload, entry))
        _set(state.due_adoption, uid, workload is not None and must_adopt(state, workload))
        if deadline is None or uid in state.due_release:
            state.deadlines.pop(uid, None)
        else:
            state.deadlines[uid] = deadline

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


def _set(due: dict[str, None], uid: str, wanted: bool) -> None:
    if wanted:
        due[uid] = None
    else:
        due.pop(uid, None)
