"""Quota by plain arithmetic: what pods use at each node of a tree, and what its limits are. Nothing of Muster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Object = dict[str, Any]
Amounts = dict[str, Fraction]
SUFFIX = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000) ** power for power, letter in enumerate(("k", "M", "G", "T"), 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate(("K", "M", "G", "T"), 1)},
}


def amount(text: str | int) -> Fraction:
    """A quantity of Kubernetes, without exponents."""
    said = str(text)
    head = said.rstrip("kMGTKim")
    return Fraction(head) * SUFFIX[said[len(head) :]]


def amounts(found: Mapping[str, Any] | None) -> Amounts:
    return {name: amount(text) for name, text in (found or {}).items()}


def asked(pod_spec: Object) -> Amounts:
    """What a pod asks for."""
    total: Amounts = {}
    for container in pod_spec["containers"]:
        for name, value in amounts((container.get("resources") or {}).get("requests")).items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def plus(one: Amounts, other: Amounts, times: int = 1) -> Amounts:
    return {
        name: one.get(name, Fraction(0)) + times * other.get(name, Fraction(0))
        for name in dict.fromkeys((*one, *other))
    }


def over(used: Amounts, limit: Amounts) -> Iterable[str]:
    """The resources of which more is used than the limit says; one that it does not name has none."""
    return [name for name, most in limit.items() if used.get(name, Fraction(0)) > most]


@dataclass
class Node:
    """A node of the tree; ``path`` from the root to it, itself included."""

    name: str
    least: Amounts
    most: Amounts
    path: list[Node] = field(default_factory=list)
    used: Amounts = field(default_factory=dict)


class Tree:
    """An ElasticQuotaTree, and what its namespaces use."""

    def __init__(self, spec: Object) -> None:
        self.leaf_of: dict[str, Node] = {}
        """{namespace: its leaf}"""
        self.nodes: list[Node] = []
        self._read(spec["root"], [])

    def _read(self, said: Object, above: list[Node]) -> None:
        node = Node(said["name"], amounts(said.get("min")), amounts(said.get("max")))
        node.path = [*above, node]
        self.nodes.append(node)
        for namespace in said.get("namespaces") or ():
            self.leaf_of[namespace] = node
        for child in said.get("children") or ():
            self._read(child, node.path)

    def add(self, namespace: str, what: Amounts, times: int = 1) -> list[Node]:
        """Charge a namespace; the nodes on whose path something changed."""
        leaf = self.leaf_of.get(namespace)
        if leaf is None:
            return []
        for node in leaf.path:
            node.used = plus(node.used, what, times)
        return leaf.path

    def room(self, namespace: str, what: Amounts) -> bool:
        """Whether as much fits at each node from the leaf up."""
        leaf = self.leaf_of[namespace]
        return not any(over(plus(node.used, what), node.most) for node in leaf.path)
