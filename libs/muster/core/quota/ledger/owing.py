"""The part of a node that others are owed: a job that needs it gains nothing by waiting for their releases."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.ledger import Ledger
from muster.model.demand import Demand
from muster.model.resources import Vector


def owed_beside(ledger: Ledger, queue: str, demand: Demand) -> tuple[str, str, int] | None:
    """(path, resource, how much of it other queues there use or ask for within their guarantees) where a demand would
    need some of that, too; None where it does not.
    """
    if ledger.by_shares(queue):
        return None  # There a share is what others leave.
    for path in chain_of(queue):
        node = ledger.nodes.get(path)
        asked = counted(demand) if node is not None else {}
        tight = [name for name, amount in asked.items() if node is not None and amount and name in node.limit]
        if node is None or not tight or not node.children:
            continue
        owed: Vector = {}
        for leaf in _leaves(ledger, path):
            least = ledger.nodes[leaf].guaranteed if leaf != queue else {}
            used, waiting = ledger.used.get(leaf, {}), ledger.waiting.get(leaf, {})
            for name in tight if least else ():
                owed[name] = owed.get(name, 0) + min(least.get(name, 0), used.get(name, 0) + waiting.get(name, 0))
        for name in tight:
            if owed.get(name) and asked[name] + owed[name] > node.limit[name]:
                return path, name, owed[name]
    return None


def _leaves(ledger: Ledger, path: str) -> Iterator[str]:
    node = ledger.nodes.get(path)
    for child in node.children if node is not None else ():
        yield from _leaves(ledger, child)
    if node is not None and not node.children:
        yield path
