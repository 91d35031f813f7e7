"""Sets of jobs that may be evicted, and how two of them compare."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from muster.core.quota.reclaim import Run, Turn

Rank = tuple[tuple[int, ...], int, bool]
"""How late a job is evicted, whatever that costs: the priorities of its queue, level by level, and its own, and whether
it goes last among its equals.
"""

LEAST: Rank = ((), -(2**62), False)

FEW = 12
"""Up to so many candidates all of their sets are looked at,"""
MAX_EXACT = 1_500
"""so many sets at the most,"""
MAX_MOVED = 250
"""and so many where some may only move: each of these is placed elsewhere, too."""


class Cost(NamedTuple):
    """What a set of jobs costs: the rank of its last, and what they lose; of those that are equal the queue whose turn
    it is, then the youngest.
    """

    rank: Rank = LEAST
    price: int = 0
    runs: tuple[tuple[Turn, Run], ...] = ()
    """Those first that come last in turn."""


class Found(NamedTuple):
    """The victims, in the order in which they were chosen; none where none were found."""

    uids: list[str]
    gave_up: bool = False
    """It was not looked at everything."""
    looked: bool = True
    """Some came into question by their queues."""
    moving: Container[str] = ()
    """Those of them that start again on other nodes, with their quota."""
    price: int = 0
    """What they lose: worth times ms."""


class Option(NamedTuple):
    """What it costs to have room for one pod on a node."""

    cost: Cost
    node: str
    uids: tuple[str, ...]


def cheapest(uids: Sequence[str], rank: Callable[[str], Rank], lost: Callable[[str], int]) -> Iterator[list[str]]:
    """All sets of some jobs but the empty one, those first in which the rank of the last is least, then the cheapest.

    ``uids``: in the order of their ranks and of their losses.
    """
    prices = [lost(uid) for uid in uids]
    heap: list[tuple[Rank, int, tuple[int, ...]]] = []

    def push(places: tuple[int, ...]) -> None:
        if places[-1] < len(uids):
            heappush(heap, (rank(uids[places[-1]]), sum(prices[at] for at in places), places))

    if uids:
        push((0,))
    while heap:
        _, _, places = heappop(heap)
        yield [uids[at] for at in places]
        push((*places, places[-1] + 1))
        push((*places[:-1], places[-1] + 1))


def is_worse(run: Run, priority: int, last: bool, youth: int, came: int, key: str) -> bool:
    """Whether a run, and all that follow in its queue, are suspended after one like this."""
    later = not last and (run.youth, run.came, run.key) > (youth, came, key)
    return run.priority > priority or (run.priority == priority and later)
