"""The one quota model: the observed objects of every quota API, compiled to trees before the accountant's judgement.

Each API is one source. A source keeps the last observed objects and compiles them to trees of nodes (guarantee, limit,
weight, priority). A source also says which decisions bring the trees in force in line with the objects. Code behind the
trees asks for their rules and never for their API. A further API is a further file like ``treesource`` and
``kaisource``, and a row in SOURCES. The capacity of the nodes is counted once, for every source whose trees need a
total.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from msgspec import Struct, field

from muster.core.placement.devices import memory_of
from muster.core.quota.trees.capacity import SeenNode
from muster.core.quota.trees.kaisource import KaiSource
from muster.core.quota.trees.treesource import TreeSource
from muster.core.stage import Arm
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.facts import NodeGone, NodeObserved, ObjectGone
from muster.model.keys import Position
from muster.model.placing import GPU_PRODUCT, PodRules, products_of
from muster.model.quota import NO_GPUS, Gpus, QuotaTree
from muster.model.resources import Vector, add_into

TreeDecision = QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved


class QuotaSource(Protocol):
    """One quota API."""

    OBSERVED: ClassVar[type[Event]]
    GONE: ClassVar[type[ObjectGone]]
    SHARDS: ClassVar[tuple[str, ...]]
    """Shards that must be listed before the first decision."""

    def observed(self, event: Any, cause: Cause) -> None:
        """An object exists in this state."""
        ...

    def gone(self, uid: str, cause: Cause) -> None:
        """An object is deleted."""
        ...

    def nodes_give(self, total: Vector, ready: Vector, gpus: Gpus, cause: Cause) -> None:
        """The nodes that refuse no work by quota have this capacity in all, and the ready nodes that."""
        ...

    def removed(self, uid: str) -> None:
        """No tree of this object is in force, or ever was."""
        ...

    def decisions_due(self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]) -> Iterator[TreeDecision]:
        """The decisions that bring the trees in force in line. ``judged``: object uid -> the last decided version."""
        ...


class Forest(Struct):
    """The last observed objects, by source."""

    kai: KaiSource = field(default_factory=KaiSource)
    elastic: TreeSource = field(default_factory=TreeSource)
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    """uid -> node"""
    uids: dict[str, str] = field(default_factory=dict)
    """Name of a node -> its uid"""
    relabelled: dict[str, None] = field(default_factory=dict)
    """Names of the nodes with new labels that the charges do not follow yet."""
    memories: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Name of a node -> (MiB of a GPU of the node, its product)."""
    gpus: Gpus = NO_GPUS
    unready: dict[str, None] = field(default_factory=dict)
    """Names of the nodes that are not ready."""
    places: bool = False
    """Gangs are placed: what runs on a node that is not ready takes no room of ready nodes."""
    judged: dict[str, int] = field(default_factory=dict)
    """uid of a tree's object -> the last decided version"""

    def node(self, uid: str, node: SeenNode | None, cause: Cause) -> None:
        """A node is in this state; None when gone."""
        before = self.nodes.pop(uid, None)
        if node is not None:
            self.nodes[uid] = node
            self.uids[node.name] = uid
            if before is None or before.labels != node.labels:
                self.relabelled[node.name] = None
        elif before is not None and self.uids.get(before.name) == uid:
            del self.uids[before.name]
        if before != node:
            self.elastic.node(before, node, cause)
        if _of_shares(before) != _of_shares(node):
            self._give(cause)

    def named(self, name: str) -> SeenNode | None:
        """The node of this name, where known."""
        return self.nodes.get(self.uids.get(name, ""))

    def sized(self, name: str, memory: int, product: str, cause: Cause) -> None:
        """The GPUs of a node have this much memory (MiB); 0 when unknown, or gone."""
        if self.memories.get(name, (0, product)) == (memory, product):
            return
        self.memories.pop(name, None)
        if memory:
            self.memories[name] = memory, product
        products = {named: size for size, named in sorted(self.memories.values())}
        largest = max(products.values(), default=0)
        differ = any(size != largest for size, _ in self.memories.values())
        gpus = Gpus(largest, {named: products[named] for named in sorted(products) if named} if differ else {})
        if gpus != self.gpus:
            self.gpus = gpus
            self._give(cause)

    def device_of(self, node: str, rules: PodRules) -> int:
        """MiB of a GPU of a pod: of its node, or before it has a node of the largest within reach; 0 where unknown."""
        return self.memories.get(node, (0, ""))[0] if node else self.gpus.within(products_of(rules))

    def placed(self, places: bool, cause: Cause) -> None:
        """Gangs are placed from here on, or no longer."""
        if places != self.places:
            self.places = places
            self._give(cause)

    def _give(self, cause: Cause) -> None:
        ready, total = Vector(), Vector()
        for node in self.nodes.values():
            if node.ready:
                add_into(ready, node.gives)
            if node.ready or self.places:
                add_into(total, node.gives)
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            source.nodes_give(total, ready, self.gpus, cause)

    def decided(self, event: QuotaTreeAccepted | QuotaTreeRejected) -> None:
        """A version of a tree was judged."""
        uid = event.tree.ref.uid if isinstance(event, QuotaTreeAccepted) else event.ref.uid
        self.judged[uid] = event.rv
        self.elastic.judged(uid, accepted=isinstance(event, QuotaTreeAccepted))

    def removed(self, uid: str, trees: Mapping[str, QuotaTree]) -> None:
        """A tree is out of force: trees refused because of it are judged again. ``trees``: the trees in force."""
        force = {tree.ref.uid for tree in trees.values()}
        self.judged = {uid: version for uid, version in self.judged.items() if uid in force}
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            source.removed(uid)

    def decisions_due(self, trees: Mapping[str, QuotaTree], unsynced: Mapping[str, None]) -> Iterator[TreeDecision]:
        """The decisions that bring the trees in force in line with the observed objects. ``unsynced``: kinds not listed
        yet.
        """
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            follows = ("nodes",) if name == "elastic" and self.elastic.capacity else ()
            if not any(shard in unsynced for shard in (*source.SHARDS, *follows)):
                yield from source.decisions_due(trees, self.judged)


def _of_shares(node: SeenNode | None) -> tuple[Vector, bool] | None:
    """What the fair shares depend on."""
    return (node.gives, node.ready) if node is not None else None


SOURCES: Mapping[str, type[QuotaSource]] = {"kai": KaiSource, "elastic": TreeSource}
"""field of Forest -> the API, in the order of the decisions"""


def arms() -> dict[type[Event], Arm]:
    """The folds of facts into the forest of a state."""
    folds: dict[type[Event], Arm] = {NodeObserved: _node_observed, NodeGone: _node_gone}
    for name, source in SOURCES.items():
        folds[source.OBSERVED], folds[source.GONE] = _observed(name), _gone(name)
    return folds


def _observed(name: str) -> Arm:
    def arm(state: Any, at: Position, event: Any) -> None:
        getattr(state.forest, name).observed(event, Cause(at.seq, at.item))
        if name == "elastic":
            state.forest.elastic.follow(event.ref.uid, state.forest.nodes.values())

    return arm


def _gone(name: str) -> Arm:
    def arm(state: Any, at: Position, event: ObjectGone) -> None:
        source: QuotaSource = getattr(state.forest, name)
        state.forest.judged.pop(event.ref.uid, None)
        source.gone(event.ref.uid, Cause(at.seq, at.item))
        if all(tree.ref.uid != event.ref.uid for tree in state.ledger.trees.values()):
            source.removed(event.ref.uid)

    return arm


def _node_observed(state: Any, at: Position, event: NodeObserved) -> None:
    node, cause = event.node, Cause(at.seq, at.item)
    state.forest.unready.pop(node.ref.name, None)
    if not node.ready:
        state.forest.unready[node.ref.name] = None
    seen = SeenNode(node.ref.name, node.allocatable, node.ready, node.schedulable, node.labels)
    state.forest.node(node.ref.uid, seen, cause)
    if memory := memory_of(node.labels):  # A device plugin that starts again withdraws the label for a moment.
        state.forest.sized(node.ref.name, memory, node.labels.get(GPU_PRODUCT, ""), cause)


def _node_gone(state: Any, at: Position, event: NodeGone) -> None:
    state.forest.unready.pop(event.ref.name, None)
    state.forest.node(event.ref.uid, None, Cause(at.seq, at.item))
    state.forest.sized(event.ref.name, 0, "", Cause(at.seq, at.item))
