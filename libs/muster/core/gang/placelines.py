"""Unplaced jobs: jobs that released their quota for want of places, and the choice of jobs with room by now.

The jobs wait in lines, a line per request. In a line, jobs within a guarantee go first, then by priority, then by age.
As many jobs are tried again as have room, beside all other lines. For a few seconds the other waiting jobs leave the
room to these jobs. A job that has quota comes before all unplaced jobs, with an exception: unplaced jobs within a
guarantee come before a borrower.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice

from msgspec.structs import replace

from muster.core.gang import nodeclaims
from muster.core.gang.admitterstate import AdmitterState, Line, LinePlace, QueuedAs, Reservation, Unplaced, queued_as
from muster.core.gang.jobplaces import asks_of
from muster.core.gang.newnodes import Growing
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.base import Cause
from muster.events.decisions import (
    GangDeferred,
    PlacesFound,
    QuotaDenied,
    QuotaReleased,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.reasons import after_release
from muster.model.keys import Position
from muster.model.placing import GPU
from muster.model.pools import Growth
from muster.model.quota import Flavors, OnFlavors, flavors_text

FOUND_MS = 5_000
"""The time for which other jobs leave the room to a job tried again: its queue may not admit the job."""
ROUNDS = 3
ROUND_MS = 60_000
"""The rest of a job after ``ROUNDS`` searches without a place on unchanged nodes."""
GROW_AGAIN_MS = 60_000
"""The time until nodes of a pool are waited for again, after such nodes did not come."""


def queued(state: AdmitterState, at: Position, event: WorkloadQueued) -> None:
    """The job is tried again, in its place in the queue."""
    uid, rank = event.ref.uid, (-event.priority, event.rank or event.queued_at)
    before = queued_as(state.queued, uid)
    state.queued[uid] = replace(
        before,
        came=before.came or at.at,
        attempt=event.attempt,
        rank=rank,
        nodes=event.nodes,
        flavors=event.flavors,
        turn=event.turn,
        others=event.others,
    )
    back_to(state, uid, event.flavors)
    _passes(state, uid)
    if (gang := state.gangs.get(uid)) is not None and (event.nodes or gang.nodes):
        gang.nodes = event.nodes
        for pods in gang.steered:
            state.ledger.learn(pods.rules)


def dequeued(state: AdmitterState, _at: Position, event: WorkloadDequeued) -> None:
    forget(state, event.ref.uid)
    _over(state, event.ref.uid, event.attempt)


def _over(state: AdmitterState, uid: str, attempt: int) -> None:
    queued = state.queued.get(uid)
    if queued is not None and queued.attempt <= attempt:
        del state.queued[uid]


def denied(state: AdmitterState, _at: Position, event: QuotaDenied) -> None:
    """The job waits for quota from now on."""
    state.found.pop(event.ref.uid, None)


def released(state: AdmitterState, at: Position, event: QuotaReleased, before: Reservation | None) -> None:
    """A job without a place joins a line after the release of its quota, unless the job is queued under a newer
    attempt.

    ``before``: the reservation of the job, if any.
    """
    uid, again = event.ref.uid, queued_as(state.queued, event.ref.uid).attempt > event.attempt
    drop(state, uid)
    state.found.pop(uid, None)
    if after_release(event.reason) != "unplaced" or uid not in state.gangs or before is None or again:
        _over(state, uid, event.attempt)
        return
    state.grow_from.put(uid, at.at + GROW_AGAIN_MS if before.in_vain else 0)
    mine = queued_as(state.queued, uid)
    state.unplaced[uid] = Unplaced(
        event.ref,
        event.attempt,
        Cause(at.seq, at.item),
        owed=event.owed,
        flavors=mine.flavors,
        nodes=mine.nodes,
        turn=mine.turn,
    )
    _goes_round(state, uid, at.at)
    _stand(state, state.unplaced[uid])


def _goes_round(state: AdmitterState, uid: str, now: int) -> None:
    """Count another search without a place. ``now``: log time (ms)."""
    queued, moves = state.queued.setdefault(uid, QueuedAs()), state.ledger.moves
    queued.rounds = queued.rounds + 1 if queued.moves == moves else 1
    queued.moves, queued.rests_until = moves, now + ROUND_MS if queued.rounds >= ROUNDS else 0
    if queued.rests_until:
        state.grow_from.put(uid, queued.rests_until)


def _rests(state: AdmitterState, uid: str) -> bool:
    queued = queued_as(state.queued, uid)
    return queued.rests_until > state.now and queued.moves == state.ledger.moves


def found(state: AdmitterState, at: Position, event: PlacesFound) -> None:
    uid, gang = event.ref.uid, state.gangs.get(event.ref.uid)
    unplaced = state.unplaced.get(uid)
    if unplaced is not None and unplaced.flavors == event.flavors:
        drop(state, uid)
    else:
        unplaced = back_to(state, uid, event.flavors)
    if gang is not None and unplaced is not None and unplaced.flavors:
        gang.nodes = unplaced.nodes  # Until the job is queued again.
    state.found = {uid: room for uid, room in state.found.items() if room[0] > at.at}
    state.found[uid] = at.at + FOUND_MS, unplaced is not None and unplaced.owed


def observed(state: AdmitterState, uid: str) -> None:
    """The request of the job may have changed."""
    unplaced, grow_from = state.unplaced.get(uid), state.grow_from.at.get(uid, 0)
    if unplaced is not None:
        drop(state, uid)
        state.grow_from.put(uid, grow_from)
        state.unplaced[uid] = unplaced
        _stand(state, unplaced)
    for passed in state.passed.get(uid, _NONE).values():
        _leaves(state, passed)
        _stand(state, passed)


_NONE: Mapping[str, Unplaced] = {}


def drop(state: AdmitterState, uid: str) -> None:
    """The job no longer waits for room on the nodes under its last attempt."""
    unplaced = state.unplaced.pop(uid, None)
    if unplaced is not None:
        state.grow_from.put(uid, 0)
        _leaves(state, unplaced)


def forget(state: AdmitterState, uid: str) -> None:
    """The job waits for room on no nodes."""
    drop(state, uid)
    for passed in state.passed.pop(uid, _NONE).values():
        _leaves(state, passed)


def _leaves(state: AdmitterState, unplaced: Unplaced) -> None:
    line = state.lines[unplaced.key]
    line.places.remove(unplaced.place)
    if not line.places:
        del state.lines[unplaced.key]
        if line.sought:
            state.ledger.unseek(line.sought, line.pods, unplaced.key)


def _passes(state: AdmitterState, uid: str) -> None:
    """The job is queued again: the room on the nodes of its former flavors still counts for a job with other flavors
    now.
    """
    unplaced = state.unplaced.get(uid)
    if unplaced is None or unplaced.flavors == queued_as(state.queued, uid).flavors or uid not in state.gangs:
        drop(state, uid)
        return
    del state.unplaced[uid]
    state.passed.setdefault(uid, {})[flavors_text(unplaced.flavors)] = unplaced


def deferred(state: AdmitterState, at: Position, event: GangDeferred) -> None:
    """The job waits for room on the nodes of further flavors, too."""
    uid, cause = event.ref.uid, Cause(at.seq, at.item)
    reservation = state.reservations.get(uid)
    if reservation is None or reservation.attempt != event.attempt or uid not in state.gangs:
        return
    others = {flavors_text(other.flavors): other for other in queued_as(state.queued, uid).others}
    for flavors in event.without:
        back_to(state, uid, flavors)
        other = others.get(flavors_text(flavors), OnFlavors(flavors))
        passed = Unplaced(event.ref, event.attempt, cause, owed=reservation.owed, flavors=flavors)
        passed.nodes, passed.turn = other.nodes, other.turn
        state.passed.setdefault(uid, {})[flavors_text(flavors)] = passed
        _stand(state, passed)


def back_to(state: AdmitterState, uid: str, flavors: Flavors) -> Unplaced | None:
    """The job is tried on the nodes of flavors again: it no longer waits for room there."""
    passed = state.passed.get(uid, {})
    unplaced = passed.pop(flavors_text(flavors), None) if passed else None
    if unplaced is not None:
        _leaves(state, unplaced)
        if not passed:
            del state.passed[uid]
    return unplaced


def _asks(state: AdmitterState, unplaced: Unplaced) -> list[Ask]:
    gang = state.gangs[unplaced.ref.uid]
    return asks_of(state, replace(gang, nodes=unplaced.nodes) if unplaced.flavors else gang)


def _stand(state: AdmitterState, unplaced: Unplaced) -> None:
    uid, asks = unplaced.ref.uid, _asks(state, unplaced)
    rank = queued_as(state.queued, uid).rank
    unplaced.key, text = repr(asks), flavors_text(unplaced.flavors)
    unplaced.place = LinePlace(not unplaced.owed, *rank, unplaced.ref.key, uid, unplaced.turn, text)
    line = state.lines.get(unplaced.key)
    if line is None:
        line = state.lines[unplaced.key] = Line()
        hardest = max(asks, key=_hardness, default=None)
        if hardest is not None:
            line.pods = hardest.count
            line.sought = state.ledger.seek(hardest.request, hardest.rules, line.pods, unplaced.key)
    insort(line.places, unplaced.place)


def _hardness(ask: Ask) -> tuple[int, int, str]:
    return ask.request.get(GPU, 0), ask.request.get("cpu", 0), ask.name


def chosen(state: AdmitterState) -> None:
    """The mode of placement has changed: jobs may ask something else of the nodes."""
    for uid in dict.fromkeys((*state.unplaced, *state.passed)):
        observed(state, uid)


# --- decide -------------------------------------------------------------------------------------------------------


def retries_due(
    state: AdmitterState, view: View, growing: Growing
) -> Iterator[PlacesFound | NodesClaimed | NodesClaimEnded]:
    """The jobs to try again; without such jobs, the nodes claimed by an unplaced job. ``view``: without the places kept
    for other jobs.
    """
    if not (state.unplaced or state.passed):
        return
    mode = state.placement.strategy
    if mode is None:
        passed = (unplaced for mine in state.passed.values() for unplaced in mine.values())
        everyone = (*state.unplaced.values(), *passed)
        yield from (_found(unplaced) for unplaced in everyone if not _rests(state, unplaced.ref.uid))
        return
    keys = [*state.lines] if growing.pools else _with_room(state)
    heads = [(state.lines[key].places[0], key, 0) for key in keys]
    heapify(heads)
    if heads:
        suppose(state, view)
    claims_due = True
    left: dict[str, int] = {}
    """kind of pod -> the number of pods with room beside the jobs tried again"""
    again: set[str] = set()
    while heads:
        head, key, index = heappop(heads)
        kind, unplaced, line = state.lines[key].sought, _in_line(state, head), state.lines[key].places
        if _may_be_tried(state, head.uid) and head.uid not in again:
            fits = has_room(state, view, unplaced)
            if not fits and kind and not growing.pools:
                left[kind] = view.room_for(state.ledger.sought[kind])
                heads = [entry for entry in heads if _may_fit(state.lines[entry[1]], left)]
                heapify(heads)
            if not fits and not _may_grow(state, view, unplaced, growing):
                continue  # Later jobs of the line have no room either.
            claims_due = False
            again.add(head.uid)
            yield _found(unplaced, growth=not fits)
        if index + 1 < len(line) and _may_fit(state.lines[key], left):
            heappush(heads, (line[index + 1], key, index + 1))
    if claims_due:
        yield from nodeclaims.of_unplaced(state)


def _in_line(state: AdmitterState, head: LinePlace) -> Unplaced:
    unplaced = state.unplaced.get(head.uid)
    return unplaced if unplaced is not None and unplaced.place == head else state.passed[head.uid][head.flavors]


def _may_be_tried(state: AdmitterState, uid: str) -> bool:
    """Whether a job asks to run and has no quota: a job with quota has its own try. A job tried again waits for its
    queue, and takes no room under another flavor meanwhile.
    """
    until, _ = state.found.get(uid, (0, False))
    return until <= state.now and state.gangs[uid].waits and uid not in state.reservations and uid not in state.admitted


def _may_fit(line: Line, left: Mapping[str, int]) -> bool:
    """``left``: kind of pod -> the number of pods with room."""
    return line.pods <= left.get(line.sought, line.pods)


def _with_room(state: AdmitterState) -> list[str]:
    """The lines with possible room for their pods on the nodes."""
    without_pods = [repr([])] if repr([]) in state.lines else []
    return [key for sought in state.ledger.sought.values() for key in sought.within()] + without_pods


def suppose(state: AdmitterState, view: View, *, only_owed: bool = False) -> None:
    """Take the places of the jobs tried again, as if these jobs had been admitted.

    ``only_owed``: only jobs within a guarantee.
    """
    mode = state.placement.strategy
    if mode is None:
        return
    for uid, (until, owed) in state.found.items():
        if (owed or not only_owed) and until > state.now and uid in state.gangs:
            place(view, asks_of(state, state.gangs[uid]), mode)


def owed_first(state: AdmitterState, view: View) -> Iterator[PlacesFound]:
    """Unplaced jobs within a guarantee and with room now are tried again. The view then lacks their room, and the room
    of jobs already tried again.
    """
    suppose(state, view, only_owed=True)
    again: set[str] = set()
    heads = [(state.lines[key].places[0], key, 0) for key in _with_room(state)]
    heapify(heads)
    while heads and not heads[0][0].borrows:
        head, key, index = heappop(heads)
        if head.uid not in again:
            unplaced = _in_line(state, head)
            if not _may_be_tried(state, head.uid) or not has_room(state, view, unplaced):
                continue
            again.add(head.uid)
            yield _found(unplaced)
        if index + 1 < len(state.lines[key].places):
            heappush(heads, (state.lines[key].places[index + 1], key, index + 1))


def claimed(state: AdmitterState, view: View, uid: str) -> Iterator[PlacesFound]:
    """A job with claimed nodes is tried again once all its pods have places, before the kept room
    goes to other jobs.
    """
    mark, unplaced = view.mark(), state.unplaced[uid]
    if state.gangs[uid].waits and has_room(state, view, unplaced):
        yield _found(unplaced)
    view.undo(mark)


def has_room(state: AdmitterState, view: View, unplaced: Unplaced) -> bool:
    """Whether all pods of the job have a place; such places are then taken in the view."""
    uid, mode = unplaced.ref.uid, state.placement.strategy
    return not _rests(state, uid) and (mode is None or place(view, _asks(state, unplaced), mode) is None)


def _may_grow(state: AdmitterState, view: View, unplaced: Unplaced, growing: Growing) -> bool:
    """Whether node pools would add the missing nodes."""
    if not growing.pools or state.now < state.grow_from.at.get(unplaced.ref.uid, 0):
        return False
    return isinstance(growing.plan(view, _asks(state, unplaced), unplaced.ref.uid, ()), Growth)


def _found(unplaced: Unplaced, *, growth: bool = False) -> PlacesFound:
    return PlacesFound(
        cause=unplaced.cause, ref=unplaced.ref, attempt=unplaced.attempt, growth=growth, flavors=unplaced.flavors
    )


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When a job may be tried again, or claim nodes, though nothing happens."""
    if not (state.unplaced or state.passed):
        return
    times = [at for at, _ in islice(state.grow_from.after(state.now), 1)]
    if state.placement.strategy is not None:
        times += [until for until, _ in state.found.values()]
        times += [at for at, uid in nodeclaims.unplaced_may_claim(state) if uid not in state.pods.claims]
    yield from [at for at in times if at > state.now]
