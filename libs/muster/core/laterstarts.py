"""Starts counted together, and the amounts of these that have passed a job: started before it, and came after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from muster.model.resources import Vector, add_into

LOOK_PART = 8
MOST_STARTS = 256
"""The jobs that wait are looked at after so many starts at the latest."""
ANY_PRIORITY = 1 << 31
"""No start has a higher priority."""


class LaterStart(Struct, frozen=True):
    """A start. ``number``: the place of the job in the order of coming."""

    priority: int
    number: int
    amounts: Vector


class Starts(Struct):
    """The starts since the last look at the jobs that wait."""

    begun: list[LaterStart] = field(default_factory=list)
    total: Vector = field(default_factory=dict)

    def add(self, start: LaterStart, limits: Mapping[str, int]) -> bool:
        """Whether it is time to look: an eighth of a limit has started, or ``MOST_STARTS`` jobs have."""
        self.begun.append(start)
        add_into(self.total, start.amounts)
        much = any(self.total.get(name, 0) * LOOK_PART >= limit for name, limit in limits.items() if limit)
        return much or len(self.begun) >= MOST_STARTS

    def passed(self) -> Callable[[int, int], Vector]:
        """The amounts that have passed a job, by its number and its priority."""
        by_priority: dict[int, list[LaterStart]] = {}
        for start in self.begun:
            by_priority.setdefault(start.priority, []).append(start)
        later = {priority: _from_each(begun) for priority, begun in by_priority.items()}

        def of(number: int, priority: int) -> Vector:
            amounts_passed: Vector = {}
            for other, (numbers, amounts) in later.items():
                at = bisect_right(numbers, number)
                if other <= priority and at < len(numbers):
                    add_into(amounts_passed, amounts[at])
            return amounts_passed

        return of


def _from_each(begun: list[LaterStart]) -> tuple[list[int], list[Mapping[str, int]]]:
    """(the numbers of starts, sorted; the sums of amounts from each number on)."""
    order = sorted(begun, key=lambda start: start.number)
    sums: list[Mapping[str, int]] = []
    total: Vector = {}
    for start in reversed(order):
        add_into(total, start.amounts)
        sums.append(dict(total))
    return [start.number for start in order], sums[::-1]
