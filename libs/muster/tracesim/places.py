"""The nodes of a simulation, for the policies of the reference engine: free amounts, and places of pods.

All pods of a job are alike. Nodes with equal free amounts are kept together: the cost of a question grows with the
number of different amounts, not of nodes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from muster.model.resources import Vector
from muster.tracesim.model import GPU

Amounts = tuple[int, ...]
"""An amount of each limited resource, GPUs first."""
AMPLE = 2**62
"""Free of a resource that the node does not name."""


class Places:
    """Free amounts of every node. Gangs take all places or none; ``spread``: the emptiest node first."""

    def __init__(self, nodes: Mapping[str, Vector], *, spread: bool = False) -> None:
        named = {name for capacity in nodes.values() for name in capacity}
        self._names = sorted(named, key=lambda name: (name != GPU, name))
        self._spread = spread
        self._free = {
            node: tuple(capacity.get(name, AMPLE) for name in self._names) for node, capacity in nodes.items()
        }
        self._lost: set[str] = set()
        self._alike: dict[Amounts, list[str]] = {}
        for node, free in self._free.items():
            insort(self._alike.setdefault(free, []), node)

    def copied(self) -> Places:
        """Places to try something in."""
        other = Places({}, spread=self._spread)
        other._names, other._free, other._lost = self._names, dict(self._free), set(self._lost)
        other._alike = {free: list(nodes) for free, nodes in self._alike.items()}
        return other

    def amounts(self, request: Vector) -> Amounts:
        """The request of a pod, in the order of this class."""
        return tuple(request.get(name, 0) for name in self._names)

    def fits(self, need: Amounts, count: int) -> bool:
        """Whether so many pods find places together; exact, as all pods are alike."""
        for free, nodes in self._alike.items():
            count -= _times(free, need, count) * len(nodes)
            if count <= 0:
                return True
        return False

    def gang(self, need: Amounts, count: int) -> list[str] | None:
        """Take places for all pods, the tightest node first; the node of each pod, or None where not all fit."""
        if not self.fits(need, count):
            return None
        if self._spread:
            return [node for _ in range(count) if (node := self.pod(need)) is not None]
        chosen: list[str] = []
        for free in sorted(self._alike):
            times = _times(free, need, count)
            for node in self._alike[free] if times else ():
                chosen += [node] * min(times, count - len(chosen))
                if len(chosen) == count:
                    self.take(need, chosen)
                    return chosen
        return chosen

    def pod(self, need: Amounts) -> str | None:
        """Take a place for one pod, as kube-scheduler does: the fullest node that has room, or the emptiest."""
        fitting = [free for free in self._alike if _times(free, need, 1)]
        if not fitting:
            return None
        node = self._alike[max(fitting) if self._spread else min(fitting)][0]
        self.take(need, [node])
        return node

    def back_on(self, need: Amounts, nodes: Sequence[str]) -> bool:
        """Take the same places again, if all are free."""
        if any(node in self._lost or not _times(self._free[node], need, 1) for node in nodes):
            return False
        self.take(need, nodes)
        if all(amount >= 0 for node in nodes for amount in self._free[node]):
            return True
        self.give(need, nodes)
        return False

    def take(self, need: Amounts, nodes: Sequence[str]) -> None:
        """Add a pod on each node."""
        for node in nodes:
            self._set(node, tuple(_less(free, amount) for free, amount in zip(self._free[node], need, strict=True)))

    def give(self, need: Amounts, nodes: Sequence[str]) -> None:
        """Remove a pod from each node."""
        self.take(tuple(-amount for amount in need), nodes)

    def lose(self, node: str) -> None:
        """The node is away."""
        self._lost.add(node)
        self._leave(node)

    def restore(self, node: str) -> None:
        """The node is there again."""
        self._lost.discard(node)
        insort(self._alike.setdefault(self._free[node], []), node)

    def _set(self, node: str, free: Amounts) -> None:
        if node in self._lost:
            self._free[node] = free
            return
        self._leave(node)
        self._free[node] = free
        insort(self._alike.setdefault(free, []), node)

    def _leave(self, node: str) -> None:
        free = self._free[node]
        nodes = self._alike[free]
        nodes.remove(node)
        if not nodes:
            del self._alike[free]


def _times(free: Amounts, need: Amounts, most: int) -> int:
    """How many such pods a node has room for."""
    for has, asks in zip(free, need, strict=True):
        if asks and has < asks * most:
            most = has // asks if has > 0 else 0
            if most <= 0:
                return 0
    return most


def _less(free: int, amount: int) -> int:
    return free if free >= AMPLE else free - amount
