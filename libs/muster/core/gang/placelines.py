"""Jobs that released their quota because the nodes had no place for them: which of them have room there by now.

They wait in lines, one for all with the same request: those first that are guaranteed what they ask for, then the
highest priority, then the oldest. As many are tried again as there is room for, one line beside the other. For a few
seconds that room is left to them by the others that wait for nodes. A job that has quota already comes before all of
them, except before those that are guaranteed what they ask for where it borrows.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice

from msgspec.structs import replace

from muster.core.gang import nodeclaims
from muster.core.gang.admitterstate import AdmitterState, Line, LinePlace, Reservation, Unplaced
from muster.core.gang.jobplaces import asks_of
from muster.core.gang.newnodes import Growing
from muster.core.gang.queued import QueuedAs, queued_as
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.base import Cause
from muster.events.decisions import PlacesFound, QuotaDenied, QuotaReleased, WorkloadDequeued, WorkloadQueued
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.reasons import after_release
from muster.model.keys import Position
from muster.model.placing import GPU
from muster.model.pools import Growth

FOUND_MS = 5_000
"""How long others that wait for nodes leave the room to one that is tried again: its queue may not admit it."""
ROUNDS = 3
ROUND_MS = 60_000
"""One that is said to have room, and has none, so often on nodes that have not changed is tried again after this."""
GROW_AGAIN_MS = 60_000
"""Nodes of a pool that did not come are waited for again after this."""


def queued(state: AdmitterState, _at: Position, event: WorkloadQueued) -> None:
    """It is tried again, in its place in the queue."""
    uid, rank = event.ref.uid, (-event.priority, event.rank or event.queued_at)
    state.queued[uid] = replace(queued_as(state.queued, uid), attempt=event.attempt, rank=rank)
    drop(state, uid)


def dequeued(state: AdmitterState, _at: Position, event: WorkloadDequeued) -> None:
    _over(state, event.ref.uid, event.attempt)


def _over(state: AdmitterState, uid: str, attempt: int) -> None:
    queued = state.queued.get(uid)
    if queued is not None and queued.attempt <= attempt:
        del state.queued[uid]


def denied(state: AdmitterState, _at: Position, event: QuotaDenied) -> None:
    """It waits for quota from here on."""
    state.found.pop(event.ref.uid, None)


def released(state: AdmitterState, at: Position, event: QuotaReleased, before: Reservation | None) -> None:
    """Its quota is released: if it had no place, it waits in line, unless it is in its queue again by now under a newer
    attempt. ``before``: its reservation.
    """
    uid, again = event.ref.uid, queued_as(state.queued, event.ref.uid).attempt > event.attempt
    drop(state, uid)
    state.found.pop(uid, None)
    if after_release(event.reason) != "unplaced" or uid not in state.gangs or before is None or again:
        _over(state, uid, event.attempt)
        return
    state.grow_from.put(uid, at.at + GROW_AGAIN_MS if before.in_vain else 0)
    state.unplaced[uid] = Unplaced(event.ref, event.attempt, Cause(at.seq, at.item), owed=event.owed)
    _goes_round(state, uid, at.at)
    _stand(state, uid)


def _goes_round(state: AdmitterState, uid: str, now: int) -> None:
    """It has found no place once more; ``now``: log time (ms)."""
    each, moves = state.queued.setdefault(uid, QueuedAs()), state.ledger.moves
    each.rounds = each.rounds + 1 if each.moves == moves else 1
    each.moves, each.rests_until = moves, now + ROUND_MS if each.rounds >= ROUNDS else 0
    if each.rests_until:
        state.grow_from.put(uid, each.rests_until)


def _rests(state: AdmitterState, uid: str) -> bool:
    each = queued_as(state.queued, uid)
    return each.rests_until > state.now and each.moves == state.ledger.moves


def found(state: AdmitterState, at: Position, event: PlacesFound) -> None:
    each = state.unplaced.get(event.ref.uid)
    drop(state, event.ref.uid)
    state.found = {uid: room for uid, room in state.found.items() if room[0] > at.at}
    state.found[event.ref.uid] = at.at + FOUND_MS, each is not None and each.owed


def observed(state: AdmitterState, uid: str) -> None:
    """What it asks for may be something else now."""
    each, grow_from = state.unplaced.get(uid), state.grow_from.at.get(uid, 0)
    if each is not None:
        drop(state, uid)
        state.grow_from.put(uid, grow_from)
        state.unplaced[uid] = each
        _stand(state, uid)


def drop(state: AdmitterState, uid: str) -> None:
    """It does not wait for room on the nodes any more."""
    each = state.unplaced.pop(uid, None)
    if each is not None:
        state.grow_from.put(uid, 0)
        line = state.lines[each.key]
        line.places.remove(each.place)
        if not line.places:
            del state.lines[each.key]
            if line.sought:
                state.ledger.unseek(line.sought, line.pods, each.key)


def _stand(state: AdmitterState, uid: str) -> None:
    each, gang = state.unplaced[uid], state.gangs[uid]
    asks = asks_of(state, gang)
    rank = queued_as(state.queued, uid).rank
    each.key, each.place = repr(asks), LinePlace(not each.owed, *rank, each.ref.key, uid)
    line = state.lines.get(each.key)
    if line is None:
        line = state.lines[each.key] = Line()
        hardest = max(asks, key=_hardness, default=None)
        if hardest is not None:
            line.pods = hardest.count
            line.sought = state.ledger.seek(hardest.request, hardest.rules, line.pods, each.key)
    insort(line.places, each.place)


def _hardness(ask: Ask) -> tuple[int, int, str]:
    return ask.request.get(GPU, 0), ask.request.get("cpu", 0), ask.name


def chosen(state: AdmitterState) -> None:
    """The mode of placement has changed: jobs may ask something else of the nodes."""
    for uid in [*state.unplaced]:
        observed(state, uid)


# --- decide -------------------------------------------------------------------------------------------------------


def retries_due(
    state: AdmitterState, view: View, growing: Growing
) -> Iterator[PlacesFound | NodesClaimed | NodesClaimEnded]:
    """The jobs that are tried again, else a job that claims nodes. ``view``: without the places kept for others."""
    if not state.unplaced:
        return
    mode = state.placement.strategy
    if mode is None:
        yield from (_found(each) for uid, each in state.unplaced.items() if not _rests(state, uid))
        return
    keys = [*state.lines] if growing.pools else _with_room(state)
    heads = [(state.lines[key].places[0], key, 0) for key in keys]
    heapify(heads)
    if heads:
        suppose(state, view)
    claims_due = True
    left: dict[str, int] = {}
    """kind of pod -> no more of it have room beside those that are tried"""
    while heads:
        head, key, index = heappop(heads)
        kind, each, line = state.lines[key].sought, state.unplaced[head.uid], state.lines[key].places
        if state.gangs[head.uid].waits:
            fits = has_room(state, view, each)
            if not fits and kind and not growing.pools:
                left[kind] = view.room_for(state.ledger.sought[kind])
                heads = [entry for entry in heads if _may_fit(state.lines[entry[1]], left)]
                heapify(heads)
            if not fits and not _may_grow(state, view, each, growing):
                continue  # Nor have those behind it, with the same request.
            claims_due = False
            yield _found(each, growth=not fits)
        if index + 1 < len(line) and _may_fit(state.lines[key], left):
            heappush(heads, (line[index + 1], key, index + 1))
    if claims_due:
        yield from nodeclaims.of_unplaced(state)


def _may_fit(line: Line, left: Mapping[str, int]) -> bool:
    """``left``: kind of pod -> no more of it have room."""
    return line.pods <= left.get(line.sought, line.pods)


def _with_room(state: AdmitterState) -> list[str]:
    """The lines for whose pods there may be room on the nodes."""
    without_pods = [repr([])] if repr([]) in state.lines else []
    return [key for each in state.ledger.sought.values() for key in each.within()] + without_pods


def suppose(state: AdmitterState, view: View, *, only_owed: bool = False) -> None:
    """As if those that are tried again had been admitted and had their places.

    ``only_owed``: those that are guaranteed what they ask for.
    """
    mode = state.placement.strategy
    if mode is None:
        return
    for uid, (until, owed) in state.found.items():
        if (owed or not only_owed) and until > state.now and uid in state.gangs:
            place(view, asks_of(state, state.gangs[uid]), mode)


def owed_first(state: AdmitterState, view: View) -> Iterator[PlacesFound]:
    """Those that are guaranteed what they ask for, and have room now, are tried again. Their room is taken in the view,
    as is that of those that are tried already.
    """
    suppose(state, view, only_owed=True)
    for key in _with_room(state):
        for head in state.lines[key].places:
            each = state.unplaced[head.uid]
            if head.borrows or not state.gangs[head.uid].waits or not has_room(state, view, each):
                break
            yield _found(each)


def claimed(state: AdmitterState, view: View, uid: str) -> Iterator[PlacesFound]:
    """The job that has claimed nodes is tried again when it has its places, before others have what is kept for it."""
    mark, each = view.mark(), state.unplaced[uid]
    if state.gangs[uid].waits and has_room(state, view, each):
        yield _found(each)
    view.undo(mark)


def has_room(state: AdmitterState, view: View, each: Unplaced) -> bool:
    """Whether it has a place for all of its pods; they are taken then."""
    uid, mode = each.ref.uid, state.placement.strategy
    return not _rests(state, uid) and (mode is None or place(view, asks_of(state, state.gangs[uid]), mode) is None)


def _may_grow(state: AdmitterState, view: View, each: Unplaced, growing: Growing) -> bool:
    """Whether node pools would give it what it lacks."""
    if not growing.pools or state.now < state.grow_from.at.get(each.ref.uid, 0):
        return False
    return isinstance(growing.plan(view, asks_of(state, state.gangs[each.ref.uid]), each.ref.uid, ()), Growth)


def _found(each: Unplaced, *, growth: bool = False) -> PlacesFound:
    return PlacesFound(cause=each.cause, ref=each.ref, attempt=each.attempt, growth=growth)


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When a job may be tried again, or claim nodes, though nothing happens."""
    if not state.unplaced:
        return
    times = [at for at, _ in islice(state.grow_from.after(state.now), 1)]
    if state.placement.strategy is not None:
        times += [until for until, _ in state.found.values()]
        times += [at for at, uid in nodeclaims.unplaced_may_claim(state) if uid not in state.pods.claims]
    yield from [at for at in times if at > state.now]
