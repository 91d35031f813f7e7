"""Sets of jobs that may be evicted, their prices, and the cheapest set.

The search reads candidates lazily, in the order of their prices. Candidates with equal amounts and priority are in one
sorted lot, so the search looks only at the cheapest of each lot.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from muster.core.quota.candidates import FIRST, RESTART_MS, Alike, Candidates, GivingRules, Run, Search, Turn
from muster.core.quota.demand import chain_of, counted
from muster.model.quota import is_device
from muster.model.resources import in_bytes

# --- sets -------------------------------------------------------------------------------------------------------------


Rank = tuple[tuple[int, ...], int]
"""How late a job is evicted, at any price: the priorities of the job's queue level by level, then the job's own."""

LEAST: Rank = ((), -(2**62))

FEW = 12
"""Up to this many candidates the exact search tries every set of candidates."""
MAX_EXACT = 1_500
"""The exact search tries at most this many sets."""
MAX_MOVED = 250
"""The limit of sets where some candidates may only move: for each set the moved jobs are placed elsewhere, too."""


class Cost(NamedTuple):
    """The cost of a set of jobs: the rank of the last job, then the lost work. Of equal sets the queue whose turn comes
    first goes first, then the youngest job.
    """

    rank: Rank = LEAST
    price: int = 0
    runs: tuple[tuple[Turn, Run], ...] = ()
    """In descending order: the job last in turn comes first."""


class Found(NamedTuple):
    """The victims, in the order of the choice; empty where the search found no victims."""

    uids: list[str]
    gave_up: bool = False
    """The search stopped before every set was tried."""
    looked: bool = True
    """The rules allowed some of the queues as givers."""
    moving: Container[str] = ()
    """The victims that start again on other nodes and keep their quota."""
    price: int = 0
    """The lost work of all victims: worth times ms."""


class Option(NamedTuple):
    """The cost of room for one pod on a node."""

    cost: Cost
    node: str
    uids: tuple[str, ...]


def cheapest(uids: Sequence[str], rank: Callable[[str], Rank], lost: Callable[[str], int]) -> Iterator[list[str]]:
    """All sets of some jobs except the empty set. The set with the least rank of its last job comes first, then the
    cheapest set.

    ``uids``: in the order of ranks, then of losses.
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


# --- prices -----------------------------------------------------------------------------------------------------------


MILLION = 1_000_000

Dear = tuple[Rank, int, tuple[Turn, Run]]
"""The price of a victim: (rank, lost work, (turn of its queue, run)); the smallest is evicted first."""


def worth(amounts: Mapping[str, int]) -> int:
    """The weight of work: GPUs and other devices count first, then CPU. The worth times a time in ms is the work lost
    in this time.
    """
    devices = sum(amount for name, amount in amounts.items() if is_device(name) and not in_bytes(name))
    return (devices << 20) + amounts.get("cpu", 0)


class Prices:
    """The prices of one search; each price is computed once."""

    def __init__(self, begun: Search, judge: GivingRules, candidates: Candidates) -> None:
        self._begun, self._judge, self._candidates = begun, judge, candidates
        self.runs: dict[str, Run] = {}
        """uid -> run, of the jobs that the search has looked at."""
        asked = counted(begun.demand)
        self._short = {name: asked[name] for name in sorted(begun.names) if asked.get(name)}
        """The requested amounts of the short resources."""
        self._turn = cache(lambda leaf: judge.turn(leaf, begun))
        self._lost: dict[str, int] = {}
        self._dear: dict[str, Dear] = {}

    @cached_property
    def _alike(self) -> Alike:
        alike = self._candidates.alike
        if alike is None:
            alike = Alike()
            for leaf, runs in self._candidates.runs.items():
                for run in runs:
                    alike.add(leaf, run, counted(self._begun.giver(run.uid).demand))
        return alike

    @cached_property
    def giving(self) -> list[str]:
        """The queues with jobs that may give."""
        return [*self._judge.in_question(self._candidates.runs, self._begun)]

    def run(self, uid: str) -> Run | None:
        """The run of a candidate; None for a job outside of the candidates."""
        run = self.runs.get(uid) or self._alike.runs.get(uid)
        if run is not None:
            self.runs[uid] = run
        return run

    def lost(self, uid: str) -> int:
        """The work lost by a suspension: the worth of the job times ms since its start or last checkpoint, RESTART_MS
        added.
        """
        lost = self._lost.get(uid)
        if lost is None:
            run = self.run(uid)
            age = 0 if run is None or run.youth == FIRST else max(self._candidates.now + run.youth, 0) + RESTART_MS
            lost = self._lost[uid] = worth(self._begun.giver(uid).request) * age
        return lost

    def free(self, uid: str) -> None:
        """Set the price of a candidate to 0 and its rank to the least: the candidate ends by itself."""
        self._dear[uid], self._lost[uid] = (LEAST, 0, self.dear(uid)[2]), 0

    def amount(self, uid: str) -> int:
        """The amount of the short resources that a job frees, in millionths of the request, summed over the
        resources.
        """
        amounts = counted(self._begun.giver(uid).demand)
        return sum(amounts.get(name, 0) * MILLION // asked for name, asked in self._short.items())

    def rank(self, uid: str) -> Rank:
        return self.dear(uid)[0]

    def dear(self, uid: str) -> Dear:
        dear = self._dear.get(uid)
        if dear is None:
            run = self.run(uid)
            assert run is not None, f"{uid} is no candidate"
            giver = self._begun.giver(uid)
            asks = self._judge.asks(giver.queue)
            turn, gives = self._turn(giver.queue) if asks else (), asks and self._judge.gives(giver, uid, self._begun)
            dear = self._dear[uid] = (self._rank(turn, run) if gives else self._first, self.lost(uid), (turn, run))
        return dear

    def _rank(self, turn: Turn, run: Run) -> Rank:
        return tuple(priority for priority, _ in turn), run.priority

    @cached_property
    def _first(self) -> Rank:
        """The rank of a job that may only move. Priority keeps no job in its place, so the job ranks with the first
        candidate.
        """
        runs, wide = self._candidates.runs, self._candidates.most or self._judge.unlocks
        leaves = filter(self._judge.asks, runs) if wide else self.giving  # Other jobs that give nothing are no victims.
        return min((self._rank(self._turn(leaf), runs[leaf][0]) for leaf in leaves if runs[leaf]), default=LEAST)

    def for_each(self, uid: str) -> tuple[Rank, int]:
        """The rank, and the lost work for each freed unit."""
        return self.rank(uid), self.lost(uid) // max(self.amount(uid), 1)

    def price(self, uids: Iterable[str]) -> int:
        return sum(map(self.lost, uids))

    def cost(self, uids: Sequence[str]) -> Cost:
        runs = sorted((self.dear(uid)[2] for uid in uids), reverse=True)
        return Cost(max(map(self.rank, uids)), self.price(uids), tuple(runs)) if uids else Cost()

    def in_order(self, uids: Iterable[str]) -> list[str]:
        """The jobs nearest to the claimant in the tree first, then the smallest: a queue must be above its kept amount
        before each of its jobs leaves.
        """
        mine = chain_of(self._begun.queue)

        def shared(uid: str) -> int:
            return sum(path in mine for path in chain_of(self._begun.giver(uid).queue))

        return sorted(uids, key=lambda uid: (-shared(uid), self.amount(uid), self.dear(uid)[2][1]))

    # --- in order -------------------------------------------------------------------------------------------------

    def cheapest_first(self) -> Iterator[tuple[Cost, str]]:
        """The candidates by cost, the cheapest first: no set of later candidates costs less than the next candidate."""
        heap = [(self.dear(lot[0].uid), at, 0, lot) for at, lot in enumerate(self._lots())]
        heapify(heap)
        while heap:
            _, at, place, lot = heap[0]
            if place + 1 < len(lot):
                heapreplace(heap, (self.dear(lot[place + 1].uid), at, place + 1, lot))
            else:
                heappop(heap)
            yield self.cost((lot[place].uid,)), lot[place].uid

    def least_lost_first(self, most: Rank, may: Callable[[str], bool]) -> Iterator[str]:
        """The candidates up to a rank that may be chosen, by lost work. The rank of a candidate is computed only on
        the candidate's turn.
        """
        heap: list[tuple[int, bool, Any, int, int, Sequence[Run]]]
        heap = [(self.lost(lot[0].uid), False, (), at, 0, lot) for at, lot in enumerate(self._lots())]
        heapify(heap)
        while heap:
            lost, ranked, _, at, place, lot = heap[0]
            uid = lot[place].uid
            left_out = not ranked and not may(uid)
            if not ranked and not left_out and (place or self.rank(uid) <= most):
                heapreplace(heap, (lost, True, self.dear(uid)[2], at, place, lot))
                continue
            if (ranked or left_out) and place + 1 < len(lot):
                heapreplace(heap, (self.lost(lot[place + 1].uid), False, (), at, place + 1, lot))
            else:
                heappop(heap)
            if ranked and self.rank(uid) <= most:
                yield uid

    def _lots(self) -> Iterator[Sequence[Run]]:
        lots = self._alike.lots
        for leaf in lots if self._candidates.most else self.giving:
            yield from lots[leaf].values() if leaf in lots else ()
