"""Plans are tried on the nodes before anybody is suspended: with the victims gone, would the claimant find its places?

What was ordered before counts as if it had come to pass: its victims are gone and its claimants have their places.
Where node pools are declared, nodes may still be added for a claimant, and what it lacks now is no reason against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.core.gang.asks import asks_of, laid_out
from muster.core.gang.state import AdmitterState, Planned
from muster.core.placement.place import place
from muster.core.placement.view import View
from muster.events.base import Cause
from muster.events.claims import ClaimEnded, PlanStale, PlanTried, VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    PreemptionProposed,
    QuotaReserved,
    WorkloadAdopted,
)
from muster.events.effects import EffectFailed
from muster.model.keys import Position


def proposed(state: AdmitterState, at: Position, event: PreemptionProposed) -> None:
    if event.victims and not event.withheld:
        victims = tuple(victim.ref.uid for victim in event.victims)
        laid_out(state, event)
        state.plans[event.ref.uid] = Planned(event.ref, event.attempt, victims, Cause(at.seq, at.item))


def answered(state: AdmitterState, _at: Position, event: PlanTried | PlanStale) -> None:
    state.plans.pop(event.ref.uid, None)


def ordered(state: AdmitterState, at: Position, event: EvictionOrdered) -> None:
    state.plans.pop(event.ref.uid, None)
    before = state.orders.get(event.ref.uid)
    victims = (*(before.victims if before is not None else ()), *(victim.ref.uid for victim in event.victims))
    state.orders[event.ref.uid] = Planned(
        event.ref, event.attempt, tuple(dict.fromkeys(victims)), Cause(at.seq, at.item)
    )


def stays(state: AdmitterState, _at: Position, event: VictimStays | EffectFailed) -> None:
    """A victim does not leave, or not soon: plans of others must do without its places."""
    if isinstance(event, EffectFailed) and event.action != "suspend":
        return
    for claimant, order in state.orders.items():
        if event.ref.uid in order.victims:
            left = tuple(uid for uid in order.victims if uid != event.ref.uid)
            state.orders[claimant] = replace(order, victims=left)


def over(state: AdmitterState, _at: Position, event: QuotaReserved | WorkloadAdopted | ClaimEnded) -> None:
    state.orders.pop(event.ref.uid, None)


def due(state: AdmitterState) -> Iterator[PlanTried]:
    """What becomes of each plan on the nodes; where placement is off nobody asks."""
    mode = state.placement.strategy
    if mode is None or not state.plans:
        return
    view = View(state.ledger)
    suppose(state, view)
    mark = view.mark()
    for plan in state.plans.values():
        leave(state, view, plan.victims)
        gang = state.gangs.get(plan.ref.uid)
        short = place(view, asks_of(state, gang), mode) if gang is not None else None
        view.undo(mark)
        fits = short is None or bool(state.pools)
        yield PlanTried(cause=plan.cause, ref=plan.ref, attempt=plan.attempt, fits=fits, shortage=short)


def suppose(state: AdmitterState, view: View) -> None:
    """As if everybody who was ordered to leave for a claim had left, and the claimants had their places."""
    mode = state.placement.strategy
    if mode is None:
        return
    for order in state.orders.values():
        leave(state, view, order.victims)
        if order.ref.uid in state.gangs:
            place(view, asks_of(state, state.gangs[order.ref.uid]), mode)


def leave(state: AdmitterState, view: View, uids: Iterable[str]) -> None:
    """Suppose that nothing of these workloads were on the nodes: no pod, and no place held for one."""
    for uid in uids:
        for key in occupants_of(state, uid):
            view.give(state.ledger.occupants[key])


def occupants_of(state: AdmitterState, uid: str) -> list[str]:
    """Keys of what a workload has on the nodes: its pods, and the places held for it."""
    held = state.holds[uid].places if uid in state.holds else {}
    keys = dict.fromkeys((*held, uid, *state.ledger.owned.get(uid, ())))
    return [key for key in keys if key in state.ledger.occupants]
