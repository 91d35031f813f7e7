"""The fair shares of queues by the ledger: the quota of their root, divided by charges and requests."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.division.fairtree import Divided
from muster.core.quota.ledger.fairshares import Shares, divided
from muster.core.quota.ledger.ledger import Ledger
from muster.model.demand import Demand
from muster.model.quota import QuotaTree
from muster.model.resources import Vector, add_into


def kai_shares(ledger: Ledger) -> Shares:
    """Of every queue; empty where there are none: as they are kept, or counted where no stage keeps them."""
    if ledger.fair.settled:
        return ledger.fair.shares
    found: dict[str, Mapping[str, Divided]] = {}
    for tree in ledger.trees.values():
        if tree.by_shares:
            found |= divided(tree, requests(ledger, tree), ledger.usage)
    return found


def shares_with(ledger: Ledger, uid: str, queue: str, demand: Demand) -> Shares:
    """The shares with the demand of this job, also while it waits for nodes and is in no queue, or grows."""
    asks = any(uid in each for each in (ledger.asks, ledger.charges, ledger.claims.by_uid))
    more = not demand.jobs or not asks
    return shares_beside(ledger, queue, {queue: demand.request} if more else {})


def shares_beside(ledger: Ledger, queue: str, more: Mapping[str, Vector]) -> Shares:
    """The shares in the tree of a queue where leaves ask for so much more."""
    tree = ledger.tree_of(queue)
    if tree is None:
        return {}
    if ledger.fair.settled:
        return ledger.fair.beside(tree, more, ledger.usage)
    asked = requests(ledger, tree)
    for leaf, amounts in more.items():
        if leaf in asked:
            add_into(asked[leaf], amounts)
    return divided(tree, asked, ledger.usage)


def requests(ledger: Ledger, tree: QuotaTree) -> dict[str, Vector]:
    """What is charged to every leaf, and what waits for it: {path: amounts}."""
    found: dict[str, Vector] = {node.path: {} for node in tree.nodes if not node.children}
    for leaf, total in found.items():
        add_into(total, ledger.used.get(leaf, {}))
        add_into(total, ledger.waiting.get(leaf, {}))
    return found
