"""The fair shares of KAI queues as the ledger stands: of what the nodes have, by what is charged and asked for."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.fairtree import Divided, asked_above, divide_tree
from muster.core.quota.ledger import Ledger
from muster.model.quota import KAI_ROOT
from muster.model.resources import Vector, add_into

Shares = Mapping[str, Mapping[str, Divided]]
"""path -> resource -> what the queue gets of it"""


def kai_shares(ledger: Ledger) -> Shares:
    """Of every queue; empty where there are none. What runs and what waits asks; nothing is counted twice."""
    tree = ledger.trees.get(KAI_ROOT)
    if tree is None:
        return {}
    return divide_tree(tree.nodes, tree.nodes[0].limit, asked_above(tree.nodes, requests(ledger)))


def requests(ledger: Ledger) -> dict[str, Vector]:
    """What is charged to every leaf, and what waits for it: {path: amounts}."""
    tree = ledger.trees[KAI_ROOT]
    found: dict[str, Vector] = {node.path: {} for node in tree.nodes if not node.children}
    for leaf, total in found.items():
        add_into(total, ledger.used.get(leaf, {}))
        add_into(total, ledger.waiting.get(leaf, {}))
    return found
