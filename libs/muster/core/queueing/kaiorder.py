"""In which order KAI queues take their turns: from the top down, at each level by the comparisons of KAI Scheduler.

Queues are compared through the job each would send next: a queue above its fair share in everything comes last; first
comes one that stays within its quota with the job; then the priority of the queue decides; a queue comes later that
uses a resource of which it may keep nothing; then the smaller part of its limit for keeping, with the job and without;
then the smaller share; then the older queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from muster.core.queueing.order import MILLION
from muster.core.queueing.queues import Job
from muster.core.queueing.state import SorterState
from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.division.fairtree import Divided
from muster.core.quota.ledger.fairshares import Shares
from muster.core.quota.ledger.kaishares import shares_beside
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING, Vector, add_into

_NOTHING: Mapping[str, Any] = {}
Key = tuple[bool, bool, int, bool, int, int, tuple[int, ...], int, str]


def shares_now(state: SorterState, root: str, fresh: Iterable[Job] = ()) -> Shares:
    """The fair shares in a tree; ``fresh``: jobs that are about to be queued."""
    more: dict[str, Vector] = {}
    for job in fresh:
        add_into(more.setdefault(job.queue, {}), job.demand.request)
    return shares_beside(state.queues.ledger, root, {queue: asked for queue, asked in more.items() if asked})


def key_of(
    state: SorterState, shares: Shares, path: str, request: Mapping[str, int], scratches: tuple[Scratch, ...]
) -> Key:
    """How a queue, or one above others, compares with its siblings; ``request``: of the job it would send next."""
    ledger = state.queues.ledger
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


def _keeps(share: Divided, total: int) -> int:
    """The amount that is never reclaimed: the total where no limit ends it."""
    most = share.allocatable
    return total if most < 0 or most >= EVERYTHING else most


def _dominant(used: Mapping[str, int], keeps: Mapping[str, int]) -> int:
    """Millionths of the resource of which the largest part is used."""
    return max((used.get(name, 0) * MILLION // keep for name, keep in keeps.items() if keep), default=0)


class KaiOrder:
    """The order of the queues of a tree that have a job to send; comparisons are remembered."""

    def __init__(self, state: SorterState, root: str, fresh: Iterable[Job]) -> None:
        """``root``: of the tree; ``fresh``: jobs that are about to be queued."""
        self._root = root
        self._state = state
        self._fresh = fresh
        self._shares: Shares | None = None
        self._keys: dict[str, Key] = {}
        self._first: dict[str, str] = {}
        """path of a queue -> the leaf at or below it whose turn is first there"""

    def changed(self, leaf: str) -> None:
        """A job of a leaf was chosen, or it sends another one next."""
        for path in chain_of(leaf):
            self._keys.pop(path, None)
            self._first.pop(path, None)

    def first(self, heads: Mapping[str, Mapping[str, int]], scratches: tuple[Scratch, ...]) -> str:
        """The leaf whose turn it is; ``heads``: leaf -> request of the job it would send next."""
        if len(heads) == 1:
            return next(iter(heads))
        if self._shares is None:
            self._shares = shares_now(self._state, self._root, self._fresh)
        paths = dict.fromkeys(path for leaf in heads for path in chain_of(leaf))
        for path in sorted(paths, key=lambda each: (-each.count("/"), each)):
            if path in self._first:
                continue
            if path in heads:
                self._first[path] = path
            else:
                below = [child for child in self._state.queues.ledger.nodes[path].children if child in paths]
                self._first[path] = self._first[min(below, key=lambda child: self._keys[child])]
            if path != self._root:
                request = heads[self._first[path]]
                self._keys[path] = key_of(self._state, self._shares, path, request, scratches)
        return self._first[self._root]
