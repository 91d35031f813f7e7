"""Queues with refused jobs that may fit by now, in the order of their turns; no other queue is looked at.

The queues of a tree of fair shares take turns with other queues as a single member, in an order of their own. A queue
joins when its turn may come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Protocol

from muster.core.queueing.book import Place, RefusalSlot, Rooms
from muster.core.queueing.queueorder import KaiOrder, Lineup, Turn
from muster.core.queueing.queues import Job, Queues
from muster.core.queueing.sorterstate import SorterState
from muster.core.quota.demand import Scratch
from muster.model.keys import root_of

# --- openings ---------------------------------------------------------------------------------------------------------


FEW = 8
"""Where fewer than 1/8 of the queues come into question, only these are sorted; otherwise the kept order is read."""

Slots = list[tuple[str, RefusalSlot]]


def slots_of(queues: Queues, queue: str, rooms: Rooms) -> Slots:
    """(path, slot) with possible room for the smallest ask of the queue."""
    return [
        (path, slot)
        for path in queues.book.roomy
        for slot in queues.book.parked[path].values()
        if queue in slot.asks and rooms.takes(queue, path, slot, slot.asks[queue][0][0])
    ]


def roomy(queues: Queues, among: Callable[[str], bool]) -> Slots:
    """(path, slot) with possible room for some ask, at the paths in ``among``."""
    return [(path, slot) for path in queues.book.roomy if among(path) for slot in queues.book.parked[path].values()]


def queues_with_room(queues: Queues, lineup: Lineup, rooms: Rooms, scratch: Scratch) -> Iterator[tuple[Turn, str]]:
    """(turn, queue) in order, while room is left after the charges in ``scratch``. The caller adds to ``scratch``
    between two items. Queues of trees of fair shares are left out.
    """
    slots = roomy(queues, lambda path: not queues.ledger.by_shares(path))
    if not slots:
        return
    own = sorted((lineup.turns[queue], queue) for queue in of_their_own(queues, slots, rooms))
    yield from merge(own, _others(lineup, slots, rooms, scratch))


def of_their_own(queues: Queues, slots: Slots, rooms: Rooms) -> dict[str, None]:
    """The queues against which less quota is held: queues of claimants, and queues that may be owed the quota held for
    age, or proposed for borrowers.
    """
    below, inner = queues.ledger.below, queues.ledger.inner_below
    own: dict[str, None] = {}
    for path, slot in slots:
        for queue in rooms.claimants:
            if queue in slot.asks and rooms.takes(queue, path, slot, slot.asks[queue][0][0]):
                own[queue] = None
        owed = rooms.aged_at(path, slot) + rooms.lent_at(path, slot)
        for ask, queue in slot.first(rooms.free(path, slot) + owed) if owed else ():
            if (inner or queue in below) and rooms.takes(queue, path, slot, ask):
                own[queue] = None
    return own


def _others(lineup: Lineup, slots: Slots, rooms: Rooms, scratch: Scratch) -> Iterator[tuple[Turn, str]]:
    """The queues against which all held quota counts."""
    within = [slot.first(rooms.free(path, slot, scratch)) for path, slot in slots]
    order, still_open = lineup.order, open_slots(slots, rooms, scratch)
    if sum(map(len, within)) * FEW < len(order):
        order = sorted({(lineup.turns[queue], queue) for asks_within in within for _, queue in asks_within})
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
    """(slot, free amount) with room for the smallest ask of the slot."""
    rooms_left = ((slot, rooms.free(path, slot, scratch)) for path, slot in slots)
    return [(slot, free) for slot, free in rooms_left if slot.least[0][0] <= free]


# --- the turns of KAI queues ------------------------------------------------------------------------------------------


class Ranked(Protocol):
    """A member in the order of turns."""

    queue: str


class QueueTurn(Protocol):
    """A queue during the choice of candidates."""

    heads: list[tuple[Place, str]]

    def has_room(self, scratch: Scratch) -> bool: ...

    def advance(self, scratch: Scratch) -> bool: ...

    def request(self) -> Mapping[str, int]: ...

    def take(self) -> Job: ...


class SharedTurns:
    """The queues of a tree of fair shares, as a single member with an own order inside."""

    def __init__(
        self,
        state: SorterState,
        root: str,
        turns: Mapping[str, QueueTurn],
        fresh: Sequence[Job],
        turn_of: Callable[[str], QueueTurn | None],
        rooms: Rooms,
    ) -> None:
        """``turns``: of queues that take part whatever is free; further queues join at their turn."""
        self.state = state
        self.queue = root
        self.turns: dict[str, QueueTurn | None] = {**turns}
        self.turn_of = turn_of
        self.places = KaiOrder(state.queues, state.lineup.shared, root, fresh, self._sends)
        self.rooms = rooms
        self.slots = roomy(state.queues, lambda path: root_of(path) == root)
        self.own = of_their_own(state.queues, self.slots, rooms)
        self.open = open_slots(self.slots, rooms, Scratch())
        self.scratch = Scratch()
        self.first = ""

    def __lt__(self, other: Ranked) -> bool:
        return self.queue < other.queue

    def order(self, scratch: Scratch) -> Turn:
        """The age of the first job of the first queue."""
        return (0, 0, 0, self._turn().heads[0][0].rank)

    def _turn(self) -> QueueTurn:
        turn = self.turns[self.first]
        assert turn is not None, f"{self.first} takes its turn without one"
        return turn

    def at_first(self) -> Turn:
        return (0, 0, 0, 0)

    def has_room(self, _scratch: Scratch) -> bool:
        return True

    def advance(self, scratch: Scratch) -> bool:
        """Find the first queue now; False when none is left."""
        self.scratch, self.open = scratch, open_slots(self.slots, self.rooms, scratch)
        while first := self.places.first(self.queue, (self.state.queues.proposed, scratch)):
            self.first = first
            head = self._turn().heads[0]
            if self._turn().advance(scratch) and self._turn().heads[0] == head:
                return True
            for queue in self.turns:
                self.places.changed(queue)
        return False

    def _sends(self, queue: str) -> Mapping[str, int] | None:
        """The request of the next job of a queue; None where no job may fit."""
        if queue not in self.turns:
            fits = (slot.asks[queue][0][0] <= free for slot, free in self.open if queue in slot.asks)
            if queue not in self.own and not any(fits):
                return None
            self.turns[queue] = self.turn_of(queue)
        turn = self.turns[queue]
        if turn is None or not turn.has_room(self.scratch) or not turn.advance(self.scratch):
            return None
        return turn.request()

    def take(self) -> Job:
        self.places.changed(self.first)
        return self._turn().take()
