"""The amounts that every node of a quota tree may use now: by weight, or by fair shares.

By weight (``muster.dev/runtime: weight``): the requests of the leaves (charged and waiting, never more than the max)
are summed up to the root. Then, from the root down, the children of each node share its runtime quota by ``divide``.
The root may use its max. Each change updates the result: where the request of a node stays the same, no node above or
beside changes.

By fair shares: each change updates the shares of the tree's queues. Only resources with a changed request are divided
again, and only where a share may change.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import chain_of
from muster.core.quota.division.dividing import (
    Divided,
    Share,
    Sibling,
    asking,
    divide,
    divide_resource,
    guaranteed,
    law_for,
)
from muster.model.keys import parent_path, root_of
from muster.model.quota import COUNTED, QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into, in_bytes

# --- by weight --------------------------------------------------------------------------------------------------------


_NOTHING: Mapping[str, int] = {}
WHOLE = 1000
"""Base units in one unit of a resource, bytes apart."""


class Shares(Struct):
    """``runtime`` per path and resource, for the resources limited by the root."""

    root: str = ""
    """The root of the divided tree; work of other trees is not counted."""
    names: tuple[str, ...] = ()
    """The divided resources, sorted; empty in a tree without division."""
    asked: dict[str, Vector] = field(default_factory=dict)
    """leaf -> the requests of its charged and waiting work"""
    request: dict[str, Vector] = field(default_factory=dict)
    """path -> the requested or kept amounts of its subtree, within its max"""
    runtime: dict[str, Vector] = field(default_factory=dict)
    resized: dict[str, None] = field(default_factory=dict)
    """Paths whose runtime quota has changed since the last ``settle``."""

    def install(self, nodes: Mapping[str, QuotaNode], *, weighted: bool) -> None:
        """Begin again with a tree, without requests."""
        root = next(iter(nodes.values()), None)
        self.root = root.path if root is not None else ""
        self.names = tuple(sorted(root.limit.keys() - COUNTED)) if root is not None and weighted else ()
        self.asked, self.request, self.runtime, self.resized = {}, {}, {}, {}
        if root is not None:
            for name in self.names:
                for node in reversed(tuple(nodes.values())):
                    if wanted := self._request_of(node, name):
                        self.request.setdefault(node.path, {})[name] = wanted
                self.runtime.setdefault(root.path, {})[name] = root.limit[name]
                self._below(nodes, root.path, name, frozenset(nodes))

    def ask(self, nodes: Mapping[str, QuotaNode], leaf: str, request: Mapping[str, int], times: int) -> None:
        """Add a request at a leaf; a negative ``times`` takes the request off."""
        if leaf not in nodes or root_of(leaf) != self.root:
            return
        add_into(self.asked.setdefault(leaf, {}), request, times)
        for name in self.names:
            if request.get(name):
                self._changed(nodes, leaf, name)

    def as_asked(self, nodes: Mapping[str, QuotaNode]) -> dict[str, Vector]:
        """``runtime`` computed again from the requests, for audits."""
        fresh = Shares()
        own = {path: node for path, node in nodes.items() if root_of(path) == self.root}
        fresh.install(own, weighted=bool(self.names))
        for leaf, asked in self.asked.items():
            fresh.ask(nodes, leaf, asked, 1)
        return fresh.runtime

    def settle(self) -> list[str]:
        """The paths whose runtime quota has changed since the last call."""
        paths = list(self.resized)
        self.resized = {}
        return paths

    def _changed(self, nodes: Mapping[str, QuotaNode], leaf: str, name: str) -> None:
        affected: list[str] = []
        for path in chain_of(leaf):
            now = self._request_of(nodes[path], name)
            if self.request.get(path, _NOTHING).get(name, 0) == now:
                break
            self.request.setdefault(path, {})[name] = now
            affected.append(path)
        if affected:
            chain = chain_of(leaf)
            top = chain[min(len(affected), len(chain) - 1)]
            self._below(nodes, top, name, frozenset(affected))

    def _request_of(self, node: QuotaNode, name: str) -> int:
        if node.children:
            whole = sum(self.request.get(path, _NOTHING).get(name, 0) for path in node.children)
        else:
            whole = self.asked.get(node.path, _NOTHING).get(name, 0)
        limit, whole = node.limit.get(name), max(whole, node.kept.get(name, 0))
        return whole if limit is None else min(whole, limit)

    def _below(self, nodes: Mapping[str, QuotaNode], path: str, name: str, affected: frozenset[str]) -> None:
        """Divide the runtime quota of a node among its children, and on below each child with another share or in
        ``affected``.
        """
        pending = [path]
        while pending:
            node = nodes[pending.pop()]
            total = self.runtime[node.path][name]
            for child, share in self._divided(nodes, node, name, total).items():
                held = self.runtime.setdefault(child, {})
                if held.get(name) != share:
                    held[name] = share
                    self.resized[child] = None
                elif child not in affected:
                    continue
                if nodes[child].children:
                    pending.append(child)

    def _divided(self, nodes: Mapping[str, QuotaNode], node: QuotaNode, name: str, total: int) -> dict[str, int]:
        siblings = [
            Sibling(
                child.path,
                self.request.get(child.path, _NOTHING).get(name, 0),
                child.guaranteed.get(name, 0),
                child.weight.get(name, child.limit.get(name, total)),
                child.kept.get(name, 0),
            )
            for child in (nodes[path] for path in node.children)
        ]
        unit = WHOLE if name != "cpu" and not in_bytes(name) and _whole(total, siblings) else 1
        if unit > 1:
            siblings = [
                Sibling(
                    sibling.name, sibling.request // unit, sibling.least // unit, sibling.weight, sibling.keeps // unit
                )
                for sibling in siblings
            ]
        return {path: share * unit for path, share in divide(total // unit, siblings).items()}


def _whole(total: int, siblings: list[Sibling]) -> bool:
    """Whether all amounts are whole devices: then no queue gets a part of a device."""
    return not total % WHOLE and not any(
        sibling.request % WHOLE or sibling.least % WHOLE or sibling.keeps % WHOLE for sibling in siblings
    )


# --- by fair shares ---------------------------------------------------------------------------------------------------


Vectors = Mapping[str, Mapping[str, int]]
DividedShares = Mapping[str, Mapping[str, Divided]]
"""path -> resource -> the share of the queue"""


class FairShares(Struct):
    """The fair shares of every queue below the roots of trees that divide by fair shares. Charged and waiting requests
    count, each once.
    """

    shares: dict[str, dict[str, Divided]] = field(default_factory=dict)
    asked: dict[str, Vector] = field(default_factory=dict)
    """path -> the request of its subtree at the last division"""
    leaves: dict[str, None] = field(default_factory=dict)
    touched: dict[str, dict[str, None]] = field(default_factory=dict)
    """root -> leaves with a change since the last division"""
    whole: dict[str, None] = field(default_factory=dict)
    """roots of trees to be divided again as a whole"""

    def install(self, trees: Mapping[str, QuotaTree]) -> None:
        """Begin again with these trees."""
        self.shares, self.asked = {}, {}
        mine = [tree for tree in trees.values() if tree.by_shares]
        self.whole = {tree.root: None for tree in mine}
        self.leaves = {node.path: None for tree in mine for node in tree.nodes if not node.children}
        self.touched = {root: {} for root in self.whole}

    def touch(self, queue: str) -> None:
        """Note a change of charges or waiting requests at a queue; a deleted queue counts at the leaf above."""
        leaf = next((path for path in chain_of(queue) if path in self.leaves), None)
        if leaf is not None:
            self.touched[root_of(leaf)][leaf] = None

    @property
    def settled(self) -> bool:
        """Whether the shares are up to date."""
        return not (self.whole or any(self.touched.values()))

    def settle(
        self,
        trees: Mapping[str, QuotaTree],
        nodes: Mapping[str, QuotaNode],
        used: Vectors,
        waiting: Vectors,
        usage: Vectors,
    ) -> list[str]:
        """Divide again where needed; returns the queues whose share, or kept amount, has changed. ``nodes``: the nodes
        of the trees, by path.
        """
        changed: dict[str, None] = {}
        for root, leaves in self.touched.items():
            if not leaves and root not in self.whole:
                continue
            tree, all_of_it = trees[root], root in self.whole
            if all_of_it:
                self.shares |= {node.path: {} for node in tree.nodes[1:]}
            mine = {node.path: None for node in tree.nodes if node.path in self.leaves} if all_of_it else leaves
            asking = self._asking(tree, used, waiting, mine)
            for name in sorted(tree.nodes[0].limit.keys() - COUNTED if all_of_it else asking):
                paths = asking.get(name, {})
                column = None
                if not all_of_it:
                    if all(self._stays(path, name, self.asked[path]) for path in paths):
                        for path in paths:
                            self._replace(path, name)
                        continue
                    column = self._within_quotas(nodes, name, paths)
                if column is None:
                    column = _column(tree, name, self.asked, usage, None if all_of_it else self.shares)
                for path, after in column.items():
                    before = self.shares[path].get(name)
                    if before is None or before.share.amount != after.share.amount:
                        changed[path] = None
                    self.shares[path][name] = after
            leaves.clear()
        self.whole = {}
        return [*changed]

    def beside(self, tree: QuotaTree, more: Mapping[str, Vector], usage: Vectors) -> DividedShares:
        """The shares where leaves request ``more``."""
        asked: dict[str, Mapping[str, int]] = {}
        names: dict[str, dict[str, None]] = {}
        for leaf, amounts in more.items():
            for path in chain_of(leaf) if leaf in self.leaves and root_of(leaf) == tree.root else ():
                asked[path] = total = {**asked.get(path, self.asked.get(path, _NOTHING))}
                add_into(total, amounts)
                for name in amounts if path != tree.root else ():
                    names.setdefault(name, {})[path] = None
        columns = [
            (name, _column(tree, name, {**self.asked, **asked}, usage, self.shares))
            for name, paths in names.items()
            if name in tree.nodes[0].limit.keys() - COUNTED
            and not all(self._stays(path, name, asked[path]) for path in paths)
        ]
        if not columns:
            return self.shares
        return {
            path: {**mine, **{name: column[path] for name, column in columns if path in column}}
            for path, mine in self.shares.items()
        }

    def _asking(
        self, tree: QuotaTree, used: Vectors, waiting: Vectors, leaves: Mapping[str, None]
    ) -> dict[str, dict[str, None]]:
        """{divided resource: queues with a changed request} from the touched leaves."""
        changed: dict[str, dict[str, None]] = {}
        divided = tree.nodes[0].limit.keys() - COUNTED
        for leaf in leaves:
            now: Vector = {}
            add_into(now, used.get(leaf, _NOTHING))
            add_into(now, waiting.get(leaf, _NOTHING))
            before = self.asked.get(leaf, _NOTHING)
            change = dict(now)
            add_into(change, before, -1)
            for path in chain_of(leaf) if change else ():
                add_into(self.asked.setdefault(path, {}), change)
                for name in change if path != tree.root else ():
                    if name in divided:
                        changed.setdefault(name, {})[path] = None
        return changed

    def _stays(self, path: str, name: str, asked: Mapping[str, int]) -> bool:
        """Whether a queue's new request changes no share. Either the queue requests more than its part before and
        after, even with rounding. Or the request was above the share and is not below the share now, one round handed
        out all of the surplus, and rounding kept nothing from the queue.
        """
        known = self.shares[path][name]
        share, before, now = known.share, known.sharer.requestable, asking(known.sharer, asked.get(name, 0)).requestable
        if min(before, now) >= share.quota + share.surplus + law_for(name).unit:
            return True
        weight, whole = share.weight_of
        exact = share.rounds == 1 and share.surplus > 0 and share.surplus_seen * weight == share.surplus * whole
        return exact and before > share.amount <= now

    def _within_quotas(
        self, nodes: Mapping[str, QuotaNode], name: str, paths: Mapping[str, None]
    ) -> dict[str, Divided] | None:
        """The shares of these queues where neither they nor their siblings request more than quota: no other share
        changes. None in any other case.
        """
        within: dict[str, Divided] = {}
        for above in sorted(dict.fromkeys(map(_above, paths)), key=len):
            whole = within.get(above)
            have = whole.share.amount if whole is not None else None
            for path in nodes[above].children:
                known = self.shares[path][name]
                same = have is None or have == known.parent
                if path in paths:
                    sharer = asking(known.sharer, self.asked[path].get(name, 0))
                    share = Share(quota=sharer.requestable)
                else:
                    sharer, share = known.sharer, known.share
                    if same and share.quota == sharer.request:
                        continue
                    if share.quota != sharer.requestable:
                        return None
                total = known.parent if have is None else have
                if sharer.requestable > guaranteed(total, sharer):
                    return None
                if path in paths or not same:
                    within[path] = Divided(sharer, share, total)
        return within

    def _replace(self, path: str, name: str) -> None:
        known = self.shares[path][name]
        self.shares[path][name] = replace(known, sharer=asking(known.sharer, self.asked[path].get(name, 0)))


def _above(path: str) -> str:
    return parent_path(path) or ""


def _column(
    tree: QuotaTree, name: str, asked: Vectors, usage: Vectors, before: DividedShares | None
) -> dict[str, Divided]:
    """The share of every queue of a tree in one resource."""
    law = law_for(name, (tree.rules.usage_weight, 1000)) if usage else law_for(name)
    return divide_resource(tree.nodes, name, tree.divides(name), asked, usage, law, before)


def divided(tree: QuotaTree, asked: Vectors, usage: Vectors) -> DividedShares:
    """The shares of one tree, computed from nothing. ``asked``: the request of every leaf; ``usage``: the recent use of
    each queue.
    """
    fair = FairShares()
    fair.install({tree.root: tree})
    fair.settle({tree.root: tree}, {}, asked, {}, usage)
    return fair.shares
