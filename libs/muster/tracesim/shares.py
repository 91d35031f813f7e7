"""The share of the cluster that each queue deserves, given all requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.tracesim.model import GPU, TraceQueue


class GpuShares:
    """Fair shares of GPUs over a quota tree, in base units as floats.

    At every node first each child gets its min (as far as it asks for it), then the rest goes out in proportion to the
    weights, up to the request of each and its max. The weight of a child is its own if it has one, else its min;
    children without either count as equals.
    """

    def __init__(self, root: TraceQueue) -> None:
        self._root = _ShareNode(root)
        self._cache: dict[tuple[float, tuple[float, ...]], dict[str, float]] = {}
        self.leaves = tuple(queue.path for queue in root.walk() if not queue.children)

    def of(self, capacity: float, demand: Mapping[str, float]) -> dict[str, float]:
        """Path of a leaf -> its fair share while the leaves ask for ``demand`` of ``capacity``."""
        key = (capacity, tuple(min(demand.get(path, 0.0), capacity) for path in self.leaves))
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) > 50_000:
                self._cache.clear()
            known = {}
            asked = dict(zip(self.leaves, key[1], strict=True))
            self._root.ask(asked)
            self._root.share(capacity, known)
            self._cache[key] = known
        return known


class _ShareNode:
    def __init__(self, queue: TraceQueue) -> None:
        self.path = queue.path
        self.min = float(queue.min.get(GPU, 0))
        self.max = float(queue.max[GPU]) if GPU in queue.max else float("inf")
        self.children = tuple(_ShareNode(child) for child in queue.children)
        weights = [float(child.weight) if child.weight else float(child.min.get(GPU, 0)) for child in queue.children]
        self.weights = weights if any(weights) else [1.0] * len(weights)
        self.asked = 0.0

    def ask(self, demand: Mapping[str, float]) -> float:
        total = sum(child.ask(demand) for child in self.children) if self.children else demand.get(self.path, 0.0)
        self.asked = min(total, self.max)
        return self.asked

    def share(self, amount: float, shares: dict[str, float]) -> None:
        if not self.children:
            shares[self.path] = min(amount, self.asked)
            return
        sure = [min(child.min, child.asked) for child in self.children]
        if sum(sure) >= amount:
            given = filled(amount, sure, sure)
        else:
            room = [child.asked - part for child, part in zip(self.children, sure, strict=True)]
            more = filled(amount - sum(sure), room, self.weights)
            given = [part + extra for part, extra in zip(sure, more, strict=True)]
        for child, part in zip(self.children, given, strict=True):
            child.share(part, shares)


def filled(amount: float, caps: Sequence[float], weights: Sequence[float]) -> list[float]:
    """``amount`` poured into vessels in proportion to ``weights``, none over its cap."""
    given = [0.0] * len(caps)
    open_ = [index for index, cap in enumerate(caps) if cap > 0 and weights[index] > 0]
    while open_ and amount > 1e-9:
        level = amount / sum(weights[index] for index in open_)
        full = [index for index in open_ if caps[index] - given[index] <= level * weights[index]]
        if not full:
            for index in open_:
                given[index] += level * weights[index]
            return given
        for index in full:
            amount -= caps[index] - given[index]
            given[index] = caps[index]
        open_ = [index for index in open_ if index not in full]
    rest = [index for index, cap in enumerate(caps) if cap > given[index]]
    if amount > 1e-9 and rest and not any(weights[index] > 0 for index in rest):
        return filled_equally(amount, caps, given, rest)
    return given


def filled_equally(amount: float, caps: Sequence[float], given: list[float], rest: list[int]) -> list[float]:
    """Pour what is left into vessels that weigh nothing, all alike."""
    more = filled(amount, [caps[index] - given[index] for index in rest], [1.0] * len(rest))
    for index, extra in zip(rest, more, strict=True):
        given[index] += extra
    return given
