"""How fast queues move, and what that lets a waiting job expect.

Measured are the times between one admission from a queue and the next while somebody waited there: only those say how
fast it moves, for an idle queue admits nobody. Whoever stands at position p waits for p of them in a row; what such
rows have taken in the past is what it may take now. Pure, in integers (ms).
"""

from __future__ import annotations

from collections import deque
from math import isqrt

from msgspec import Struct

from muster.core.queueing.book import Book
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, WorkloadDequeued

KEPT = 200
"""The newest intervals of a queue that are kept: how fast it moved long ago says little."""
ENOUGH = 5
"""Rows that must have been seen before anything is said."""


class Estimate(Struct, frozen=True):
    """What a wait may still take, ms: 8 of 10 should end between ``low`` and ``high``; ``middle`` is the median seen.

    All three are -1 where nothing can be said, and ``why`` says why.
    """

    low: int = -1
    middle: int = -1
    high: int = -1
    rows: int = 0
    """How many rows of admissions it rests on."""
    intervals: int = 0
    why: str = ""

    @property
    def known(self) -> bool:
        return self.middle >= 0


class Pace:
    """Listens to the decisions of a log and keeps how fast each queue moves."""

    def __init__(self) -> None:
        self.intervals: dict[str, deque[int]] = {}
        """queue -> ms between admissions while somebody waited, the newest last"""
        self.last: dict[str, int] = {}
        """queue -> log time of its last admission, as long as somebody has waited there ever since"""

    def note(self, event: Event, book: Book, now: int) -> None:
        """Hear one event after its commit was folded; ``book``: who waits by then."""
        if isinstance(event, GangAdmitted):
            queue = event.queue
            if queue in self.last:
                self.intervals.setdefault(queue, deque(maxlen=KEPT)).append(now - self.last[queue])
            self.last[queue] = now
        elif isinstance(event, WorkloadDequeued):
            queue = event.queue
        else:
            return
        if not book.length(queue):
            self.last.pop(queue, None)

    def expect(self, queue: str, position: int, now: int) -> Estimate:
        """What somebody at a position (from 1) may expect, given how long ago the last admission was."""
        seen = list(self.intervals.get(queue, ()))
        rows = [sum(seen[first : first + position]) for first in range(len(seen) - position + 1)]
        if len(rows) < ENOUGH:
            why = (
                f"{len(seen)} times one admission from this queue followed another while somebody waited; "
                f"{position + ENOUGH - 1} are needed for position {position}"
            )
            return Estimate(rows=len(rows), intervals=len(seen), why=why)
        gone = now - self.last[queue] if queue in self.last else 0
        left = sorted(row - gone for row in rows if row > gone)
        if len(left) < ENOUGH:
            why = "it has taken longer already than nearly everything that was seen of this queue"
            return Estimate(rows=len(rows), intervals=len(seen), why=why)
        low, high = _likely(seen, position)
        return Estimate(
            low=min(_quantile(left, 1), max(0, low - gone)),
            middle=_quantile(left, 5),
            high=max(_quantile(left, 9), high - gone),
            rows=len(left),
            intervals=len(seen),
        )


def _likely(seen: list[int], position: int) -> tuple[int, int]:
    """The span in which 8 of 10 rows would lie if the times were independent, the wider the fewer there are."""
    count, total = len(seen), sum(seen)
    spread = sum((each * count - total) ** 2 for each in seen) // (count * count * max(count - 1, 1))
    half = isqrt(spread * position * (count + position) // count) * 128 // 100
    middle = total * position // count
    return middle - half, middle + half


def _quantile(ordered: list[int], tenths: int) -> int:
    """The value that so many tenths of the ordered values do not exceed."""
    return ordered[max(0, (len(ordered) * tenths + 9) // 10 - 1)]
