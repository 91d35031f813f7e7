"""Fair shares as events, only when a share changes; and the recent use of queues, where a tree counts usage.

The accountant alone counts usage. Every stage, the accountant too, divides by the figures of the last event: so the
proposing and the answering stage have the same figures. A figure may change when a bucket of the window ends. The next
commit checks for such an end. A deadline is set only while a job waits for one of the queues and the figures may still
change by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.core.quota.accountantstate import AccountantState
from muster.core.quota.division.decay import lately
from muster.core.quota.division.dividing import Divided
from muster.core.quota.ledger.quotaledger import requests
from muster.core.quota.ledger.shares import DividedShares, divided
from muster.core.stage import put
from muster.events.base import Cause
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRemoved
from muster.events.shares import SharesChanged
from muster.model.keys import Position
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import Vector


def trees_changed(state: AccountantState, _at: Position, _event: QuotaTreeAccepted | QuotaTreeRemoved) -> None:
    """Count usage where the rules of the trees ask for it; with changed rules the count begins again."""
    before, state.lately = state.lately, {}
    for root, tree in state.ledger.trees.items():
        fresh = lately(tree.rules, state.now) if tree.by_shares else None
        if fresh is not None:
            known = before.get(root)
            same = known is not None and (known.span, known.half_life) == (fresh.span, fresh.half_life)
            state.lately[root] = known if known is not None and same else fresh
    state.weighed = {root: _weighed(state, tree) for root, tree in state.ledger.trees.items() if root in state.lately}
    state.told_shares = {path: told for path, told in state.told_shares.items() if path in state.ledger.nodes}


def time_passed(state: AccountantState) -> None:
    """Count the charges for the passed log time."""
    for root, counted in state.lately.items():
        tree = state.ledger.trees[root]
        if counted.pass_to(state.now, *_rate(state, tree)):
            state.weighed[root] = _weighed(state, tree)


def shares_changed(state: AccountantState, _at: Position, event: SharesChanged) -> None:
    state.ledger.note_usage(event.usage)
    for path, amounts in event.shares.items():
        put(state.told_shares, path, amounts or None)
    told, shares = state.told_shares, state.ledger.fair.shares
    state.untold = {path: None for path in state.untold if _amounts(shares.get(path, {})) != told.get(path, {})}


def changes_due(state: AccountantState) -> Iterator[SharesChanged]:
    """The due events of every tree that divides by fair shares."""
    ledger = state.ledger
    for root, tree in ledger.trees.items():
        if not tree.by_shares:
            continue
        division: DividedShares = ledger.fair.shares
        usage, paths = _usage_due(state, tree), state.untold
        if usage or root in state.lately:
            division = divided(tree, requests(ledger, tree), state.weighed.get(root, {}))
            paths = dict.fromkeys(division)
        shares: dict[str, Vector] = {}
        for path in [path for path in division if path in paths] if paths else ():
            amounts = _amounts(division[path])
            if amounts != state.told_shares.get(path, {}):
                shares[path] = amounts
        if usage or shares:
            yield SharesChanged(cause=Cause(state.seq, 0), root=root, shares=shares, usage=usage)


def _amounts(mine: Mapping[str, Divided]) -> Vector:
    return {name: amount for name, division in mine.items() if (amount := division.share.amount)}


def _usage_due(state: AccountantState, tree: QuotaTree) -> dict[str, Vector]:
    """The recent use of each queue with a change."""
    weighed, old = state.weighed.get(tree.root, {}), state.ledger.usage
    if not weighed and not old:
        return {}
    nothing: Vector = {}
    paths = [node.path for node in tree.nodes]
    return {path: weighed.get(path, nothing) for path in paths if weighed.get(path, nothing) != old.get(path, nothing)}


def next_at(state: AccountantState) -> Iterator[int]:
    """Log times (ms) at which a figure may change without an event."""
    for root, counted in state.lately.items():
        tree = state.ledger.trees[root]
        waited_for = any(node.path in state.ledger.waiting for node in tree.nodes if not node.children)
        if waited_for and not counted.steady(*_rate(state, tree)):
            yield counted.ends_at()


def _rate(state: AccountantState, tree: QuotaTree) -> tuple[dict[str, Vector], Vector]:
    """({leaf: its charges}, the total), of the resources divided by the tree."""
    total = tree.nodes[0].limit
    used: dict[str, Vector] = {}
    for node in tree.nodes:
        charged = state.ledger.used.get(node.path) if not node.children else None
        if charged:
            used[_key(node)] = {name: amount for name, amount in charged.items() if name in total}
    return used, total


def _weighed(state: AccountantState, tree: QuotaTree) -> dict[str, Vector]:
    """Path -> the recent use of its subtree, in millionths: the sum of its children, and its own use from its time as a
    leaf.
    """
    leaves = state.lately[tree.root].weighed()
    weighed: dict[str, Vector] = {}
    for node in reversed(tree.nodes):
        total = _sum((leaves.get(_key(node), {}), *(weighed.get(child, {}) for child in node.children)))
        if total and node.path != tree.root:
            weighed[node.path] = total
    return weighed


def _sum(vectors: tuple[Mapping[str, int], ...]) -> Vector:
    names = sorted({name for vector in vectors for name in vector})
    return {name: sum(vector.get(name, 0) for vector in vectors) for name in names}


def _key(node: QuotaNode) -> str:
    return node.uid or node.path
