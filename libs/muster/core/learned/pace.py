"""How fast queues move, and what that lets a waiting job expect.

Measured are the times between one admission from a queue and the next while a job waited there: only those say how
fast it moves, for an idle queue admits no job. The job at position p waits for p of them in a row; what such
rows have taken in the past is what it may take now. Pure, in integers (ms).
"""

from __future__ import annotations

from math import isqrt
from typing import Literal

from msgspec import Struct, field

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
    """How many rows of admissions it rests on; 0 where none of that length was seen and the mean is drawn out."""
    intervals: int = 0
    """How many times one admission followed another while a job waited."""
    why: Literal["", "too_few", "overdue"] = ""

    @property
    def known(self) -> bool:
        return self.middle >= 0


class Pace(Struct):
    """How fast each queue moves."""

    intervals: dict[str, list[int]] = field(default_factory=dict)
    """queue -> ms between admissions while a job waited, the newest last"""
    last: dict[str, int] = field(default_factory=dict)
    """queue -> log time of its last admission, as long as a job has waited there ever since"""

    def admitted(self, queue: str, now: int, *, waiting: bool) -> None:
        """One was admitted from a queue; ``waiting``: a job still waits there."""
        if queue in self.last:
            kept = self.intervals.setdefault(queue, [])
            kept.append(now - self.last[queue])
            del kept[:-KEPT]
        self.last[queue] = now
        self.left(queue, waiting=waiting)

    def left(self, queue: str, *, waiting: bool) -> None:
        """One left a queue; an empty queue says nothing of how fast it moves."""
        if not waiting:
            self.last.pop(queue, None)

    def expect(self, queue: str, position: int, now: int) -> Estimate:
        """What a job at a position (from 1) may expect, given how long ago the last admission was."""
        seen = list(self.intervals.get(queue, ()))
        rows = [sum(seen[first : first + position]) for first in range(len(seen) - position + 1)]
        if len(seen) < ENOUGH:
            return Estimate(rows=len(rows), intervals=len(seen), why="too_few")
        gone = now - self.last[queue] if queue in self.last else 0
        low, high = _likely(seen, position)
        if len(rows) < ENOUGH:
            return _drawn_out(seen, position, gone, low, high)
        left = sorted(row - gone for row in rows if row > gone)
        if len(left) < ENOUGH:
            return Estimate(rows=len(rows), intervals=len(seen), why="overdue")
        return Estimate(
            low=min(_quantile(left, 1), max(0, low - gone)),
            middle=_quantile(left, 5),
            high=max(_quantile(left, 9), high - gone),
            rows=len(left),
            intervals=len(seen),
        )


def _drawn_out(seen: list[int], position: int, gone: int, low: int, high: int) -> Estimate:
    """So far back that no row of that length was seen: as many times the mean, within what independent times allow."""
    middle = sum(seen) * position // len(seen) - gone
    if middle <= 0:
        return Estimate(intervals=len(seen), why="overdue")
    return Estimate(low=max(0, low - gone), middle=middle, high=max(middle, high - gone), intervals=len(seen))


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
