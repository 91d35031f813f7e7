"""Which queues may have a refused job that fits by now, in the order in which they take turns; the others are not
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge

from muster.core.queueing.book import RefusalSlot, Rooms
from muster.core.queueing.lineup import Lineup, Turn
from muster.core.queueing.queues import Queues
from muster.core.quota.demand import Scratch

FEW = 8
"""Where less than one part in this many of the queues comes into question, they are sorted; else their order is gone
through."""

Slots = list[tuple[str, RefusalSlot]]


def slots_of(queues: Queues, queue: str, rooms: Rooms) -> Slots:
    """(path, what is parked there) where there may be room for the smallest ask of a queue."""
    return [
        (path, slot)
        for path in queues.book.roomy
        for slot in queues.book.parked[path].values()
        if queue in slot.asks and rooms.takes(queue, path, slot, slot.asks[queue][0][0])
    ]


def roomy(queues: Queues, among: Callable[[str], bool]) -> Slots:
    """(path, what is parked there) where there may be room for some of it."""
    return [(path, slot) for path in queues.book.roomy if among(path) for slot in queues.book.parked[path].values()]


def queues_with_room(queues: Queues, lineup: Lineup, rooms: Rooms, scratch: Scratch) -> Iterator[tuple[Turn, str]]:
    """(turn, queue) in order, as long as there is room beside ``scratch``, which grows meanwhile. Without the
    queues of trees of fair shares.
    """
    slots = roomy(queues, lambda path: not queues.ledger.by_shares(path))
    if not slots:
        return
    own = sorted((lineup.turns[queue], queue) for queue in of_their_own(queues, slots, rooms))
    yield from merge(own, _others(lineup, slots, rooms, scratch))


def of_their_own(queues: Queues, slots: Slots, rooms: Rooms) -> dict[str, None]:
    """The queues for which less is held than for others: those of claimants, and those that may be owed what is held
    for age.
    """
    below, inner = queues.ledger.below, queues.ledger.inner_below
    found: dict[str, None] = {}
    for path, slot in slots:
        for queue in rooms.claimants:
            if queue in slot.asks and rooms.takes(queue, path, slot, slot.asks[queue][0][0]):
                found[queue] = None
        aged = rooms.aged_at(path, slot)
        for ask, queue in slot.first(rooms.free(path, slot) + aged) if aged else ():
            if (inner or queue in below) and rooms.takes(queue, path, slot, ask):
                found[queue] = None
    return found


def _others(lineup: Lineup, slots: Slots, rooms: Rooms, scratch: Scratch) -> Iterator[tuple[Turn, str]]:
    """Those for which all counts that is held for others."""
    within = [slot.first(rooms.free(path, slot, scratch)) for path, slot in slots]
    order, still_open = lineup.order, open_slots(slots, rooms, scratch)
    if sum(map(len, within)) * FEW < len(order):
        order = sorted({(lineup.turns[queue], queue) for each in within for _, queue in each})
    for entry in order:
        for slot, free in still_open:
            asks = slot.asks.get(entry[1])
            if asks is not None and asks[0][0] <= free:
                yield entry
                still_open = open_slots(slots, rooms, scratch)
                break
        if not still_open:
            return


def open_slots(slots: Slots, rooms: Rooms, scratch: Scratch) -> list[tuple[RefusalSlot, int]]:
    """(what is parked, how much is free for it), where that is enough for the smallest ask."""
    found = ((slot, rooms.free(path, slot, scratch)) for path, slot in slots)
    return [(slot, free) for slot, free in found if slot.least[0][0] <= free]
