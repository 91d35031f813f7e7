"""Plans are tried on the nodes before a victim is suspended: with the victims gone, would the claimant find its places?

What was ordered before counts as if it had come to pass: its victims are gone and its claimants have their places.
Where node pools are declared, nodes may still be added for a claimant, and what it lacks now is no reason against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from muster.core.gang.asks import asks_of, asks_of_growth, laid_out
from muster.core.gang.state import KEPT_MS, AdmitterState, Cleared, Hold, Planned, hold_places
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.base import Cause
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, PlanTried, VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    PreemptionProposed,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
)
from muster.events.effects import EffectFailed
from muster.events.elastic import GrowthGranted, GrowthOption
from muster.model.keys import Position
from muster.model.places import Placement


def proposed(state: AdmitterState, at: Position, event: PreemptionProposed) -> None:
    if event.victims and not event.withheld:
        victims = tuple(victim.ref.uid for victim in event.victims)
        laid_out(state, event)
        state.plans[event.ref.uid] = _planned(at, event, victims)


def _planned(at: Position, event: PreemptionProposed | EvictionOrdered, victims: tuple[str, ...]) -> Planned:
    cause = Cause(at.seq, at.item)
    return Planned(event.ref, event.attempt, victims, cause, event.queue, growth=event.growth, pods=event.pods)


def asks_of_plan(state: AdmitterState, plan: Planned) -> list[Ask]:
    """What a claimant asks of the nodes."""
    gang = state.gangs.get(plan.ref.uid)
    if gang is None:
        return []
    return asks_of(state, gang) if plan.growth is None else asks_of_growth(state, gang, plan.growth, plan.pods)


def tried(state: AdmitterState, _at: Position, event: PlanTried) -> None:
    plan = state.plans.get(event.ref.uid)
    if plan is not None:
        plan.tried, plan.places = True, event.places


def answered(state: AdmitterState, _at: Position, event: PlanStale) -> None:
    state.plans.pop(event.ref.uid, None)


def opened(state: AdmitterState, at: Position, event: ClaimOpened) -> None:
    """What is owed and awaits the victims of others has its places beside theirs."""
    if event.kind != "age" and event.ref.uid not in state.orders:
        cause = Cause(at.seq, at.item)
        state.orders[event.ref.uid] = Planned(event.ref, event.attempt, (), cause, event.queue)


def ordered(state: AdmitterState, at: Position, event: EvictionOrdered) -> None:
    """The places that were found for it are kept from here on, as where nodes are cleared."""
    plan = state.plans.pop(event.ref.uid, None)
    if plan is not None and plan.places:
        leaving = {victim.ref.uid: occupants_of(state, victim.ref.uid) for victim in event.victims}
        going = dict.fromkeys(leaving)
        own = state.cleared.get(event.ref.uid)
        if own is not None:
            leaving, going = own.leaving | leaving, own.going | going
        grows = plan if event.growth is not None else None
        state.cleared[event.ref.uid] = Cleared(leaving, plan.places, at.at + KEPT_MS, going, grows=grows)
    before = state.orders.get(event.ref.uid)
    victims = (*(before.victims if before is not None else ()), *(victim.ref.uid for victim in event.victims))
    state.orders[event.ref.uid] = _planned(at, event, tuple(dict.fromkeys(victims)))


def stays(state: AdmitterState, _at: Position, event: VictimStays | EffectFailed | QuotaReleased) -> None:
    """A victim does not leave, or not soon, or has left and may run again: plans of others do without its places."""
    if isinstance(event, EffectFailed) and event.action != "suspend":
        return
    for claimant, order in state.orders.items():
        if event.ref.uid in order.victims:
            left = tuple(uid for uid in order.victims if uid != event.ref.uid)
            state.orders[claimant] = replace(order, victims=left)


def over(state: AdmitterState, _at: Position, event: QuotaReserved | WorkloadAdopted | ClaimEnded) -> None:
    state.orders.pop(event.ref.uid, None)
    if isinstance(event, ClaimEnded):
        state.cleared.pop(event.ref.uid, None)


def grown(state: AdmitterState, at: Position, event: GrowthGranted) -> None:
    """New workers are granted to a cluster: as many of the places that are kept for it are held for their pods."""
    uid, order = event.ref.uid, state.orders.get(event.ref.uid)
    if order is None or order.growth is None:
        return
    kept, gang, times = state.cleared.get(uid), state.gangs.get(uid), order.growth.times
    left = times - min(event.added.get(name, 0) // count for name, count in order.growth.groups.items())
    if left < times and kept is not None and gang is not None and uid in state.admitted:
        mine, kept.places = _divided(kept.places, max(left, 0), times)
        found = state.holds.get(uid) or Hold(event.ref, event.attempt, 0, Cause(at.seq, at.item))
        found.until = max(found.until, at.at + state.placement.hold_ms)
        hold_places(state, found, gang.pod_sets, mine)
    if left <= 0:
        state.orders.pop(uid)
        state.cleared.pop(uid, None)
    elif left < times:
        part = replace(order, growth=GrowthOption(order.growth.groups, left), pods=order.pods // times * left)
        state.orders[uid] = part
        if kept is not None:
            kept.grows = part


def _divided(places: Iterable[Placement], left: int, of: int) -> tuple[list[Placement], tuple[Placement, ...]]:
    """(the places of those pods that come, the others): ``left`` of ``of`` equal parts of each pod set stay."""
    total: dict[str, int] = {}
    for each in places:
        total[each.pod_set] = total.get(each.pod_set, 0) + each.count
    stay = {name: count // of * left for name, count in total.items()}
    come, rest = list[Placement](), list[Placement]()
    for each in places:
        count = min(stay[each.pod_set], each.count)
        stay[each.pod_set] -= count
        size = len(each.devices) // each.count
        if count:
            rest.append(replace(each, count=count, devices=each.devices[: size * count]))
        if count < each.count:
            come.append(replace(each, count=each.count - count, devices=each.devices[size * count :]))
    return come, tuple(rest)


def handed_on(state: AdmitterState, _at: Position, event: QuotaReserved) -> None:
    """Quota that was claimed for one may go to another that asks alike: it has the places, too."""
    gang = state.gangs.get(event.ref.uid)
    if gang is None or event.ref.uid in state.cleared or event.ref.uid in state.orders:
        return
    for uid, order in state.orders.items():
        other = state.gangs.get(uid)
        same = uid in state.cleared and order.growth is None and order.queue == event.queue and other is not None
        if same and other is not None and asks_of(state, other) == asks_of(state, gang):
            state.cleared[event.ref.uid] = state.cleared.pop(uid)
            return


def trials_due(state: AdmitterState, supposed: Callable[[AdmitterState, str], View]) -> Iterator[PlanTried]:
    """The result of each plan on the nodes; where placement is off none is tried.

    ``supposed``: the nodes as they will be when all that was ordered for others than a job has come to pass.
    """
    mode = state.placement.strategy
    plans = [plan for plan in state.plans.values() if not plan.tried]
    if mode is None or not plans:
        return
    for plan in plans:
        view = supposed(state, plan.ref.uid)
        leave(state, view, plan.victims)
        here = view.mark()
        short = place(view, asks_of_plan(state, plan), mode)
        places = placements(view, here)
        fits = short is None or bool(state.pools)
        yield PlanTried(cause=plan.cause, ref=plan.ref, attempt=plan.attempt, fits=fits, shortage=short, places=places)


def placements(view: View, mark: tuple[int, int]) -> tuple[Placement, ...]:
    """The places that were taken since a mark."""
    return tuple(Placement(each.ask.name, each.node, each.count, each.devices) for each in view.taken[mark[1] :])


def suppose(state: AdmitterState, view: View, but: str = "") -> None:
    """As if all victims ordered to leave for a claim had left, and the claimants had their places; ``but``: this
    one by uid.
    """
    mode = state.placement.strategy
    if mode is None:
        return
    for uid, order in state.orders.items():
        if uid in state.cleared or uid == but:
            continue  # Its places are kept.
        leave(state, view, order.victims)
        place(view, asks_of_plan(state, order), mode)


def leave(state: AdmitterState, view: View, uids: Iterable[str]) -> None:
    """Suppose that nothing of these workloads were on the nodes: no pod, and no place held for one."""
    for uid in uids:
        for key in occupants_of(state, uid):
            view.give(state.ledger.occupants[key])


def occupants_of(state: AdmitterState, uid: str) -> list[str]:
    """Keys of a workload's occupants on the nodes: its pods, and the places held for it."""
    held = state.holds[uid].places if uid in state.holds else {}
    keys = dict.fromkeys((*held, uid, *state.ledger.owned.get(uid, ())))
    return [key for key in keys if key in state.ledger.occupants]
