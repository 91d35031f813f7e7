"""How charged workloads change by decisions and by their effects: one function per event."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.accounting import growth
from muster.core.quota.accounting.rechecks import entry_of, recheck
from muster.core.quota.accounting.suspending import refused
from muster.core.quota.accounting.usage import aside_of
from muster.core.quota.claim import Claim
from muster.core.quota.ledger.charging import ask_of, charge_of, claimant_of
from muster.core.quota.service import gpu_time
from muster.core.quota.state import (
    AccountantState,
    Entry,
    Leaving,
    Proposal,
    kept_ms,
)
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    GangDeferred,
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    SuspensionOrdered,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.model.keys import Position

_LEAVES: Mapping[str, Leaving] = {
    "running_timeout": "timed_out",
    "unschedulable": "timed_out",
    "stale_gang": "stale",
    "overuse": "overuse",
}
"""Reason of an order -> why it leaves."""


def workload_queued(state: AccountantState, _at: Position, event: WorkloadQueued) -> None:
    state.priorities[event.ref.uid] = event.priority
    state.ledger.queued(event.ref.uid, ask_of(event))
    recheck(state, event.ref.uid)


def workload_dequeued(state: AccountantState, _at: Position, event: WorkloadDequeued) -> None:
    state.ledger.dequeued(event.ref.uid, event.attempt)
    forget(state, event.ref.uid)


def forget(state: AccountantState, uid: str) -> None:
    """Its priority is of an attempt, and is forgotten with them."""
    if state.ledger.forget(uid, state.seen):
        state.priorities.pop(uid, None)


def proposed(state: AccountantState, at: Position, event: CandidatesProposed) -> None:
    for candidate in event.candidates:
        state.proposals[candidate.ref.uid] = Proposal(candidate, Cause(at.seq, at.item))


def reserved(state: AccountantState, at: Position, event: QuotaReserved) -> None:
    answered(state, event)
    open_entry(state, event, at)


def adopted(state: AccountantState, at: Position, event: WorkloadAdopted) -> None:
    workload = state.workloads.get(event.ref.uid)
    entry = open_entry(state, event, at)
    entry.bypassed = event.reason == "bypassed"
    if workload is not None and workload.suspended:
        # Pods of it were seen: its controller has acted on the resume.
        entry.resumed_rv, entry.suspension_recorded, entry.acted = max(1, workload.rv - 1), True, True
    elif workload is not None:
        entry.resumed_rv, entry.since, entry.ran = workload.rv, at.at, workload.phase == "running"
    recheck(state, event.ref.uid)


def open_entry(state: AccountantState, event: QuotaReserved | WorkloadAdopted, at: Position) -> Entry:
    uid = event.ref.uid
    entry = Entry(event.ref, event.attempt, event.queue, event.request, Cause(at.seq, at.item))
    workload = state.workloads.get(uid)
    if workload is not None:
        entry.child = workload.child
        entry.groups = state.scaling.granted(workload)
        entry.fixed = workload.fixed_pods
    state.growths.pop(uid, None)
    state.claim_causes.pop(uid, None)
    entry.pods, entry.aside = event.pods, aside_of(workload, event.request)
    state.entries[uid] = entry
    _served(state, state.ledger.charge(uid, charge_of(event, at.at), claimant_of(event)))
    recheck(state, uid)
    return entry


def _served(state: AccountantState, claim: Claim | None) -> None:
    """Nothing is held by a claim any more, for its claimant has it."""
    if claim is not None:
        state.claim_causes.pop(claim.uid, None)
        for each in (claim.uid, *claim.victims):
            recheck(state, each)


def moved(state: AccountantState, at: Position, event: QuotaMoved) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.queue, entry.cause = event.queue, Cause(at.seq, at.item)
        state.ledger.move(event.ref.uid, event.queue, event.named)
        recheck(state, event.ref.uid)


def denied(state: AccountantState, _at: Position, event: QuotaDenied) -> None:
    answered(state, event)


def answered(state: AccountantState, event: QuotaReserved | QuotaDenied) -> None:
    """A newer proposal of the same workload may have come in after this answer was decided: it stays open."""
    proposal = state.proposals.get(event.ref.uid)
    if proposal is not None and proposal.candidate.attempt == event.attempt:
        del state.proposals[event.ref.uid]


def released(state: AccountantState, at: Position, event: QuotaReleased) -> None:
    uid = event.ref.uid
    entry, workload = state.entries.pop(uid, None), state.workloads.get(uid)
    if entry is not None and workload is not None:
        state.service.ran(uid, gpu_time(event.request, kept_ms(state, workload, entry)))
    state.growths.pop(uid, None)
    state.returns.pop(uid, None)
    state.ledger.release(uid, event.attempt, at.at)
    if event.reason in ("evicted", "preempted") and uid in state.workloads:
        state.evictions[uid] = state.evictions.get(uid, 0) + 1
    if uid not in state.workloads:
        state.causes.pop(uid, None)
        state.last_child.pop(uid, None)
    forget(state, uid)
    recheck(state, uid)


def admitted(state: AccountantState, at: Position, event: GangAdmitted) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.cause = Cause(at.seq, at.item)
        entry.admitted = True
        recheck(state, event.ref.uid)


def deferred(state: AccountantState, at: Position, event: GangDeferred) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.deferred = True
        state.causes[event.ref.uid] = Cause(at.seq, at.item)
        recheck(state, event.ref.uid)


def effect_applied(state: AccountantState, at: Position, event: EffectApplied) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt) if event.action != "gate" else None
    if entry is None:
        return
    if event.action == "suspend":
        entry.suspended_rv, entry.suspended_at = max(event.rv, 1), at.at
    else:
        entry.resumed_rv = max(entry.resumed_rv, event.rv, 1)
        entry.since = entry.since or at.at
    entry.cause = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def effect_failed(state: AccountantState, at: Position, event: EffectFailed) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt) if event.action != "gate" else None
    if entry is None:
        return
    if event.action == "resume":
        entry.failed = event.reason
    elif entry.leaving:
        state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
        if entry.leaving in ("timed_out", "stale", "overuse"):
            refused(entry, at.at)
        entry.leaving = ""
    state.causes[event.ref.uid] = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def charge_changed(state: AccountantState, _at: Position, event: ChargeChanged) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        recheck(state, event.ref.uid)


def growth_changed(state: AccountantState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        growth.take_over(state, at, entry, event)
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        served = state.ledger.grown(event.ref.uid, event.added, at.at) if isinstance(event, GrowthGranted) else None
        _served(state, served)
        recheck(state, event.ref.uid)


def suspension_recorded(state: AccountantState, _at: Position, event: SuspensionRecorded) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.suspension_recorded = True
        recheck(state, event.ref.uid)


def suspension_ordered(state: AccountantState, _at: Position, event: SuspensionOrdered) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.leaving, entry.suspended_rv = _LEAVES[event.reason], 0
        recheck(state, event.ref.uid)
