"""The changes by another quota tree: its nodes, and the effect on running and waiting jobs. Pure."""

from __future__ import annotations

import copy
from collections.abc import Collection

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.queueing.queues import Job
from muster.core.quota.claims import Claims
from muster.core.quota.demand import demand_of
from muster.core.quota.ledger.quotaledger import Ledger, leaf_of
from muster.core.quota.trees.kaisource import compile_queues, tree_of
from muster.model.demand import Demand, Shortfall
from muster.model.kaiqueue import KaiQueue
from muster.model.language import say
from muster.model.quota import KAI_ROOT, NO_GPUS, QuotaNode, QuotaTree
from muster.model.resources import Vector, format_quantity
from muster.model.workload import Workload
from muster.told.readmodel.readstate import ReadState
from muster.told.wording.explain import amounts, terms


class FieldChange(Struct, frozen=True):
    """One field of a node, or of the tree for an empty path, before and after; ``-`` where there is nothing."""

    path: str
    what: str
    before: str
    after: str


class Excess(Struct, frozen=True):
    """A node with more use than the new max: nothing is admitted there until the use is below the max."""

    path: str
    resource: str
    used: str
    limit: str


class Affected(Struct, frozen=True):
    """A waiting job with another outcome. ``why``: the new refusal, if any."""

    job: str
    queue: str
    why: str = ""


class TreeDifference(Struct, frozen=True):
    """Everything another tree would change."""

    seq: int
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[FieldChange] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Annotations of the tree in force that the file does not name: applying the file leaves the annotations in place.
    """
    over: list[Excess] = field(default_factory=list)
    fits: list[Affected] = field(default_factory=list)
    """Refused now, and there would be room."""
    refused: list[Affected] = field(default_factory=list)
    """Room now, and there would be none."""
    hopeless: list[Affected] = field(default_factory=list)
    """The request would be above the max: the jobs could never start."""
    unqueued: list[Affected] = field(default_factory=list)
    """No quota would claim the jobs, so the jobs would leave their queue."""
    unclaimed: list[Affected] = field(default_factory=list)
    """Running, and no quota would claim the jobs: the charges stay in place."""


LEVERS: dict[str, tuple[str, ...]] = {"paused": ("paused", "paused_by", "paused_reason"), "reclaim": ("reclaim",)}
"""Annotations that commands set on the tree -> the rules of the annotation. A file without the annotation keeps the
rules.
"""


def difference(state: ReadState, tree: QuotaTree, stated: Collection[str] = tuple(LEVERS)) -> TreeDifference:
    """From the tree in force to another tree, as of now. ``stated``: the annotations in the new tree itself."""
    old = state.queues.ledger.trees.get(tree.root)
    kept = {
        name: {rule: getattr(old.rules, rule) for rule in rules}
        for name, rules in LEVERS.items()
        if old is not None and name not in stated and getattr(old.rules, name) != getattr(tree.rules, name)
    }
    for rules in kept.values():
        tree = replace(tree, rules=replace(tree.rules, **rules))
    new: Ledger = copy.deepcopy(state.queues.ledger)
    new.claims = Claims()
    new.install(tree)
    before = {node.path: node for node in old.nodes} if old is not None else {}
    after = {node.path: node for node in tree.nodes}
    made = TreeDifference(
        state.seq,
        kept=sorted(kept),
        added=[path for path in after if path not in before],
        removed=[path for path in before if path not in after],
        changed=[*_rules(old, tree), *(change for path in after for change in _node(before.get(path), after[path]))],
        over=[excess for node in tree.nodes for excess in _excess(node, new.used.get(node.path, {}))],
    )
    _judge_waiting(state, new, made)
    for uid, charge in sorted(new.charges.items(), key=lambda pair: (pair[1].queue, pair[0])):
        if new.leaf_for(charge.namespace, charge.named) is None:
            workload = state.queues.workloads.get(uid) or state.lone.get(uid)
            key = workload.ref.key if workload is not None else f"{charge.namespace}/(deleted)"
            made.unclaimed.append(Affected(key, charge.queue))
    return made


def with_queues(state: ReadState, queues: Collection[KaiQueue]) -> QuotaTree:
    """The tree of the present KAI queues, with ``queues`` in place of queues with the same name, as after `kubectl
    apply`.
    """
    named = {queue.name for queue in queues}
    there = [kai_queue for kai_queue in state.kai_queues.values() if kai_queue.name not in named]
    old = state.queues.ledger.trees.get(KAI_ROOT)
    limit, gpus = ({}, NO_GPUS) if old is None else (old.nodes[0].limit, old.gpus)
    return tree_of(compile_queues([*there, *queues]), limit, gpus=gpus)


def _rules(old: QuotaTree | None, new: QuotaTree) -> list[FieldChange]:
    """How the whole tree is applied."""
    if old is None:
        return []
    pairs = [("request-profile", old.profile, new.profile)]
    pairs += [
        (name.replace("_", "-"), _text(getattr(old.rules, name)), _text(getattr(new.rules, name)))
        for name in new.rules.__struct_fields__
    ]
    return [FieldChange("", name, before or "-", after or "-") for name, before, after in pairs if before != after]


def _text(value: object) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _node(old: QuotaNode | None, new: QuotaNode) -> list[FieldChange]:
    if old is None:
        return []
    changes = []
    for part, before, after in (
        ("min", old.guaranteed, new.guaranteed),
        ("max", old.limit, new.limit),
        (say("not lent"), old.kept, new.kept),
        ("weight", old.weight, new.weight),
    ):
        changes += [
            FieldChange(new.path, f"{part} {name}", _amount(before, name), _amount(after, name))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
    if old.preempts != new.preempts:
        changes.append(
            FieldChange(new.path, say("preempts lower priority"), *(_yes(node.preempts) for node in (old, new)))
        )
    if sorted(old.namespaces) != sorted(new.namespaces):
        shown = [", ".join(sorted(namespaces)) or "-" for namespaces in (old.namespaces, new.namespaces)]
        changes.append(FieldChange(new.path, "namespaces", *shown))
    return changes


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _amount(amounts: Vector, name: str) -> str:
    return format_quantity(amounts[name], name) if name in amounts else "-"


def _excess(node: QuotaNode, used: Vector) -> list[Excess]:
    return [
        Excess(node.path, name, format_quantity(used[name], name), format_quantity(limit, name))
        for name, limit in sorted(node.limit.items())
        if used.get(name, 0) > limit
    ]


def _judge_waiting(state: ReadState, new: Ledger, difference: TreeDifference) -> None:
    """Each waiting job alone: whether the job would find room at once."""
    old = state.queues.ledger.without_claims()
    waiting = [
        job
        for uid, job in state.queues.jobs.items()
        if uid not in state.queues.ledger.charges and uid in state.queues.workloads
    ]
    for job in sorted(waiting, key=lambda job: (job.queue, job.place)):
        workload = state.queues.workloads[job.ref.uid]
        leaf = leaf_of(new, workload)
        if leaf is None:
            difference.unqueued.append(Affected(job.ref.key, job.queue))
            continue
        before, after = old.shortfall(job.queue, job.demand), new.shortfall(leaf, _demand(new, leaf, job, workload))
        if after is None and before is not None:
            difference.fits.append(Affected(job.ref.key, leaf))
        elif after is not None and after.hopeless and not (before is not None and before.hopeless):
            difference.hopeless.append(Affected(job.ref.key, leaf, _why(after)))
        elif after is not None and before is None:
            difference.refused.append(Affected(job.ref.key, leaf, _why(after)))


def _demand(new: Ledger, leaf: str, job: Job, workload: Workload) -> Demand:
    return demand_of(new.tree_of(leaf), workload, job.priority)


def _why(short: Shortfall) -> str:
    term = terms(short.path)
    words = amounts(short, term.least if short.of_min else term.most)
    return say("{resource} in {path}: {amounts}", resource=short.resource, path=short.path, amounts=words)
