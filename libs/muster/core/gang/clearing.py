"""Nodes that are cleared for a job: which of the candidates have to go, and which room is kept free for it.

Tried on the nodes as they will be when everything ordered before has come to pass. The room of the victims is kept for
the job, which waits for it with its quota, until it is placed, or until ten minutes after the last of them has left.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from msgspec.structs import replace

from muster.core.gang import moving, planned, unplaced
from muster.core.gang.asks import asks_of, laid_out
from muster.core.gang.state import KEPT_MS, AdmitterState, Cleared, ClearingAsked
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View, need_of
from muster.events.base import Cause
from muster.events.claims import PlanStale, VictimStays
from muster.events.clearing import ClearingOrdered, ClearingProposed, ClearingTried
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    QuotaReleased,
    WorkloadDequeued,
)
from muster.events.effects import EffectFailed
from muster.events.facts import WorkloadGone, WorkloadObserved
from muster.model.keys import Position
from muster.model.places import Placement


def proposed(state: AdmitterState, at: Position, event: ClearingProposed) -> None:
    laid_out(state, event)
    victims = tuple(victim.ref.uid for victim in event.victims)
    moves = event.kind == "move"
    state.clearings[event.ref.uid] = ClearingAsked(event.ref, event.attempt, victims, Cause(at.seq, at.item), moves)


def tried(state: AdmitterState, _at: Position, event: ClearingTried) -> None:
    found = state.clearings.get(event.ref.uid)
    if found is not None:
        found.answered, found.places = True, event.places
        found.elsewhere = {move.uid: move.places for move in event.moves}


def answered(state: AdmitterState, _at: Position, event: PlanStale | EvictionOrdered) -> None:
    state.clearings.pop(event.ref.uid, None)


def ordered(state: AdmitterState, at: Position, event: ClearingOrdered) -> None:
    found = state.clearings.pop(event.ref.uid, None)
    if found is not None:
        state.cleared = {uid: each for uid, each in state.cleared.items() if each.going or each.until > at.at}
        going = dict.fromkeys(victim.ref.uid for victim in event.victims)
        leaving = {victim.ref.uid: planned.occupants_of(state, victim.ref.uid) for victim in event.victims}
        state.cleared[event.ref.uid] = Cleared(leaving, found.places, at.at + KEPT_MS, going, of_move=bool(event.moves))
        for move in event.moves:
            asks = repr(asks_of(state, state.gangs[move.uid])) if move.uid in state.gangs else ""
            mine = Cleared(dict(leaving), move.places, at.at + KEPT_MS, {**going}, of_move=True, moved=asks)
            state.cleared[move.uid] = mine


def stays(state: AdmitterState, _at: Position, event: VictimStays | EffectFailed) -> None:
    """A victim does not leave, or not soon: the room that was counted on does not come."""
    if isinstance(event, EffectFailed) and event.action != "suspend":
        return
    for uid in [uid for uid, each in state.cleared.items() if event.ref.uid in each.leaving]:
        del state.cleared[uid]


def over(
    state: AdmitterState, _at: Position, event: GangAdmitted | GangDeferred | GangAwaitingNodes | WorkloadDequeued
) -> None:
    """It has its places, or has been tried with all victims gone, or wants none any more."""
    state.cleared.pop(event.ref.uid, None)
    for found in state.cleared.values() if isinstance(event, GangAdmitted) else ():
        found.leaving.pop(event.ref.uid, None)  # It has left, and runs elsewhere.


def released(state: AdmitterState, at: Position, event: QuotaReleased) -> None:
    """A victim has left. What was to be moved and does not come back at once has no place kept."""
    for each in state.cleared.values():
        if event.ref.uid in each.going:
            del each.going[event.ref.uid]
            each.until = at.at + KEPT_MS
    found = state.cleared.get(event.ref.uid)
    if found is not None and found.moved and event.reason != "moved":
        del state.cleared[event.ref.uid]


def observed(state: AdmitterState, _at: Position, event: WorkloadObserved) -> None:
    """What asks for something else by now than when it was to be moved has no place kept."""
    uid = event.workload.ref.uid
    found = state.cleared.get(uid)
    if found is not None and found.moved and found.moved != repr(asks_of(state, state.gangs[uid])):
        del state.cleared[uid]


def gone(state: AdmitterState, _at: Position, event: WorkloadGone) -> None:
    state.cleared.pop(event.ref.uid, None)
    state.clearings.pop(event.ref.uid, None)


# --- what is kept -------------------------------------------------------------------------------------------------


def in_force(state: AdmitterState) -> Iterator[tuple[str, Cleared]]:
    """(uid of a job, what is cleared for it), in the order in which it was ordered."""
    return ((uid, each) for uid, each in state.cleared.items() if _stands(state, each))


def _stands(state: AdmitterState, found: Cleared) -> bool:
    return bool(found.going) or found.until > state.now


def awaits(state: AdmitterState, uid: str) -> bool:
    """Whether a victim that leaves for a job is still on the nodes, or a device is still kept for one that left."""
    found, ledger = state.cleared.get(uid), state.ledger
    if found is None or not _stands(state, found):
        return False
    if any(key in ledger.occupants for keys in found.leaving.values() for key in keys):
        return True
    reservation = state.reservations.get(uid)
    if reservation is not None and 0 < reservation.room_until <= state.now:
        return False
    return any(ledger.nodes[each.node].idle for each in found.places if each.node in ledger.nodes)


def keep(state: AdmitterState, view: View, placed: Container[str]) -> None:
    """Keep the free room of cleared nodes for the jobs they are cleared for, less those just placed."""
    for uid, places in _kept(state):
        asks = {ask.name: ask for ask in _asks(state, uid)}
        for each in places if uid not in placed else ():
            if each.pod_set in asks:
                view.keep(asks[each.pod_set], each.node, each.count)


def _kept(state: AdmitterState) -> Iterator[tuple[str, Sequence[Placement]]]:
    """(uid of a job, its places): as ordered, and as it was found that they would be, until that is ordered or not."""
    for uid, found in in_force(state):
        if uid in state.gangs and (state.gangs[uid].waits or found.moved or found.grows is not None):
            yield uid, found.places
    for uid, asked in state.clearings.items():
        yield uid, asked.places
        yield from asked.elsewhere.items()


def _asks(state: AdmitterState, uid: str) -> Sequence[Ask]:
    """What those ask for that room is kept for."""
    found, gang = state.cleared.get(uid), state.gangs.get(uid)
    if found is not None and found.grows is not None:
        return planned.asks_of_plan(state, found.grows)
    return asks_of(state, gang) if gang is not None else ()


def take(state: AdmitterState, view: View, uid: str, asks: Sequence[Ask], placed: Container[str]) -> bool:
    """Take the places that were planned for one of a move, beside what is kept for the others; False where they do no
    longer.
    """
    found, mode = state.cleared.get(uid), state.placement.strategy
    if found is None or not _stands(state, found) or not found.of_move or mode is None:
        return False
    planned_nodes = {each.node for each in found.places}
    beside = view.onto(state.ledger)
    keep(state, beside, {uid, *(each for each in state.cleared if each in placed)})
    for name in [name for name in state.ledger.nodes if name not in planned_nodes]:
        beside.close(name)
    before = len(beside.taken)
    if place(beside, asks, mode) is not None:
        return False
    for taken in beside.taken[before:]:
        slot = view.slot(taken.node)
        need = need_of(taken.ask, state.ledger.classes[slot.group])[0] if slot is not None else None
        assert need is not None, f"{taken.node} has had room just now"
        view.take(taken.ask, need, taken.node, taken.count)
    return True


def suppose(state: AdmitterState, view: View, but: str = "") -> None:
    """As if all victims ordered to leave for room on nodes had left, and the jobs had that room, but this one."""
    leaving = (key for _, found in in_force(state) for keys in found.leaving.values() for key in keys)
    for key in dict.fromkeys(leaving):
        if key in state.ledger.occupants:
            view.give(state.ledger.occupants[key])
    keep(state, view, (but,))


def supposed(state: AdmitterState, but: str = "") -> View:
    """The nodes as they will be when all that was ordered for others than this job, or is evaluated next, has come
    to pass.
    """
    view = View(state.ledger)
    planned.suppose(state, view, but)
    suppose(state, view, but)
    unplaced.suppose(state, view)
    return view


def settled(state: AdmitterState, but: str = "") -> View:
    """As :func:`supposed`, less what only the end of another job makes free: a job that moves has its place whatever
    becomes of the victims of other orders.
    """
    view = View(state.ledger)
    keep(state, view, (but,))
    unplaced.suppose(state, view)
    return view


# --- what is needed -----------------------------------------------------------------------------------------------


def trials_due(state: AdmitterState) -> Iterator[ClearingTried]:
    """What becomes of a proposed clearing, one at a time."""
    mode, found = state.placement.strategy, next((e for e in state.clearings.values() if not e.answered), None)
    if mode is None or found is None:
        return
    view = settled(state, found.ref.uid) if found.moves else supposed(state, found.ref.uid)
    gang = state.gangs.get(found.ref.uid)
    asks = asks_of(state, gang) if gang is not None else []
    going = {uid for each in state.orders.values() for uid in each.victims}
    going |= {uid for _, each in in_force(state) for uid in each.leaving}
    stay = [uid for uid in found.victims if uid not in going and (not found.moves or moving.may_move(state, uid))]
    said = ClearingTried(cause=found.cause, ref=found.ref, attempt=found.attempt)
    if asks and stay:
        planned.leave(state, view, stay)
        here = view.mark()
        said = replace(said, shortage=place(view, asks, mode), places=planned.placements(view, here))
        moves = moving.elsewhere(state, view, stay, mode) if found.moves else ()
        if said.shortage is None and moves is not None:
            said = replace(said, victims=tuple(stay), moves=moves)
    yield said
