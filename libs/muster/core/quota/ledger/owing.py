"""The part of a node that others are owed: a job that needs it gains nothing by waiting for their releases."""

from __future__ import annotations

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.ledger import Ledger
from muster.model.demand import Demand
from muster.model.resources import Vector


class Owing:
    """What queues are owed at one moment: summed up once for each node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sums: dict[str, Vector] = {}

    def beside(self, queue: str, demand: Demand) -> tuple[str, str, int] | None:
        """(path, resource, how much of it other queues there use or ask for within their guarantees) where a demand
        would need some of that, too; None where it does not.
        """
        ledger = self._ledger
        if ledger.by_shares(queue):
            return None  # There a share is what others leave.
        asked = counted(demand)
        for path in chain_of(queue):
            node = ledger.nodes.get(path)
            if node is None or not node.children:
                continue
            own, owed = self._at(queue), self._at(path)
            for name, amount in asked.items():
                others = owed.get(name, 0) - own.get(name, 0)
                if amount and others and name in node.limit and amount + others > node.limit[name]:
                    return path, name, others
        return None

    def _at(self, path: str) -> Vector:
        """What all queues at or below a node use or ask for within their guarantees."""
        if path not in self._sums:
            found = self._sums[path] = Vector()
            for leaf in _leaves(self._ledger, path):
                used, waiting = self._ledger.used.get(leaf, {}), self._ledger.waiting.get(leaf, {})
                for name, least in self._ledger.nodes[leaf].guaranteed.items():
                    amount = min(least, used.get(name, 0) + waiting.get(name, 0))
                    found[name] = found.get(name, 0) + amount
        return self._sums[path]


def _leaves(ledger: Ledger, path: str) -> list[str]:
    found, inner = list[str](), [path]
    while inner:
        node = ledger.nodes.get(inner.pop())
        if node is not None and node.children:
            inner += node.children
        elif node is not None:
            found.append(node.path)
    return found
