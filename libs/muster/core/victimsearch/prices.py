"""Sets of jobs that may be evicted, their prices, and the cheapest.

Sets of jobs that may be evicted, and how two of them compare.

What it costs to evict jobs, and the jobs in that order, as far as they are looked at: the cheapest are found among
those that are alike, without a look at all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from muster.core.quota.candidates import FIRST, RESTART_MS, Alike, Candidates, GivingRules, Run, Search, Turn
from muster.core.quota.demand import counted
from muster.model.quota import is_device
from muster.model.resources import in_bytes

# --- sets -------------------------------------------------------------------------------------------------------------


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


# --- prices -----------------------------------------------------------------------------------------------------------


MILLION = 1_000_000

Dear = tuple[Rank, int, tuple[Turn, Run]]
"""How late one is evicted: its rank, what it loses, and when it is its queue's turn and its own."""


def worth(amounts: Mapping[str, int]) -> int:
    """What work is counted by: its GPUs and other devices; of those that have as many, and of those that have none, by
    its CPU. Where jobs lose it for a time, ms, the product is what they lose.
    """
    devices = sum(amount for name, amount in amounts.items() if is_device(name) and not in_bytes(name))
    return (devices << 20) + amounts.get("cpu", 0)


class Prices:
    """The prices of one search: what is asked once is not asked again."""

    def __init__(self, begun: Search, judge: GivingRules, candidates: Candidates) -> None:
        self._begun, self._judge, self._candidates = begun, judge, candidates
        self.runs: dict[str, Run] = {}
        """uid -> run, of those that were looked at."""
        asked = counted(begun.demand)
        self._short = {name: asked[name] for name in sorted(begun.names) if asked.get(name)}
        """What is asked for of the resources that are short."""
        self._turn = cache(lambda leaf: judge.turn(leaf, begun))
        self._lost: dict[str, int] = {}
        self._dear: dict[str, Dear] = {}

    @cached_property
    def _alike(self) -> Alike:
        found = self._candidates.alike
        if found is None:
            found = Alike()
            for leaf, runs in self._candidates.runs.items():
                for run in runs:
                    found.add(leaf, run, counted(self._begun.giver(run.uid).demand))
        return found

    def run(self, uid: str) -> Run | None:
        """A candidate; None where it is none."""
        run = self.runs.get(uid) or self._alike.runs.get(uid)
        if run is not None:
            self.runs[uid] = run
        return run

    def lost(self, uid: str) -> int:
        """The work that a suspension throws away: its worth times how long."""
        lost = self._lost.get(uid)
        if lost is None:
            run = self.run(uid)
            age = 0 if run is None or run.youth == FIRST else max(self._candidates.now + run.youth, 0) + RESTART_MS
            lost = self._lost[uid] = worth(self._begun.giver(uid).request) * age
        return lost

    def free(self, uid: str) -> None:
        """Nothing is lost by the choice of this candidate."""
        self._dear[uid], self._lost[uid] = (LEAST, 0, self.dear(uid)[2]), 0

    def amount(self, uid: str) -> int:
        """What it frees of the resources that are short, in millionths of the request, summed up."""
        amounts = counted(self._begun.giver(uid).demand)
        return sum(amounts.get(name, 0) * MILLION // asked for name, asked in self._short.items())

    def rank(self, uid: str) -> Rank:
        return self.dear(uid)[0]

    def dear(self, uid: str) -> Dear:
        found = self._dear.get(uid)
        if found is None:
            run = self.run(uid)
            assert run is not None, f"{uid} is no candidate"
            giver = self._begun.giver(uid)
            asks = self._judge.asks(giver.queue)
            turn, gives = self._turn(giver.queue) if asks else (), asks and self._judge.gives(giver, self._begun)
            found = self._dear[uid] = (self._rank(turn, run) if gives else self._first, self.lost(uid), (turn, run))
        return found

    def _rank(self, turn: Turn, run: Run) -> Rank:
        return tuple(priority for priority, _ in turn), run.priority, self._candidates.deprioritised(run.uid)

    @cached_property
    def _first(self) -> Rank:
        """Of one that may only move: no job keeps its place for its priority, so it goes with the first."""
        runs = ((leaf, runs[0]) for leaf, runs in self._candidates.runs.items() if runs and self._judge.asks(leaf))
        return min((self._rank(self._turn(leaf), run) for leaf, run in runs), default=LEAST)

    def for_each(self, uid: str) -> tuple[Rank, int]:
        """Its rank, and what it loses for each unit that it frees."""
        return self.rank(uid), self.lost(uid) // max(self.amount(uid), 1)

    def price(self, uids: Iterable[str]) -> int:
        return sum(map(self.lost, uids))

    def cost(self, uids: Sequence[str]) -> Cost:
        runs = sorted((self.dear(uid)[2] for uid in uids), reverse=True)
        return Cost(max(map(self.rank, uids)), self.price(uids), tuple(runs)) if uids else Cost()

    def in_order(self, uids: Iterable[str]) -> list[str]:
        """The smallest first: a queue has to be above what it keeps before each of them goes."""
        return sorted(uids, key=lambda uid: (self.amount(uid), self.dear(uid)[2][1]))

    # --- in order -------------------------------------------------------------------------------------------------

    def cheapest_first(self) -> Iterator[tuple[Cost, str]]:
        """The candidates in the order of their costs: no set of those that follow costs less than the next."""
        later: list[tuple[Dear, str]] = []
        for early, uid in self._early_first():
            while later and later[0][0] < early:
                yield self._alone(heappop(later)[1])
            if early == self.dear(uid):
                yield self._alone(uid)
            else:
                heappush(later, (self.dear(uid), uid))
        while later:
            yield self._alone(heappop(later)[1])

    def least_lost_first(self, most: Rank) -> Iterator[str]:
        """Those up to a rank, in the order of their losses; the rank of one is looked at when it is its turn."""
        heap: list[tuple[int, bool, Any, int, int, Sequence[Run]]]
        heap = [(self.lost(lot[0].uid), False, (), at, 0, lot) for at, lot in enumerate(self._lots())]
        heapify(heap)
        while heap:
            lost, ranked, _, at, place, lot = heap[0]
            uid = lot[place].uid
            if not ranked and (place or self._early(uid)[0] <= most):
                heapreplace(heap, (lost, True, self.dear(uid)[2], at, place, lot))
                continue
            if ranked and place + 1 < len(lot):
                heapreplace(heap, (self.lost(lot[place + 1].uid), False, (), at, place + 1, lot))
            else:
                heappop(heap)
            if ranked and self.rank(uid) <= most:
                yield uid

    def _alone(self, uid: str) -> tuple[Cost, str]:
        return self.cost((uid,)), uid

    def _early(self, uid: str) -> Dear:
        """The same, were it not one that goes last among its equals: by this those that are alike are in order."""
        (levels, priority, _), lost, run = self.dear(uid)
        return (levels, priority, False), lost, run

    def _lots(self) -> Iterator[Sequence[Run]]:
        for leaf, lots in self._alike.lots.items():
            if self._candidates.most or self._judge.asks(leaf):
                yield from lots.values()

    def _early_first(self) -> Iterator[tuple[Dear, str]]:
        """The candidates by their ranks and losses, as if none of them went last among its equals."""
        heap = [(self._early(lot[0].uid), at, 0, lot) for at, lot in enumerate(self._lots())]
        heapify(heap)
        while heap:
            found, at, place, lot = heap[0]
            if place + 1 < len(lot):
                heapreplace(heap, (self._early(lot[place + 1].uid), at, place + 1, lot))
            else:
                heappop(heap)
            yield found, lot[place].uid
