"""How the preemptor's own state changes, after the sorter's folds of the same events."""

from __future__ import annotations

from muster.core.preemption.state import MIN_PAUSE_MS, Bar, PreemptorState
from muster.events.decisions import (
    ClaimEnded,
    ClaimOpened,
    EvictionOrdered,
    PlanStale,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    ReclaimDeferred,
    SuspensionOrdered,
    WorkloadAdopted,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import QueueObserved, WorkloadGone, WorkloadObserved
from muster.events.system import TimeReached
from muster.model.keys import Position

OF_LOWER = ("lower_stays", "lower_too_young", "lower_paused")
"""Why no work of lower priority gives way: in a busy queue what runs changes all the time, so it rests for a moment."""


def workload_observed(state: PreemptorState, _at: Position, event: WorkloadObserved) -> None:
    changed(state, event.workload.ref.uid)


def workload_gone(state: PreemptorState, _at: Position, event: WorkloadGone) -> None:
    changed(state, event.ref.uid)
    state.barred.pop(event.ref.uid, None)
    state.open.pop(event.ref.uid, None)
    if event.ref.uid not in state.workloads:
        state.evictions.pop(event.ref.uid, None)


def charged(state: PreemptorState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    if isinstance(event, WorkloadAdopted) and event.reason == "already_running" and uid in state.workloads:
        state.foreign = state.foreign or not state.workloads[uid].intent
    state.barred.pop(uid, None)
    state.aged.pop(uid, None)
    changed(state, uid)


def effect_applied(state: PreemptorState, _at: Position, event: EffectApplied) -> None:
    changed(state, event.ref.uid)


def effect_failed(state: PreemptorState, _at: Position, event: EffectFailed) -> None:
    if event.action == "suspend":
        state.leaving.pop(event.ref.uid, None)
        changed(state, event.ref.uid)


def released(state: PreemptorState, _at: Position, event: QuotaReleased) -> None:
    state.leaving.pop(event.ref.uid, None)
    if event.reason in ("evicted", "preempted") and event.ref.uid in state.workloads:
        state.evictions[event.ref.uid] = state.evictions.get(event.ref.uid, 0) + 1
    changed(state, event.ref.uid)


def changed(state: PreemptorState, uid: str) -> None:
    """What could be taken back may have changed."""
    before = state.started.get(uid)
    was = (before.listed, before.run) if before is not None else None
    state.enlist(uid)
    after = state.started.get(uid)
    if was != ((after.listed, after.run) if after is not None else None):
        state.supply += 1


def rules_changed(state: PreemptorState, _at: Position, _event: object) -> None:
    """A new tree, or another pause: everything is looked at afresh."""
    state.supply += 1
    state.barred.clear()
    for uid in list(state.started):
        state.enlist(uid)
    state.age_check = state.now + MIN_PAUSE_MS


def queue_observed(state: PreemptorState, at: Position, event: QueueObserved) -> None:
    if event.paused != state.shown_pauses.get(event.path, ()):
        state.shown_pauses[event.path] = event.paused
        rules_changed(state, at, event)


def proposed(state: PreemptorState, _at: Position, event: PreemptionProposed) -> None:
    state.barred[event.ref.uid] = Bar(event.supply)
    if not event.withheld:
        state.open[event.ref.uid] = None


def deferred(state: PreemptorState, at: Position, event: ReclaimDeferred) -> None:
    rest = at.at + MIN_PAUSE_MS if event.reason in OF_LOWER else 0
    state.barred[event.ref.uid] = Bar(event.supply, event.until, rest=rest)


def plan_stale(state: PreemptorState, _at: Position, event: PlanStale) -> None:
    state.open.pop(event.ref.uid, None)


def ordered(state: PreemptorState, at: Position, event: EvictionOrdered | ClaimOpened) -> None:
    state.open.pop(event.ref.uid, None)
    state.aged.pop(event.ref.uid, None)
    _check_again(state, at.at + MIN_PAUSE_MS)  # a claim for age may have given way to this one
    for victim in event.victims if isinstance(event, EvictionOrdered) else ():
        if victim.ref.uid in state.ledger.charges:
            state.leaving[victim.ref.uid] = None
            changed(state, victim.ref.uid)


def suspension_ordered(state: PreemptorState, _at: Position, event: SuspensionOrdered) -> None:
    if event.ref.uid in state.ledger.charges:
        state.leaving[event.ref.uid] = None
        changed(state, event.ref.uid)


def claim_ended(state: PreemptorState, at: Position, event: ClaimEnded) -> None:
    """A claim that failed: its claimant rests as long as the claim lasted and until something has changed."""
    rules = state.ledger.tree.rules if state.ledger.tree is not None else None
    pause = max(rules.claim_ms if rules is not None else 0, MIN_PAUSE_MS)
    state.barred[event.ref.uid] = Bar(state.supply, at.at + pause, hard=True)
    _check_again(state, at.at + pause)


def denied(state: PreemptorState, at: Position, event: QuotaDenied) -> None:
    job, limit = state.jobs.get(event.ref.uid), _age_limit(state)
    if job is not None and limit and event.reason == "insufficient_quota":
        _check_again(state, max(job.queued_at + limit, at.at + 1))


def time_reached(state: PreemptorState, at: Position, _event: TimeReached) -> None:
    """Look who has waited too long, when that is due."""
    if not state.age_check or at.at < state.age_check:
        return
    state.age_check, limit = 0, _age_limit(state)
    if not limit:
        return
    heads = [state.jobs[shape.waiting[0][3]] for queue in state.book.queues for shape in state.refused(queue)]
    for job in heads:
        due = job.queued_at + limit
        bar = state.barred.get(job.ref.uid)
        if bar is not None and bar.hard:
            due = max(due, bar.until)
        if due > at.at:
            _check_again(state, max(due, at.at + MIN_PAUSE_MS))
        elif state.book.position(job.queue, job.place) == 1:
            state.aged[job.ref.uid] = None
        else:
            _check_again(state, at.at + limit)


def _check_again(state: PreemptorState, due: int) -> None:
    state.age_check = min(state.age_check, due) if state.age_check else due


def _age_limit(state: PreemptorState) -> int:
    return state.ledger.tree.rules.age_limit_ms if state.ledger.tree is not None else 0
