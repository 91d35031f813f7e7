"""The folds of plans, orders and claims into the accountant's state."""

from __future__ import annotations

from muster.core.quota.accountantstate import AccountantState, Plan
from muster.core.quota.accounting import growth
from muster.core.quota.accounting.rechecks import entry_of, recheck
from muster.core.quota.ledger.books import claim_of
from muster.events.base import Cause
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, PlanTried, VictimStays
from muster.events.decisions import EvictionOrdered, PreemptionProposed
from muster.events.system import PlacementChosen
from muster.model.keys import Position


def preemption_proposed(state: AccountantState, at: Position, event: PreemptionProposed) -> None:
    if not event.withheld:
        state.plans[event.ref.uid] = Plan(event, Cause(at.seq, at.item))


def placement_chosen(state: AccountantState, at: Position, event: PlacementChosen) -> None:
    state.places = event.strategy is not None
    state.forest.placed(state.places, Cause(at.seq, at.item))
    state.native_grow_ms, state.native_hold_ms = event.grow_ms, event.hold_ms


def plan_tried(state: AccountantState, _at: Position, event: PlanTried) -> None:
    plan = state.plans.get(event.ref.uid)
    if plan is not None and plan.proposed.attempt == event.attempt:
        plan.tried = event


def eviction_ordered(state: AccountantState, at: Position, event: EvictionOrdered) -> None:
    state.plans.pop(event.ref.uid, None)
    state.ledger.ordered(event, at.at)
    _claimed(state, at, event.ref.uid)
    for victim in event.victims:
        entry = entry_of(state, victim.ref.uid, victim.attempt)
        if entry is not None:
            preempts = victim.priority is not None or event.kind == "service"
            entry.leaving = "moved" if victim.moves else "preempted" if preempts else "evicted"
            entry.suspended_rv, entry.ends_by = 0, victim.ends_by
            recheck(state, victim.ref.uid)
    growth.parts_ordered(state, event)


def claim_opened(state: AccountantState, at: Position, event: ClaimOpened) -> None:
    state.plans.pop(event.ref.uid, None)
    state.ledger.open_claim(claim_of(event, at.at))
    _claimed(state, at, event.ref.uid)


def _claimed(state: AccountantState, at: Position, uid: str) -> None:
    state.claim_causes[uid] = Cause(at.seq, at.item)
    recheck(state, uid)


def plan_stale(state: AccountantState, _at: Position, event: PlanStale) -> None:
    state.plans.pop(event.ref.uid, None)


def victim_stays(state: AccountantState, at: Position, event: VictimStays) -> None:
    state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None and event.reason == "not_ended":
        entry.leaving, entry.ends_by = "", 0
    recheck(state, event.ref.uid)


def claim_ended(state: AccountantState, _at: Position, event: ClaimEnded) -> None:
    ended = state.ledger.end_claim(event.ref.uid)
    state.claim_causes.pop(event.ref.uid, None)
    for uid in (event.ref.uid, *(ended.victims if ended is not None else ())):
        recheck(state, uid)
