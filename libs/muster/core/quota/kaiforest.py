"""The tree of all KAI queues as the accountant puts it in force: compiled from the queues and the nodes that exist.

What there is to share is what the nodes that are ready can give: the limit of the root. Whenever a queue or a node
changes that, the tree is due again. One broken queue disables what is below it, so the tree itself is never refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field, structs

from muster.core.quota.kai import Compiled, compile_queues
from muster.core.quota.tree import MAX_TREE_BYTES
from muster.events.base import Cause
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.registry import encode
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT, BrokenRule, QuotaNode, QuotaTree, Rules
from muster.model.resources import EVERYTHING, Vector, add_into
from muster.model.workload import NodeState

SHARD = "queues_scheduling_run_ai"
"""The watcher shard that lists the queues."""
REF = Ref("Queue.scheduling.run.ai", "", "kai", "kai-queues")
"""What the tree is called: it has no object of its own."""
RULES = Rules(reclaim="enabled", preempt_lower_priority=True)
EMPTY = Compiled(())


class Forest(Struct):
    """The queues and nodes as they were observed last, and the tree they come to."""

    queues: dict[str, KaiQueue] = field(default_factory=dict)
    """uid -> queue"""
    nodes: dict[str, Vector] = field(default_factory=dict)
    """uid of a node that is ready -> what it can give"""
    total: Vector = field(default_factory=dict)
    compiled: Compiled = EMPTY
    tree: QuotaTree | None = None
    """What should be in force; None while there is no queue."""
    version: int = 0
    """How often that has changed."""
    cause: Cause = Cause(0, 0)
    """The newest event that changed it."""

    def queue(self, queue: KaiQueue, cause: Cause) -> None:
        """A queue exists and says this."""
        if self.queues.get(queue.ref.uid) != queue:
            self.queues[queue.ref.uid] = queue
            self._compile(cause)

    def queue_gone(self, uid: str, cause: Cause) -> None:
        if self.queues.pop(uid, None) is not None:
            self._compile(cause)

    def node(self, node: NodeState, cause: Cause) -> None:
        """A node exists and looks like this."""
        gives = node.allocatable if node.ready else {}
        self._node(node.ref.uid, gives, cause)

    def node_gone(self, uid: str, cause: Cause) -> None:
        self._node(uid, {}, cause)

    def _node(self, uid: str, gives: Vector, cause: Cause) -> None:
        before = self.nodes.get(uid, {})
        if gives == before:
            return
        add_into(self.total, before, -1)
        add_into(self.total, gives)
        if gives:
            self.nodes[uid] = dict(gives)
        else:
            del self.nodes[uid]
        self._install(cause)

    def _compile(self, cause: Cause) -> None:
        self.compiled = compile_queues(self.queues.values())
        self._install(cause)

    def _install(self, cause: Cause) -> None:
        """The tree as it should be now; the same one where what changed is no concern of the queues."""
        tree = tree_of(self.compiled, self.total) if self.compiled.nodes else None
        if tree != self.tree:
            self.tree, self.cause = tree, cause
            self.version += 1


def tree_of(compiled: Compiled, total: Mapping[str, int]) -> QuotaTree:
    """The tree of some queues; ``total``: what there is to share, in base units."""
    nodes, names = compiled.nodes, managed(compiled.nodes)
    limit = {name: total.get(name, 0) for name in names}
    root = structs.replace(nodes[0], guaranteed=dict.fromkeys(names, EVERYTHING), limit=limit)
    return QuotaTree(
        REF,
        (root, *(structs.replace(node, preempts=True) for node in nodes[1:])),
        profile="full",
        rules=RULES,
        rule_profile="kai",
        disabled=compiled.disabled,
    )


def managed(nodes: Iterable[QuotaNode]) -> list[str]:
    """The resources that queues speak of, sorted."""
    return sorted({name for node in nodes for name in node.weight})


def due(
    forest: Forest, judged: int | None, *, in_force: bool
) -> QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved | None:
    """The decision that brings the tree in force in line with what is observed. ``judged``: version decided on last."""
    if forest.tree is None:
        return QuotaTreeRemoved(cause=forest.cause, ref=REF) if in_force else None
    if judged == forest.version:
        return None
    if (size := len(encode(forest.tree))) > MAX_TREE_BYTES:
        said = f"the queues take {size} bytes in the log, over {MAX_TREE_BYTES}; delete some, or shorten their names"
        broken = (BrokenRule(KAI_ROOT, "size", said),)
        return QuotaTreeRejected(cause=forest.cause, ref=REF, rv=forest.version, violations=broken)
    warnings = [str(each) for each in forest.compiled.warnings]
    warnings += [f"queue {name} is disabled: {reason}" for name, reason in sorted(forest.compiled.disabled.items())]
    return QuotaTreeAccepted(cause=forest.cause, tree=forest.tree, rv=forest.version, warnings=tuple(warnings[:100]))
