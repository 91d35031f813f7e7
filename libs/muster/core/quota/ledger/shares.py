"""What every node of a quota tree may use now: by weight, or by fair shares.

What every node of a quota tree may use right now, in a tree that divides by weight (``muster.dev/runtime: weight``).

From the requests below (charged and waiting, never more than the max), summed up to the root, and from the top
down: the children of a node share what it may use by ``runtime.divide``. The root may use its max. Kept up to date
change by change: where what a node asks for stays the same, nothing above or beside it is looked at.

The fair shares of the queues of each tree that divides by them, kept up to date change by change: only resources of
which another amount is asked for are divided again, and only where that may change a share.
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
"""Base units in one of a resource that is not counted in bytes."""


class Shares(Struct):
    """``runtime`` per path and resource, for the resources that the root limits."""

    root: str = ""
    """Of the tree that is divided; what belongs to another one is not counted."""
    names: tuple[str, ...] = ()
    """The resources that are divided, sorted; empty in a tree that does not divide."""
    asked: dict[str, Vector] = field(default_factory=dict)
    """leaf -> what its charged and waiting work asks for"""
    request: dict[str, Vector] = field(default_factory=dict)
    """path -> what its subtree asks for or keeps from others, within its max"""
    runtime: dict[str, Vector] = field(default_factory=dict)
    resized: dict[str, None] = field(default_factory=dict)
    """Paths that may use more or less since ``settle`` was called last."""

    def install(self, nodes: Mapping[str, QuotaNode], *, weighted: bool) -> None:
        """Begin again with a tree; the requests have to be given again."""
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
        """More is asked for at a leaf, or (with a negative ``times``) less."""
        if leaf not in nodes or root_of(leaf) != self.root:
            return
        add_into(self.asked.setdefault(leaf, {}), request, times)
        for name in self.names:
            if request.get(name):
                self._changed(nodes, leaf, name)

    def as_asked(self, nodes: Mapping[str, QuotaNode]) -> dict[str, Vector]:
        """``runtime`` counted again from the requests, for audits to compare with."""
        fresh = Shares()
        own = {path: node for path, node in nodes.items() if root_of(path) == self.root}
        fresh.install(own, weighted=bool(self.names))
        for leaf, asked in self.asked.items():
            fresh.ask(nodes, leaf, asked, 1)
        return fresh.runtime

    def settle(self) -> list[str]:
        """The paths that may use more or less since the last call."""
        found = list(self.resized)
        self.resized = {}
        return found

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
        """Divide what a node may use among its children, and on below what got another share or is affected."""
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
                Sibling(each.name, each.request // unit, each.least // unit, each.weight, each.keeps // unit)
                for each in siblings
            ]
        return {path: share * unit for path, share in divide(total // unit, siblings).items()}


def _whole(total: int, siblings: list[Sibling]) -> bool:
    """Whether everything is in whole devices: then no queue gets a part of one."""
    return not total % WHOLE and not any(
        each.request % WHOLE or each.least % WHOLE or each.keeps % WHOLE for each in siblings
    )


# --- by fair shares ---------------------------------------------------------------------------------------------------


Vectors = Mapping[str, Mapping[str, int]]
DividedShares = Mapping[str, Mapping[str, Divided]]
"""path -> resource -> what the queue gets of it"""


class FairShares(Struct):
    """Of every queue below the roots of such trees; what runs and what waits asks, and nothing is counted twice."""

    shares: dict[str, dict[str, Divided]] = field(default_factory=dict)
    asked: dict[str, Vector] = field(default_factory=dict)
    """path -> what its subtree asked for when the shares were divided last"""
    leaves: dict[str, None] = field(default_factory=dict)
    touched: dict[str, dict[str, None]] = field(default_factory=dict)
    """root -> leaves at which something has changed since"""
    whole: dict[str, None] = field(default_factory=dict)
    """roots of trees of which everything is to be divided again"""

    def install(self, trees: Mapping[str, QuotaTree]) -> None:
        """Begin again with these trees."""
        self.shares, self.asked = {}, {}
        mine = [tree for tree in trees.values() if tree.by_shares]
        self.whole = {tree.root: None for tree in mine}
        self.leaves = {node.path: None for tree in mine for node in tree.nodes if not node.children}
        self.touched = {root: {} for root in self.whole}

    def touch(self, queue: str) -> None:
        """What is charged or waits at a queue has changed; one that is gone counts at the leaf that was above it."""
        leaf = next((path for path in chain_of(queue) if path in self.leaves), None)
        if leaf is not None:
            self.touched[root_of(leaf)][leaf] = None

    @property
    def settled(self) -> bool:
        """Whether the shares are those of now."""
        return not (self.whole or any(self.touched.values()))

    def settle(
        self,
        trees: Mapping[str, QuotaTree],
        nodes: Mapping[str, QuotaNode],
        used: Vectors,
        waiting: Vectors,
        usage: Vectors,
    ) -> list[str]:
        """Divide what has to be; the queues that get another amount than before, or may keep another. ``nodes``: those
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
                for path, found in column.items():
                    before = self.shares[path].get(name)
                    if before is None or before.share.amount != found.share.amount:
                        changed[path] = None
                    self.shares[path][name] = found
            leaves.clear()
        self.whole = {}
        return [*changed]

    def beside(self, tree: QuotaTree, more: Mapping[str, Vector], usage: Vectors) -> DividedShares:
        """The shares where leaves ask for so much more."""
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
        """{resource that is divided: queues of which another amount of it is asked} at leaves that were touched."""
        found: dict[str, dict[str, None]] = {}
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
                        found.setdefault(name, {})[path] = None
        return found

    def _stays(self, path: str, name: str, asked: Mapping[str, int]) -> bool:
        """Whether no share changes with the request there: it asks for more than its part, whatever rounding kept from
        that; or no longer for more, where one round handed out all of the surplus, and rounding kept nothing from it.
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
        """What these queues get where neither they nor those beside them ask for more than their quotas: no other share
        changes with theirs. None where that is not so.
        """
        found: dict[str, Divided] = {}
        for above in sorted(dict.fromkeys(map(_above, paths)), key=len):
            whole = found.get(above)
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
                    found[path] = Divided(sharer, share, total)
        return found

    def _replace(self, path: str, name: str) -> None:
        known = self.shares[path][name]
        self.shares[path][name] = replace(known, sharer=asking(known.sharer, self.asked[path].get(name, 0)))


def _above(path: str) -> str:
    return parent_path(path) or ""


def _column(
    tree: QuotaTree, name: str, asked: Vectors, usage: Vectors, before: DividedShares | None
) -> dict[str, Divided]:
    """What every queue of a tree gets of one resource."""
    law = law_for(name, (tree.rules.usage_weight, 1000)) if usage else law_for(name)
    return divide_resource(tree.nodes, name, tree.nodes[0].limit[name], asked, usage, law, before)


def divided(tree: QuotaTree, asked: Vectors, usage: Vectors) -> DividedShares:
    """Of every queue of one tree, counted from nothing; ``asked``: what is asked for at every leaf; ``usage``: what
    each used lately.
    """
    found = FairShares()
    found.install({tree.root: tree})
    found.settle({tree.root: tree}, {}, asked, {}, usage)
    return found.shares
