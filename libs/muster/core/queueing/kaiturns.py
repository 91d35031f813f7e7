"""The queues of a tree of fair shares, as one that takes turns with the others; they take theirs in an order of their
own, and each joins when it may be its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from muster.core.queueing.book import Place, Rooms
from muster.core.queueing.kaiorder import KaiOrder
from muster.core.queueing.lineup import Turn
from muster.core.queueing.openings import of_their_own, open_slots, roomy
from muster.core.queueing.queues import Job
from muster.core.queueing.state import SorterState
from muster.core.quota.demand import Scratch
from muster.model.keys import root_of


class Ranked(Protocol):
    """Whatever takes turns."""

    queue: str


class QueueTurn(Protocol):
    """One queue while candidates are being chosen."""

    heads: list[tuple[Place, str]]

    def has_room(self, scratch: Scratch) -> bool: ...

    def advance(self, scratch: Scratch) -> bool: ...

    def request(self) -> Mapping[str, int]: ...

    def take(self) -> Job: ...


class SharedTurns:
    """The queues of a tree of fair shares, as one that takes turns with the others, in an order of its own."""

    def __init__(
        self,
        state: SorterState,
        root: str,
        turns: Mapping[str, QueueTurn],
        fresh: Sequence[Job],
        turn_of: Callable[[str], QueueTurn | None],
        rooms: Rooms,
    ) -> None:
        """``turns``: of the queues that take part whatever is free; the others join when it is their turn."""
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
        """By the age of the job that is first."""
        return (0, 0, self._turn().heads[0][0].rank)

    def _turn(self) -> QueueTurn:
        turn = self.turns[self.first]
        assert turn is not None, f"{self.first} takes its turn without one"
        return turn

    def at_first(self) -> Turn:
        return (0, 0, 0)

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
        """The request of the job that a queue would send next; None where none may fit."""
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
