"""The fair shares of queues by the ledger: the quota of their root, divided by charges and requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from muster.core.quota.division.fairtree import Divided, asked_above, divide_tree, law_for
from muster.core.quota.ledger.ledger import Ledger
from muster.model.demand import Demand
from muster.model.quota import QuotaTree
from muster.model.resources import Vector, add_into

Shares = Mapping[str, Mapping[str, Divided]]
"""path -> resource -> what the queue gets of it"""


def kai_shares(ledger: Ledger) -> Shares:
    """Of every queue; empty where there are none. What runs and what waits asks; nothing is counted twice."""
    found: dict[str, Mapping[str, Divided]] = {}
    for tree in ledger.trees.values():
        if tree.by_shares:
            found |= divided(tree, requests(ledger, tree), ledger.usage)
    return found


def shares_with(ledger: Ledger, uid: str, queue: str, demand: Demand) -> Shares:
    """The shares with the demand of this job, also while it waits for nodes and is in no queue, or grows."""
    tree = ledger.tree_of(queue)
    if tree is None:
        return {}
    asked = requests(ledger, tree)
    if not demand.jobs or (uid not in ledger.asks and uid not in ledger.charges):
        add_into(asked[queue], demand.request)
    return divided(tree, asked, ledger.usage)


def divided(tree: QuotaTree, asked: Mapping[str, Vector], usage: Mapping[str, Vector]) -> Shares:
    """Of every queue of one tree; ``asked``: what is asked for at every leaf; ``usage``: what each used lately."""
    for known in tuple(_KNOWN):
        if known.of == (tree, asked, usage):
            return known.shares
    found = _divide(tree, asked, usage)
    _KNOWN.appendleft(_Known((tree, _copied(asked), _copied(usage)), found))
    return found


def _copied(vectors: Mapping[str, Vector]) -> Mapping[str, Vector]:
    return {path: dict(amounts) for path, amounts in vectors.items()}


class _Known(NamedTuple):
    of: tuple[QuotaTree, Mapping[str, Vector], Mapping[str, Vector]]
    shares: Shares


_KNOWN: deque[_Known] = deque(maxlen=8)
"""The last divisions: all stages ask for the same, and most events change no request."""


def _divide(tree: QuotaTree, asked: Mapping[str, Vector], usage: Mapping[str, Vector]) -> Shares:
    total = tree.nodes[0].limit
    laws = {name: law_for(name, (tree.rules.usage_weight, 1000)) for name in total} if usage else None
    return divide_tree(tree.nodes, total, asked_above(tree.nodes, asked), usage, laws)


def requests(ledger: Ledger, tree: QuotaTree) -> dict[str, Vector]:
    """What is charged to every leaf, and what waits for it: {path: amounts}."""
    found: dict[str, Vector] = {node.path: {} for node in tree.nodes if not node.children}
    for leaf, total in found.items():
        add_into(total, ledger.used.get(leaf, {}))
        add_into(total, ledger.waiting.get(leaf, {}))
    return found
