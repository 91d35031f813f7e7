"""The queues with waiting work, kept in the order in which they take turns: only those an event has touched change
their place.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from msgspec import Struct, field

from muster.core.queueing.kaiorder import Key, key_of
from muster.core.queueing.order import least_used
from muster.core.queueing.queues import Queues
from muster.core.quota.demand import chain_of
from muster.model.demand import Demand

Turn = tuple[int, int, int]
"""(priority of the queue, negated; what it uses of its guarantee; rank of a job): the smallest comes first."""

_NOTHING = Demand({}, jobs=0)


class Lineup(Struct):
    """No job of a queue comes before its turn here."""

    turns: dict[str, Turn] = field(default_factory=dict)
    order: list[tuple[Turn, str]] = field(default_factory=list)
    """sorted (turn, queue)"""
    pooled: dict[str, None] = field(default_factory=dict)
    """the nodes above queues whose guarantee may be free for these"""
    keys: dict[str, Key] = field(default_factory=dict)
    """queue of a tree of fair shares, or one above some -> how it compares at best"""
    shared: dict[str, list[tuple[Key, str]]] = field(default_factory=dict)
    """the queue above them, or their root -> those, sorted"""

    @classmethod
    def of(cls, queues: Queues) -> Lineup:
        """All of them."""
        found = cls(pooled={**queues.ledger.inner_below})
        for queue in queues.book.lines:
            found._look(queue, queues)
        return found

    def stir(self, queues: Queues) -> None:
        """The queues below a node that is below its guarantee since, or not any more, are touched."""
        below = queues.ledger.inner_below
        changed = [path for path in {**self.pooled, **below} if (path in self.pooled) != (path in below)]
        for path in changed:
            queues.book.stirred.update({queue: None for queue in queues.book.lines if queue.startswith(f"{path}/")})
        if changed:
            self.pooled = {**below}

    def settle(self, queues: Queues) -> None:
        """Bring the queues in line that were touched since."""
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
    """No place of a queue in the order of turns is before this one."""
    least = _NOTHING if queues.order(queue) == "share" else Demand(queues.book.least_asked(queue), jobs=0)
    return _turn(queues, queue, least, queues.book.first_rank(queue))


def first_turn_with(queues: Queues, queue: str, ranks: Iterable[int]) -> Turn:
    """The same with jobs that are about to be queued; ``ranks``: theirs."""
    return _turn(queues, queue, _NOTHING, min((*ranks, queues.book.first_rank(queue))))


def _turn(queues: Queues, queue: str, least: Demand, rank: int) -> Turn:
    used = least_used(queues.ledger, queues.order(queue), queue, least, queues.proposed)
    return -queues.queue_priorities.get(queue, 0), used, rank
