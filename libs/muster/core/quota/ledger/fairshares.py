"""The fair shares of the queues of each tree that divides by them, kept up to date change by change: only resources of
which another amount is asked for are divided again, and only where that may change a share.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import chain_of
from muster.core.quota.division.fairshare import Share, guaranteed
from muster.core.quota.division.fairtree import Divided, asking, divide_resource, law_for
from muster.model.keys import parent_path, root_of
from muster.model.quota import COUNTED, QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into

Vectors = Mapping[str, Mapping[str, int]]
Shares = Mapping[str, Mapping[str, Divided]]
"""path -> resource -> what the queue gets of it"""

_NOTHING: Mapping[str, int] = {}


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

    def beside(self, tree: QuotaTree, more: Mapping[str, Vector], usage: Vectors) -> Shares:
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


def _column(tree: QuotaTree, name: str, asked: Vectors, usage: Vectors, before: Shares | None) -> dict[str, Divided]:
    """What every queue of a tree gets of one resource."""
    law = law_for(name, (tree.rules.usage_weight, 1000)) if usage else law_for(name)
    return divide_resource(tree.nodes, name, tree.nodes[0].limit[name], asked, usage, law, before)


def divided(tree: QuotaTree, asked: Vectors, usage: Vectors) -> Shares:
    """Of every queue of one tree, counted from nothing; ``asked``: what is asked for at every leaf; ``usage``: what
    each used lately.
    """
    found = FairShares()
    found.install({tree.root: tree})
    found.settle({tree.root: tree}, {}, asked, {}, usage)
    return found.shares
