"""KAI queues compiled to one quota tree: the queues in force, the disabled queues with reasons, and warnings.

A broken queue (parent missing, numbers unreadable, parents in a circle) disables itself and the queues below, and no
other queue: so the tree is never refused for a queue. Quotas above their parent's quota are a warning: nothing
guarantees such quotas.

The shared total is the capacity of the ready nodes. It is the limit of the root too. Where gangs are placed, nodes that
are not ready count for the limit: what still runs there evicts and refuses no work elsewhere. When a change of a queue
or a node changes the tree, the tree is due again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from msgspec import Struct, field, structs

from muster.core.objects.meta import PREFIX
from muster.core.quota.trees.rules import USAGE_WINDOW_MS, RuleError, read_usage, span_ms
from muster.core.quota.trees.treesource import MAX_DEPTH, MAX_NODES, MAX_PATH, MAX_TREE_BYTES
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.facts import KaiQueueGone, KaiQueueObserved, ObjectGone
from muster.events.registry import encode
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.problem import FieldProblem, problem
from muster.model.quota import DEFAULT_QUEUE_PRIORITY, KAI_ROOT, NO_GPUS, Gpus, QuotaNode, QuotaTree, Rules
from muster.model.resources import EVERYTHING, MAX_AMOUNT, Vector, add_into
from muster.model.strategies import PLACEMENT, StrategyError, strategies, strategies_text

# --- kai --------------------------------------------------------------------------------------------------------------


WHOLE = 1000
UNITS: Mapping[str, int] = {"cpu": 1, "memory": 10**6}
"""resource -> base units in one unit of a Queue; WHOLE for any other resource."""
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_SHOWN_NAMES = 8


class Compiled(Struct, frozen=True):
    """The result of compiling the queues of a cluster."""

    nodes: tuple[QuotaNode, ...]
    """The root, and the queues in force: parents before children, siblings by age."""
    disabled: dict[str, FieldProblem] = field(default_factory=dict)
    """name of a queue out of force -> the reason"""
    warnings: tuple[FieldProblem, ...] = ()
    rules: dict[str, int] = field(default_factory=dict)
    """field of Rules -> the value from the queues at the top"""


def unit_of(resource: str) -> int:
    """The base units in a 1 of a Queue."""
    return UNITS.get(resource, WHOLE)


def compile_queues(
    queues: Iterable[KaiQueue],
    units: Mapping[str, int] | None = None,
    broken: Mapping[str, FieldProblem] | None = None,
) -> Compiled:
    """The tree of the queues, in any order.

    ``units``: base units other than a cluster's, for every resource; ``broken``: {name of a broken queue: the reason}.
    """
    ordered = sorted(queues, key=lambda queue: (queue.created, queue.name, queue.ref.uid))
    named = {queue.name: queue for queue in reversed(ordered)}  # Of two queues with one name the older counts.
    reader = _KaiQueueReader(units)
    known_wrong = broken or {}
    wrong = {name: why for name in sorted(named) if (why := known_wrong.get(name) or reader.read(named[name]))}
    disabled = {name: why for name in sorted(named) if (why := _above(name, named, wrong)) is not None}
    children: dict[str, list[KaiQueue]] = {}
    for kai_queue in ordered:
        if named.get(kai_queue.name) is kai_queue and kai_queue.name not in disabled:
            children.setdefault(kai_queue.parent, []).append(kai_queue)
    nodes: list[QuotaNode] = []
    walk: list[tuple[str, str, KaiQueue | None]] = [(KAI_ROOT, "", None)] if named else []
    while walk:
        path, name, queue = walk.pop()
        below = children.get(name, [])
        paths = tuple(f"{path}/{child.name}" for child in below)
        nodes.append(reader.node(path, paths, queue))
        walk += [(child_path, child.name, child) for child_path, child in reversed([*zip(paths, below, strict=True)])]
    rules, said_twice = _rules(children, reader)
    return Compiled(tuple(nodes), disabled, (*_odd(nodes), *said_twice), rules)


def _rules(
    children: Mapping[str, Sequence[KaiQueue]], reader: _KaiQueueReader
) -> tuple[dict[str, int], list[FieldProblem]]:
    """The rules of all queues, each from the oldest queue at the top with a value; and a warning for each ignored
    value.
    """
    rules: dict[str, int] = {}
    speaker: dict[str, str] = {}
    odd: list[FieldProblem] = []
    for parent, below in children.items():
        for queue in below:
            for name, value in reader.rules[queue.name].items():
                if parent:
                    odd.append(problem(queue.name, "usage_below_the_top"))
                    break
                if rules.setdefault(name, value) != value:
                    key = f"{PREFIX}/{name.removesuffix('_ms').replace('_', '-')}"
                    odd.append(problem(queue.name, "usage_set_twice", queue=speaker[name], key=key))
                speaker.setdefault(name, queue.name)
    return rules, odd


def _above(name: str, named: Mapping[str, KaiQueue], wrong: Mapping[str, FieldProblem]) -> FieldProblem | None:
    """Why a queue is out of force, through its own fault or the fault of a queue above; None in force."""
    chain = [name]
    while True:
        current = chain[-1]
        parent = named[current].parent
        own = wrong.get(current)
        if own is None and parent and parent not in named:
            known = sorted(named)
            some = (*known[:_SHOWN_NAMES], *(("…",) if len(known) > _SHOWN_NAMES else ()))
            own = problem("", "parent_missing", parent=parent, choices=some)
        if own is not None:
            return own if current == name else problem("", "below_disabled", own, queue=current)
        if not parent:
            break
        if parent in chain:
            return problem("", "parents_in_a_circle", circle=" → ".join([*chain[chain.index(parent) :], parent]))
        chain.append(parent)
    if len(chain) >= MAX_DEPTH:
        return problem("", "queue_too_deep", count=len(chain), most=MAX_DEPTH - 1)
    if sum(len(part) + 1 for part in chain) + len(KAI_ROOT) > MAX_PATH:
        return problem("", "queue_path_too_long", most=MAX_PATH)
    return problem("", "many_queues", count=len(named), most=MAX_NODES) if len(named) > MAX_NODES else None


class _KaiQueueReader:
    def __init__(self, units: Mapping[str, int] | None) -> None:
        self.units = units
        self.amounts: dict[str, tuple[Vector, Vector, Vector]] = {}
        self.rules: dict[str, dict[str, int]] = {}

    def read(self, queue: KaiQueue) -> FieldProblem | None:
        """Read the numbers of a queue; returns the first error."""
        if not queue.quota and not queue.limit:
            return problem("spec.resources", "resources_missing")
        vectors: list[Vector] = []
        for which, texts in (("quota", queue.quota), ("limit", queue.limit), ("overQuotaWeight", queue.weight)):
            vector: Vector = {}
            for resource, text in texts.items():
                weighs = which == "overQuotaWeight"
                amount = self._amount(resource, text, weight=weighs)
                if amount is None:
                    values = {"which": which, "value": text, "resource": resource}
                    return problem("spec.resources", "not_a_queue_weight" if weighs else "not_a_queue_amount", **values)
                vector[resource] = amount
            vectors.append(vector)
        for which, text in (("preempt", queue.preempt_min_runtime), ("reclaim", queue.reclaim_min_runtime)):
            try:
                span_ms(text or "0")
            except RuleError as err:
                return err.at(f"spec.{which}MinRuntime")
        try:
            strategies(queue.placement)
        except StrategyError as err:
            return problem("", "annotation", err.problem, key=PLACEMENT)
        self.amounts[queue.name] = (vectors[0], vectors[1], vectors[2])
        self.rules[queue.name], wrong = read_usage(queue.rules)
        return wrong

    def _amount(self, resource: str, text: str, *, weight: bool) -> int | None:
        """The amount in base units, rounded down; -1 for -1; None for an unreadable text."""
        if not _NUMBER.fullmatch(text):
            return None
        number = Fraction(text)
        if number == -1 and not weight:
            return -1
        unit = WHOLE if weight and self.units is None else (self.units or {}).get(resource) or unit_of(resource)
        amount = int(number * unit)
        return amount if number >= 0 and amount <= MAX_AMOUNT else None

    def node(self, path: str, children: tuple[str, ...], queue: KaiQueue | None) -> QuotaNode:
        if queue is None:
            return QuotaNode(path, children=children)
        quota, limit, weight = self.amounts[queue.name]
        return QuotaNode(
            path,
            guaranteed={name: EVERYTHING if amount < 0 else amount for name, amount in quota.items() if amount},
            limit={name: amount for name, amount in limit.items() if amount >= 0},
            children=children,
            weight=weight,
            priority=DEFAULT_QUEUE_PRIORITY if queue.priority is None else queue.priority,
            title=queue.title,
            created=queue.created,
            uid=queue.ref.uid,
            preempt_min_run_ms=span_ms(queue.preempt_min_runtime or "0"),
            reclaim_min_run_ms=span_ms(queue.reclaim_min_runtime or "0"),
            placement=strategies_text(strategies(queue.placement)),
        )


def _odd(nodes: Iterable[QuotaNode]) -> list[FieldProblem]:
    """Quotas without a guarantee, and limits below a quota."""
    known = {node.path: node for node in nodes}
    warnings: list[FieldProblem] = []
    for node in known.values():
        for name, limit in sorted(node.limit.items()):
            quota = node.guaranteed.get(name, 0)
            if EVERYTHING > quota > limit:
                warnings.append(problem(node.path, "quota_over_limit", resource=name, quota=quota, limit=limit))
        if node.path == KAI_ROOT:
            continue
        total: Vector = {}
        for child in node.children:
            add_into(total, known[child].guaranteed)
        for name in sorted(total):
            own = node.guaranteed.get(name, 0)
            if own < total[name] < EVERYTHING:
                warnings.append(problem(node.path, "over_subscribed", resource=name, total=total[name], own=own))
    return warnings


# --- kaisource --------------------------------------------------------------------------------------------------------


SHARD = "queues_scheduling_run_ai"
"""The watcher's shard with the queues."""
REF = Ref("Queue.scheduling.run.ai", "", "kai", "kai-queues")
"""The name of the tree: no object of its own exists."""
DEFAULT_QUEUE = "default-queue"
"""The queue for work that names no queue, if present."""
RULES = Rules(reclaim="enabled", preempt_lower_priority=True)
EMPTY = Compiled(())


class KaiSource(Struct):
    """The last observed queues, and the resulting tree."""

    OBSERVED: ClassVar[type[Event]] = KaiQueueObserved
    GONE: ClassVar[type[ObjectGone]] = KaiQueueGone
    SHARDS: ClassVar[tuple[str, ...]] = ("elasticquotatrees", SHARD, "nodes")
    """ElasticQuotaTrees too: their namespaces are taken."""

    queues: dict[str, KaiQueue] = field(default_factory=dict)
    """uid -> queue"""
    total: Vector = field(default_factory=dict)
    ready: Vector = field(default_factory=dict)
    gpus: Gpus = NO_GPUS
    compiled: Compiled = EMPTY
    tree: QuotaTree | None = None
    """The tree that should be in force; None without a queue."""
    count: int = 0
    """The number of changes of ``tree``."""
    cause: Cause = Cause(0, 0)
    """The newest event that changed ``tree``."""

    def observed(self, event: KaiQueueObserved, cause: Cause) -> None:
        """A queue exists in this state."""
        if self.queues.get(event.queue.ref.uid) != event.queue:
            self.queues[event.queue.ref.uid] = event.queue
            self._compile(cause)

    def gone(self, uid: str, cause: Cause) -> None:
        if self.queues.pop(uid, None) is not None:
            self._compile(cause)

    def nodes_give(self, total: Vector, ready: Vector, gpus: Gpus, cause: Cause) -> None:
        """Set the limit of the root, and the part of the limit that the queues share."""
        self.total, self.ready, self.gpus = dict(total), dict(ready), gpus
        self._install(cause)

    def removed(self, uid: str) -> None:
        """Nothing to do: the tree has no object of its own."""

    def _compile(self, cause: Cause) -> None:
        self.compiled = compile_queues(self.queues.values())
        self._install(cause)

    def _install(self, cause: Cause) -> None:
        """Update the wanted tree; a change without effect on the queues keeps the old tree."""
        tree = tree_of(self.compiled, self.total, self.ready, self.gpus) if self.compiled.nodes else None
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


def tree_of(
    compiled: Compiled, total: Mapping[str, int], ready: Mapping[str, int] | None = None, gpus: Gpus = NO_GPUS
) -> QuotaTree:
    """The tree of some queues, in base units. ``total``: the limit of the root. ``ready``: the part of it that is
    shared; None for all.
    """
    nodes, names = compiled.nodes, managed(compiled.nodes)
    limit = {name: total.get(name, 0) for name in names}
    shared = {name: (total if ready is None else ready).get(name, 0) for name in names}
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
        shared=shared if shared != limit else None,
        gpu_memory=gpus.largest,
        gpu_products=gpus.products,
    )


def managed(nodes: Iterable[QuotaNode]) -> list[str]:
    """The resources named by queues, sorted."""
    return sorted({name for node in nodes for name in node.weight})
