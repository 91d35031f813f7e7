"""Roots that follow the nodes: what the nodes give to a tree, by flavor, and what claimants are owed of it.

The root of a tree with ``muster.dev/capacity: nodes`` has no amounts of its own: its min and max are the sum of the
nodes that exist. Nodes that cannot serve (not ready, or cordoned) stay in this sum, so these nodes move no limit. Such
nodes lower only the guarantees of claimants: where the mins of siblings are more than the nodes can give, each claimant
is owed its part in proportion to its min, in whole devices. The mins themselves go on protecting what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from muster.model.quota import COUNTED, Flavor, QuotaNode, QuotaTree, is_device, of_flavor
from muster.model.resources import Vector, add_into, in_proportion, total_of

WHOLE = 1000
"""Base units in a device."""


class SeenNode(Struct, frozen=True, gc=False):
    """A node of the cluster, as far as quotas need it."""

    name: str
    gives: Vector
    ready: bool = True
    schedulable: bool = True
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def serves(self) -> bool:
        """Whether new pods may run there."""
        return self.ready and self.schedulable


class NodesGive(Struct):
    """The amounts of the nodes, by flavor too."""

    exist: Vector = field(default_factory=dict)
    """Of all nodes."""
    serve: Vector = field(default_factory=dict)
    """Of the nodes that can serve."""

    def add(self, flavors: Sequence[Flavor], node: SeenNode, times: int = 1) -> None:
        """Count a node; a negative ``times`` takes the node off."""
        amounts = by_flavor(flavors, node)
        add_into(self.exist, amounts, times)
        if node.serves:
            add_into(self.serve, amounts, times)


def flavor_of(flavors: Iterable[Flavor], resource: str, labels: Mapping[str, str]) -> str:
    """The flavor of a resource on a node with these labels: the flavor with most labels of those that the node has all
    labels of, the first of equals; empty without such a flavor.
    """
    fitting = [one for one in flavors if resource in one.resources and one.labels.items() <= labels.items()]
    return max(fitting, key=lambda one: len(one.labels)).name if fitting else ""


def by_flavor(flavors: Sequence[Flavor], node: SeenNode) -> Vector:
    """The amounts of a node, with the amounts by flavor beside the totals."""
    amounts = dict(node.gives)
    for resource in dict.fromkeys(name for one in flavors for name in one.resources):
        if node.gives.get(resource) and (name := flavor_of(flavors, resource, node.labels)):
            amounts[of_flavor(resource, name)] = node.gives[resource]
    return amounts


def follows(tree: QuotaTree, gives: NodesGive) -> bool:
    """Whether the root of a tree has the amounts of the nodes. Only the resources named by the root count."""
    root = tree.nodes[0].limit
    names = root.keys() - COUNTED
    serve = {name: gives.serve.get(name, 0) for name in names}
    known = tree.shared if tree.shared is not None else {name: root[name] for name in names}
    return serve == known and all(root[name] == gives.exist.get(name, 0) for name in names)


def following(tree: QuotaTree, gives: NodesGive) -> QuotaTree:
    """A tree with the amounts of the nodes at its root, and the guarantees of claimants at the nodes below."""
    root = tree.nodes[0]
    names = sorted(root.limit.keys() - COUNTED)
    exist, serve = ({name: amounts.get(name, 0) for name in names} for amounts in (gives.exist, gives.serve))
    whole = structs.replace(root, guaranteed=root.guaranteed | exist, limit=root.limit | exist)
    owed = _owed((whole, *tree.nodes[1:]), tree.flavored, serve)
    nodes = [structs.replace(node, lowered=_lowered(node, owed.get(node.path, {}))) for node in tree.nodes[1:]]
    return structs.replace(tree, nodes=(whole, *nodes), shared=serve if serve != exist else None)


def _lowered(node: QuotaNode, owed: Vector) -> Vector:
    """The guarantee of claimants at a node; empty where nothing is lowered."""
    lowered = {name: owed.get(name, least) for name, least in node.guaranteed.items()}
    return lowered if lowered != node.guaranteed else {}


def _owed(nodes: Sequence[QuotaNode], flavored: Mapping[str, str], serve: Vector) -> dict[str, Vector]:
    """{path: what claimants are owed there} of the resources that the nodes limit; parents before children."""
    known, owed = {node.path: node for node in nodes}, {nodes[0].path: serve}
    for node in nodes:
        children = [known[path] for path in node.children]
        mine = owed[node.path]
        for child in children:
            owed[child.path] = {}
        for name in [name for name in mine if name not in flavored.values()]:
            _shared_out(owed, name, mine[name], {child.path: child.guaranteed.get(name, 0) for child in children})
        for total in [name for name in mine if name in flavored.values()]:
            parts = [part for part, whole in flavored.items() if whole == total and part in mine]
            left, rests = mine[total], dict[str, int]()
            for child in children:
                rest = child.guaranteed.get(total, 0) - sum(child.guaranteed.get(part, 0) for part in parts)
                owed[child.path][total] = sum(owed[child.path].get(part, 0) for part in parts) + min(rest, 0)
                left -= owed[child.path][total]
                rests[child.path] = max(rest, 0)
            _shared_out(owed, total, max(left, 0), rests)
    return owed


def _shared_out(owed: dict[str, Vector], name: str, amount: int, leasts: Mapping[str, int]) -> None:
    """Add to each path its part of an amount: what it is guaranteed, or less in proportion."""
    whole = is_device(total_of(name)) and not any(least % WHOLE for least in leasts.values())
    unit = WHOLE if whole else 1
    if sum(leasts.values()) > amount:
        leasts = in_proportion(amount // unit, {path: least // unit for path, least in leasts.items()})
        leasts = {path: least * unit for path, least in leasts.items()}
    for path, least in leasts.items():
        owed[path][name] = owed[path].get(name, 0) + least
