"""The order of queues: which queue comes first, and the queues kept in this order.

Queues of quota trees: by the priority of the Queue object, then the used part of the guarantee, then age. Only queues
touched by an event change their place.

KAI queues take their turns from the top down, at each level by the comparisons of KAI Scheduler. A queue is compared
through the next job to send. A queue above its fair share in every resource comes last; a queue within its quota with
the job comes first. Next decides the priority of the queue. A queue comes later if the queue uses a resource of which
no amount may be kept. Next come the smaller part of the limit for keeping, with the job and without; the smaller share;
the older queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from muster.core.queueing.queues import Job, Queues
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.division.dividing import Divided
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger, shares_beside
from muster.core.quota.ledger.shares import DividedShares
from muster.model.demand import Demand
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING, Vector, add_into

# --- order ------------------------------------------------------------------------------------------------------------


_NOTHING: Mapping[str, Any] = {}
MILLION = 1_000_000
POOLED = MILLION + 64
"""For a leaf that uses all of its own guarantee, and not all of a higher one: this less the depth of the higher one,
just before the borrowers."""


def share(ledger: Ledger, queue: str, *scratches: Scratch) -> int:
    """The used part of a leaf's guarantee, in millionths of the most used resource.

    Only resources promised by the tree to some leaf count. A leaf that uses a resource without a min comes after all
    leaves that use none; among such leaves, the smaller part of the total comes first.
    """
    node, promised = ledger.nodes.get(queue), ledger.promised.get(root_of(queue), _NOTHING)
    used, extra = (
        ledger.used.get(queue, _NOTHING),
        [scratch.extra[queue] for scratch in scratches if queue in scratch.extra],
    )
    most = 0
    for name in promised:
        amount = used.get(name, 0)
        for amounts in extra:
            amount += amounts.get(name, 0)
        if amount <= 0:
            continue
        least = node.owes.get(name, 0) if node is not None else 0
        part = amount * MILLION // least if least else UNBOUNDED + _of_all(ledger, queue, name, amount)
        most = max(most, part)
    return most


def used_first(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    """The second key of the order, after the priority of the queue: the used part of the guarantee.

    With an ``order`` other than ``share``: with the next job of the queue added, and all parts beyond a guarantee
    equal. A queue beyond its own guarantee and within a higher one comes just before the borrowers: the lowest such
    guarantee first.
    """
    used = _of_own(ledger, order, queue, demand, *scratches)
    if used > POOLED and _may_pool(ledger, queue) and (depth := ledger.owed_depth(queue, demand, *scratches)):
        return POOLED - depth
    return used


def least_used(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    """The smallest key of a job with at least this demand; a higher guarantee is assumed to be enough."""
    used = _of_own(ledger, order, queue, demand, *scratches)
    return POOLED - len(chain_of(queue)) if used > POOLED and _may_pool(ledger, queue) else used


def _of_own(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    if order == "share":
        return share(ledger, queue, *scratches)
    return min(share(ledger, queue, *scratches, Scratch({queue: counted(demand)})), POOLED + 1)


def _may_pool(ledger: Ledger, queue: str) -> bool:
    """Whether a leaf beyond its own guarantee may be within the guarantee of a higher node."""
    return bool(ledger.inner_below) and any(path in ledger.inner_below for path in chain_of(queue))


def _of_all(ledger: Ledger, queue: str, name: str, amount: int) -> int:
    """Millionths of the limit of the uppermost node with a limit for the resource; without a limit the amount."""
    for path in reversed(chain_of(queue)):
        node = ledger.nodes.get(path)
        limit = node.limit.get(name, 0) if node is not None else 0
        if limit:
            return amount * MILLION // limit
    return amount


# --- the order of KAI queues ------------------------------------------------------------------------------------------


Key = tuple[bool, bool, int, bool, int, int, tuple[int, ...], int, str]


def _shares_now(ledger: Ledger, root: str, fresh: Iterable[Job]) -> DividedShares:
    """The fair shares in a tree; ``fresh``: jobs about to be queued."""
    more: dict[str, Vector] = {}
    for job in fresh:
        add_into(more.setdefault(job.queue, {}), job.demand.request)
    return shares_beside(ledger, root, {queue: asked for queue, asked in more.items() if asked})


def key_of(
    ledger: Ledger, shares: DividedShares, path: str, request: Mapping[str, int], scratches: tuple[Scratch, ...]
) -> Key:
    """The sort key of a KAI queue among its siblings. ``request``: of the next job of the queue. With an empty request
    and without scratches, the key is a lower bound.
    """
    node, mine = ledger.nodes[path], shares[path]
    used = dict(ledger.used.get(path, _NOTHING))
    for scratch in scratches:
        add_into(used, scratch.extra.get(path, _NOTHING))
    names = [name for name in mine if name not in COUNTED]
    total = ledger.nodes[root_of(path)].limit
    with_job = {name: used.get(name, 0) + request.get(name, 0) for name in names}
    above = all(used.get(name, 0) > mine[name].share.amount for name in names)
    within = all(with_job[name] <= node.guaranteed.get(name, 0) for name in names)
    keeps = {name: _keeps(mine[name], total.get(name, 0)) for name in names}
    nothing = any(with_job[name] and not keeps[name] for name in names)
    return (
        above,
        not within,
        -node.priority,
        nothing,
        _dominant(with_job, keeps),
        _dominant(used, keeps),
        tuple(keeps[name] for name in sorted(names, reverse=True)),
        node.created,
        node.uid,
    )


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _keeps(share: Divided, total: int) -> int:
    """The amount never reclaimed; the total without a limit."""
    most = share.allocatable
    return total if most < 0 or most >= EVERYTHING else most


def _dominant(used: Mapping[str, int], keeps: Mapping[str, int]) -> int:
    """The largest used part over all resources, in millionths."""
    return max((used.get(name, 0) * MILLION // keep for name, keep in keeps.items() if keep), default=0)


class KaiOrder:
    """The order of KAI queues with a job to send. The search for the first skips queues that cannot come before the
    best so far. Comparisons are remembered.
    """

    def __init__(
        self,
        queues: Queues,
        kept: Mapping[str, Sequence[tuple[Key, str]]],
        root: str,
        fresh: Sequence[Job],
        sends: Callable[[str], Mapping[str, int] | None],
    ) -> None:
        """``kept``: see ``Lineup.shared``. ``root``: of the tree. ``fresh``: jobs about to be queued. ``sends``: leaf
        -> request of the next job; None without a job.
        """
        self._ledger = queues.ledger
        self._sends = sends
        self._shares = _shares_now(queues.ledger, root, fresh)
        self._children = dict(kept)
        come: dict[str, dict[str, None]] = {}
        for job in fresh:
            for path in chain_of(job.queue)[:-1] if root_of(job.queue) == root else ():
                come.setdefault(_parent(path), {})[path] = None
        for parent in come if self._shares is queues.ledger.fair.shares else {**kept, **come}:
            paths = {path: None for _, path in kept.get(parent, ())} | come.get(parent, {})
            known = (path for path in paths if path in self._shares)
            self._children[parent] = sorted((key_of(queues.ledger, self._shares, path, {}, ()), path) for path in known)
        self._first: dict[str, tuple[str, Mapping[str, int]] | None] = {}
        """path of a queue -> (first leaf at or below the queue, request of its job); None without a job"""
        self._keys: dict[str, Key] = {}

    def changed(self, leaf: str) -> None:
        """A job of the leaf was chosen, or the leaf sends another job next."""
        for path in chain_of(leaf):
            self._keys.pop(path, None)
            self._first.pop(path, None)

    def first(self, path: str, scratches: tuple[Scratch, ...]) -> str:
        """The leaf with the next turn at or below a node; empty where no leaf sends a job."""
        turn = self._first_at(path, scratches)
        return turn[0] if turn is not None else ""

    def _first_at(self, path: str, scratches: tuple[Scratch, ...]) -> tuple[str, Mapping[str, int]] | None:
        if path in self._first:
            return self._first[path]
        request, best = self._sends(path), None
        turn = (path, request) if request is not None else None
        if turn is None:
            for least, child in self._children.get(path, ()):
                if best is not None and best <= least:
                    break
                there = self._first_at(child, scratches)
                if there is None:
                    continue
                if child not in self._keys:
                    self._keys[child] = key_of(self._ledger, self._shares, child, there[1], scratches)
                if best is None or self._keys[child] < best:
                    turn, best = there, self._keys[child]
        self._first[path] = turn
        return turn


# --- lineup -----------------------------------------------------------------------------------------------------------


Turn = tuple[int, int, int, int]
"""(how much higher than its own lies the guarantee that covers the queue, or none does; its negated priority; used part
of its guarantee; rank of a job): the smallest comes first. What is owed goes before what is borrowed, and lower nodes
before higher ones, whatever the priorities of queues.
"""


def turn_of(priority: int, used: int, rank: int) -> Turn:
    """The turn of a queue of this priority; ``used``: see ``used_first``."""
    return min(max(used - MILLION, 0), POOLED - MILLION + 1), -priority, used, rank


_NO_DEMAND = Demand({}, jobs=0)


class Lineup(Struct):
    """The queues with waiting work, in the order of their earliest possible turns."""

    turns: dict[str, Turn] = field(default_factory=dict)
    order: list[tuple[Turn, str]] = field(default_factory=list)
    """sorted (turn, queue)"""
    pooled: dict[str, None] = field(default_factory=dict)
    """The nodes above queues with a guarantee that may be partly free."""
    keys: dict[str, Key] = field(default_factory=dict)
    """path of a KAI queue, with waiting jobs at or below -> its lowest sort key"""
    shared: dict[str, list[tuple[Key, str]]] = field(default_factory=dict)
    """path of the parent, or root -> sorted (key, path) of its KAI queues"""

    @classmethod
    def of(cls, queues: Queues) -> Lineup:
        """The lineup of all queues, from an empty state."""
        lineup = cls(pooled={**queues.ledger.inner_below})
        for queue in queues.book.lines:
            lineup._look(queue, queues)
        return lineup

    def stir(self, queues: Queues) -> None:
        """Mark the queues below every node that has come below its guarantee, or no longer is below."""
        below = queues.ledger.inner_below
        changed = [path for path in {**self.pooled, **below} if (path in self.pooled) != (path in below)]
        for path in changed:
            queues.book.stirred.update({queue: None for queue in queues.book.lines if queue.startswith(f"{path}/")})
        if changed:
            self.pooled = {**below}

    def settle(self, queues: Queues) -> None:
        """Look again at the queues touched since the last call."""
        for queue in queues.book.stirred:
            self._look(queue, queues)
        queues.book.stirred.clear()

    def _look(self, queue: str, queues: Queues) -> None:
        divided = queues.ledger.by_shares(queue)
        before = self.turns.pop(queue, None)
        now = first_turn(queues, queue) if queue in queues.book.lines and not divided else None
        if now is not None:
            self.turns[queue] = now
        if now != before:
            if before is not None:
                del self.order[bisect_left(self.order, (before, queue))]
            if now is not None:
                insort(self.order, (now, queue))
        for path in chain_of(queue)[:-1] if divided or queue in self.keys else ():
            self._compare(path, queues)

    def _compare(self, path: str, queues: Queues) -> None:
        parent, before, shares = path.rpartition("/")[0], self.keys.pop(path, None), queues.ledger.fair.shares
        waits = path in queues.book.lines or path in self.shared
        now = key_of(queues.ledger, shares, path, {}, ()) if waits and path in shares else None
        if now is not None:
            self.keys[path] = now
        if now != before:
            siblings = self.shared.setdefault(parent, [])
            if before is not None:
                del siblings[bisect_left(siblings, (before, path))]
            if now is not None:
                insort(siblings, (now, path))
            if not siblings:
                del self.shared[parent]


def first_turn(queues: Queues, queue: str) -> Turn:
    """The earliest possible turn of a queue."""
    least = _NO_DEMAND if queues.order(queue) == "share" else Demand(queues.book.least_asked(queue), jobs=0)
    return _turn(queues, queue, least, queues.book.first_rank(queue))


def first_turn_with(queues: Queues, queue: str, ranks: Iterable[int]) -> Turn:
    """The earliest possible turn with further jobs about to be queued; ``ranks``: of these jobs."""
    return _turn(queues, queue, _NO_DEMAND, min((*ranks, queues.book.first_rank(queue))))


def _turn(queues: Queues, queue: str, least: Demand, rank: int) -> Turn:
    used = least_used(queues.ledger, queues.order(queue), queue, least, queues.proposed)
    return turn_of(queues.queue_priorities.get(queue, 0), used, rank)
