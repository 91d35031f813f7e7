"""What every node of a quota tree may use right now, in a tree that divides by weight (``muster.dev/runtime: weight``).

From the requests below (charged and waiting, never more than the max), summed up to the root, and from the top
down: the children of a node share what it may use by ``runtime.divide``. The root may use its max. Kept up to date
change by change: where what a node asks for stays the same, nothing above or beside it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.core.quota.demand import chain_of
from muster.core.quota.division.weights import Sibling, divide
from muster.model.keys import root_of
from muster.model.quota import COUNTED, QuotaNode
from muster.model.resources import Vector, add_into, in_bytes

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
