"""KAI queues as a source of the quota model: all of them are one tree, and what it shares is what the nodes have.

What there is to share is what the nodes that are ready can give: the limit of the root. Whenever a queue or a node
changes that, the tree is due again. One broken queue disables what is below it, so the tree itself is never refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field, structs

from muster.core.quota.trees.kai import Compiled, compile_queues
from muster.core.quota.trees.rules import USAGE_WINDOW_MS
from muster.core.quota.trees.tree import MAX_TREE_BYTES
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.facts import KaiQueueGone, KaiQueueObserved, ObjectGone
from muster.events.registry import encode
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree, Rules
from muster.model.resources import EVERYTHING, Vector

SHARD = "queues_scheduling_run_ai"
"""The watcher shard that lists the queues."""
REF = Ref("Queue.scheduling.run.ai", "", "kai", "kai-queues")
"""What the tree is called: it has no object of its own."""
DEFAULT_QUEUE = "default-queue"
"""The queue that takes what names none, where there is one."""
RULES = Rules(reclaim="enabled", preempt_lower_priority=True)
EMPTY = Compiled(())


class KaiSource(Struct):
    """The queues as they were observed last, and the tree they come to."""

    OBSERVED: ClassVar[type[Event]] = KaiQueueObserved
    GONE: ClassVar[type[ObjectGone]] = KaiQueueGone
    SHARDS: ClassVar[tuple[str, ...]] = ("elasticquotatrees", SHARD, "nodes")
    """ElasticQuotaTrees too: they say which namespaces are taken."""

    queues: dict[str, KaiQueue] = field(default_factory=dict)
    """uid -> queue"""
    total: Vector = field(default_factory=dict)
    compiled: Compiled = EMPTY
    tree: QuotaTree | None = None
    """What should be in force; None while there is no queue."""
    count: int = 0
    """How often that has changed."""
    cause: Cause = Cause(0, 0)
    """The newest event that changed it."""

    def observed(self, event: KaiQueueObserved, cause: Cause) -> None:
        """A queue exists and says this."""
        if self.queues.get(event.queue.ref.uid) != event.queue:
            self.queues[event.queue.ref.uid] = event.queue
            self._compile(cause)

    def gone(self, uid: str, cause: Cause) -> None:
        if self.queues.pop(uid, None) is not None:
            self._compile(cause)

    def nodes_give(self, total: Vector, cause: Cause) -> None:
        """What the root of the tree has to share."""
        self.total = dict(total)
        self._install(cause)

    def removed(self, uid: str) -> None:
        """Nothing to do: the tree has no object of its own."""

    def _compile(self, cause: Cause) -> None:
        self.compiled = compile_queues(self.queues.values())
        self._install(cause)

    def _install(self, cause: Cause) -> None:
        """The tree as it should be now; the same one where what changed is no concern of the queues."""
        tree = tree_of(self.compiled, self.total) if self.compiled.nodes else None
        if tree != self.tree:
            self.tree, self.cause = tree, cause
            self.count += 1

    def decisions_due(
        self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]
    ) -> Iterator[QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved]:
        """The decision that brings the tree in force in line with the observed queues."""
        if self.tree is None:
            if KAI_ROOT in trees:
                yield QuotaTreeRemoved(cause=self.cause, ref=REF)
        elif judged.get(REF.uid) != self.count:
            yield self._judged(self.tree)

    def _judged(self, tree: QuotaTree) -> QuotaTreeAccepted | QuotaTreeRejected:
        if (size := len(encode(tree))) > MAX_TREE_BYTES:
            broken = (problem(KAI_ROOT, "queues_bytes", count=size, most=MAX_TREE_BYTES),)
            return QuotaTreeRejected(cause=self.cause, ref=REF, rv=self.count, violations=broken)
        disabled = sorted(self.compiled.disabled.items())
        warnings = (
            *self.compiled.warnings,
            *(problem("", "queue_disabled", why, queue=name) for name, why in disabled),
        )
        return QuotaTreeAccepted(cause=self.cause, tree=tree, rv=self.count, warnings=warnings[:100])


def tree_of(compiled: Compiled, total: Mapping[str, int]) -> QuotaTree:
    """The tree of some queues; ``total``: what there is to share, in base units."""
    nodes, names = compiled.nodes, managed(compiled.nodes)
    limit = {name: total.get(name, 0) for name in names}
    root = structs.replace(nodes[0], guaranteed=dict.fromkeys(names, EVERYTHING), limit=limit)
    default = next((node.path for node in nodes[1:] if node.name == DEFAULT_QUEUE and not node.children), "")
    rules = dict(compiled.rules)
    if rules.get("usage_half_life_ms"):
        rules.setdefault("usage_window_ms", USAGE_WINDOW_MS)
    return QuotaTree(
        REF,
        (root, *(structs.replace(node, preempts=True) for node in nodes[1:])),
        profile="full",
        rules=structs.replace(RULES, unbound_queue=default, **rules),
        rule_profile="kai",
        disabled=compiled.disabled,
    )


def managed(nodes: Iterable[QuotaNode]) -> list[str]:
    """The resources that queues speak of, sorted."""
    return sorted({name for node in nodes for name in node.weight})
