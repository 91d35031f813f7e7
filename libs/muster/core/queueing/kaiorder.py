"""In which order KAI queues take their turns: from the top down, at each level by the comparisons of KAI Scheduler.

Queues are compared through the job each would send next: a queue above its fair share in everything comes last; first
comes one that stays within its quota with the job; then the priority of the queue decides; a queue comes later that
uses a resource of which it may keep nothing; then the smaller part of its limit for keeping, with the job and without;
then the smaller share; then the older queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from muster.core.queueing.order import MILLION
from muster.core.queueing.queues import Job, Queues
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.division.fairtree import Divided
from muster.core.quota.ledger.fairshares import Shares
from muster.core.quota.ledger.kaishares import shares_beside
from muster.core.quota.ledger.ledger import Ledger
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING, Vector, add_into

_NOTHING: Mapping[str, Any] = {}
Key = tuple[bool, bool, int, bool, int, int, tuple[int, ...], int, str]


def _shares_now(ledger: Ledger, root: str, fresh: Iterable[Job]) -> Shares:
    """The fair shares in a tree; ``fresh``: jobs that are about to be queued."""
    more: dict[str, Vector] = {}
    for job in fresh:
        add_into(more.setdefault(job.queue, {}), job.demand.request)
    return shares_beside(ledger, root, {queue: asked for queue, asked in more.items() if asked})


def key_of(
    ledger: Ledger, shares: Shares, path: str, request: Mapping[str, int], scratches: tuple[Scratch, ...]
) -> Key:
    """How a queue, or one above others, compares with its siblings; ``request``: of the job it would send next. Without
    one, and beside nothing, it comes no later.
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
    """The amount that is never reclaimed: the total where no limit ends it."""
    most = share.allocatable
    return total if most < 0 or most >= EVERYTHING else most


def _dominant(used: Mapping[str, int], keeps: Mapping[str, int]) -> int:
    """Millionths of the resource of which the largest part is used."""
    return max((used.get(name, 0) * MILLION // keep for name, keep in keeps.items() if keep), default=0)


class KaiOrder:
    """The order of the queues of a tree that have a job to send: the first is found without a look at those that cannot
    come before it. Comparisons are remembered.
    """

    def __init__(
        self,
        queues: Queues,
        kept: Mapping[str, Sequence[tuple[Key, str]]],
        root: str,
        fresh: Sequence[Job],
        sends: Callable[[str], Mapping[str, int] | None],
    ) -> None:
        """``kept``: as of ``Lineup.shared``. ``root``: of the tree; ``fresh``: jobs that are about to be queued;
        ``sends``: leaf -> request of the job it would send next, None where there is none.
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
        """path of a queue -> the leaf at or below it whose turn is first there, and the request of its job"""
        self._keys: dict[str, Key] = {}

    def changed(self, leaf: str) -> None:
        """A job of a leaf was chosen, or it sends another one next."""
        for path in chain_of(leaf):
            self._keys.pop(path, None)
            self._first.pop(path, None)

    def first(self, path: str, scratches: tuple[Scratch, ...]) -> str:
        """The leaf whose turn it is at or below a node; empty where none sends a job."""
        found = self._first_at(path, scratches)
        return found[0] if found is not None else ""

    def _first_at(self, path: str, scratches: tuple[Scratch, ...]) -> tuple[str, Mapping[str, int]] | None:
        if path in self._first:
            return self._first[path]
        request, best = self._sends(path), None
        found = (path, request) if request is not None else None
        if found is None:
            for least, child in self._children.get(path, ()):
                if best is not None and best <= least:
                    break
                there = self._first_at(child, scratches)
                if there is None:
                    continue
                if child not in self._keys:
                    self._keys[child] = key_of(self._ledger, self._shares, child, there[1], scratches)
                if best is None or self._keys[child] < best:
                    found, best = there, self._keys[child]
        self._first[path] = found
        return found
