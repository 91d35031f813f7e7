"""The one quota model: what is observed of every quota API, compiled to trees before the accountant looks at it.

Each API is one source: it keeps its objects as observed last, compiles them to trees of nodes (guarantee, limit,
weight, priority), and says by which decisions the trees in force are brought in line with that. What is behind the
trees asks for their rules and never for their API. A further API is a further file like ``treesource`` and
``kaisource``, and a row in SOURCES. What the nodes can give is counted once, for every source whose trees need a total.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

from msgspec import Struct, field

from muster.core.quota.trees.kaisource import KaiSource
from muster.core.quota.trees.treesource import TreeSource
from muster.core.stage import Arm
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.facts import NodeGone, NodeObserved, ObjectGone
from muster.model.keys import Position
from muster.model.quota import QuotaTree
from muster.model.resources import Vector, add_into

TreeDecision = QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved


class QuotaSource(Protocol):
    """One quota API."""

    OBSERVED: ClassVar[type[Event]]
    GONE: ClassVar[type[ObjectGone]]
    SHARDS: ClassVar[tuple[str, ...]]
    """What must have been listed before it says anything."""

    def observed(self, event: Any, cause: Cause) -> None:
        """One of its objects exists and says this."""
        ...

    def gone(self, uid: str, cause: Cause) -> None:
        """One of its objects exists no longer."""
        ...

    def nodes_give(self, total: Vector, cause: Cause) -> None:
        """The nodes that are ready can give so much in all."""
        ...

    def removed(self, uid: str) -> None:
        """No tree of that object is in force any more, or none ever was."""
        ...

    def decisions_due(self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]) -> Iterator[TreeDecision]:
        """The decisions that bring the trees in force in line. ``judged``: object uid -> version decided on last."""
        ...


class Forest(Struct):
    """What was observed last, by source."""

    kai: KaiSource = field(default_factory=KaiSource)
    elastic: TreeSource = field(default_factory=TreeSource)
    nodes: dict[str, Vector] = field(default_factory=dict)
    """uid of a node that is ready -> what it can give"""
    total: Vector = field(default_factory=dict)
    judged: dict[str, int] = field(default_factory=dict)
    """uid of the object of a tree -> its version that was decided on last"""

    def node(self, uid: str, gives: Vector, cause: Cause) -> None:
        """A node can give so much; nothing while it is not ready, or gone."""
        before = self.nodes.get(uid, {})
        if gives == before:
            return
        add_into(self.total, before, -1)
        add_into(self.total, gives)
        if gives:
            self.nodes[uid] = dict(gives)
        else:
            del self.nodes[uid]
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            source.nodes_give(self.total, cause)

    def decided(self, event: QuotaTreeAccepted | QuotaTreeRejected) -> None:
        """A version of a tree was judged."""
        uid = event.tree.ref.uid if isinstance(event, QuotaTreeAccepted) else event.ref.uid
        self.judged[uid] = event.rv

    def removed(self, uid: str, trees: Mapping[str, QuotaTree]) -> None:
        """A tree is out of force, so what was refused for its sake is judged again. ``trees``: those in force."""
        force = {tree.ref.uid for tree in trees.values()}
        self.judged = {uid: version for uid, version in self.judged.items() if uid in force}
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            source.removed(uid)

    def decisions_due(self, trees: Mapping[str, QuotaTree], unsynced: Mapping[str, None]) -> Iterator[TreeDecision]:
        """The decisions that bring the trees in force in line with the observed objects. ``unsynced``: kinds that are
        not listed yet.
        """
        for name in SOURCES:
            source: QuotaSource = getattr(self, name)
            if not any(shard in unsynced for shard in source.SHARDS):
                yield from source.decisions_due(trees, self.judged)


SOURCES: Mapping[str, type[QuotaSource]] = {"kai": KaiSource, "elastic": TreeSource}
"""field of Forest -> the API, in the order in which they are decided on"""


def arms() -> dict[type[Event], Arm]:
    """How the forest of a state follows the facts."""
    found: dict[type[Event], Arm] = {NodeObserved: _node_observed, NodeGone: _node_gone}
    for name, source in SOURCES.items():
        found[source.OBSERVED], found[source.GONE] = _observed(name), _gone(name)
    return found


def _observed(name: str) -> Arm:
    def arm(state: Any, at: Position, event: Any) -> None:
        getattr(state.forest, name).observed(event, Cause(at.seq, at.item))

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
    node = event.node
    state.forest.node(node.ref.uid, node.allocatable if node.ready else {}, Cause(at.seq, at.item))


def _node_gone(state: Any, at: Position, event: NodeGone) -> None:
    state.forest.node(event.ref.uid, {}, Cause(at.seq, at.item))
