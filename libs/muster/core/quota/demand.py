"""The declarations of a workload, and the values of the ledger: demand, charge, queued request.

A workload declares its priority and whether it may be preempted (labels of KAI), and its longest run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct, field

from muster.core.objects.meta import (
    CHOICES,
    DRAIN,
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    KAI_PRIORITY,
    KAI_QUEUE,
    KAI_STALENESS,
    NODE_WAIT,
    PREEMPTIBLE,
    RUN_TIME,
    STAMPS,
    TIMES,
    is_preemptible,
)
from muster.core.quota.trees.rules import RuleError, span_ms, span_or
from muster.events.base import Cause
from muster.model.demand import Demand
from muster.model.keys import path_chain
from muster.model.placing import GPU
from muster.model.problem import FieldProblem, problem
from muster.model.problemcodes import ProblemCode
from muster.model.quota import JOBS, MACHINES, QuotaNode, QuotaTree
from muster.model.resources import Vector
from muster.model.strategies import inherited, strategies_text
from muster.model.workload import Workload

# --- declared ---------------------------------------------------------------------------------------------------------


CLASSES: Mapping[str, int] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The shipped PriorityClasses (deploy/kai): in force under these names also where not applied."""
DEFAULT_CLASS = "train"
FIRM = 100
"""Work of this priority and higher is not preemptible, and stays within its quota."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

AROUND_MS = 2 * MINUTE_MS
"""The time to start and to stop, beside each declared run time: the charge begins before the run and ends after it."""


def kai_class(workload: Workload) -> str:
    """The name of the PriorityClass: the workload's label, or else the class of the pods, or else ``train``."""
    return workload.labels.get(KAI_PRIORITY, "") or workload.priority_class or DEFAULT_CLASS


def kai_priority(workload: Workload, classes: Mapping[str, int]) -> int:
    """The priority: of the label's class, or else the number in the pods, or else of the pods' class, or else of
    ``train``.

    ``classes``: the existing PriorityClasses. A class that neither exists nor is shipped counts as ``train``.
    """
    name = kai_class(workload)
    if not workload.labels.get(KAI_PRIORITY) and workload.priority is not None:
        return workload.priority
    value = classes.get(name, CLASSES.get(name))
    return CLASSES[DEFAULT_CLASS] if value is None else value


def kai_preemptible(workload: Workload, priority: int | None) -> bool:
    """The value of the label; without a label, whether the priority is below FIRM."""
    declared = workload.labels.get(KAI_PREEMPTIBILITY, "")
    if declared in PREEMPTIBILITY:
        return declared == PREEMPTIBILITY[0]
    return (kai_priority(workload, {}) if priority is None else priority) < FIRM


def preemption_delay_ms(labels: Mapping[str, str]) -> int:
    """How long work waits before other work may be suspended for it; 0 without a declared time, and outside KAI
    queues.
    """
    declared = labels.get(KAI_PREEMPTION_DELAY, "")
    return span_or(declared, 0) if labels.get(KAI_QUEUE) else 0


def run_time_ms(labels: Mapping[str, str]) -> int:
    """The declared run time of a job, rounded up to few steps: jobs with one request and one step are refused together.

    The step is a minute up to 1 hour, 5 minutes up to 6 hours, half an hour up to a day, then an hour. 0 without a
    readable declaration.
    """
    declared = span_or(labels.get(RUN_TIME, ""), 0)
    step = HOUR_MS
    if declared <= HOUR_MS:
        step = MINUTE_MS
    elif declared <= 6 * HOUR_MS:
        step = 5 * MINUTE_MS
    elif declared <= DAY_MS:
        step = 30 * MINUTE_MS
    return -(-declared // step) * step


def settings_left_out(workload: Workload) -> tuple[FieldProblem, ...]:
    """The settings of a workload with a value that no reader understands: each counts as absent."""
    labels, wrong = workload.labels, []
    for key in TIMES:
        text = labels.get(key, "")
        if text and not (key == KAI_STALENESS and text.startswith("-")):
            wrong += _left_out(key, text)
    if workload.elastic is not None:
        wrong += _left_out(DRAIN, workload.elastic.drain)
        wrong += _left_out(NODE_WAIT, workload.elastic.node_wait)
    choices = dict(CHOICES)
    choices |= dict.fromkeys(PREEMPTIBLE, ("true", "false"))
    choices[KAI_PREEMPTIBILITY] = PREEMPTIBILITY
    for key in sorted(labels):
        if key in choices and labels[key] not in choices[key]:
            code: ProblemCode = "neither" if len(choices[key]) == 2 else "none_of"
            because = problem("", code, value=labels[key], choices=choices[key])
            wrong.append(problem("", "annotation", because, key=key))
        elif key in STAMPS:
            wrong.append(problem("", "annotation", problem("", "not_a_time", value=labels[key]), key=key))
    return tuple(wrong)


def _left_out(key: str, text: str) -> list[FieldProblem]:
    """The error of a span of time that cannot be read."""
    try:
        span_ms(text or "0")
    except RuleError as err:
        return [problem("", "annotation", err.problem, key=key)]
    return []


def left_by(at: int, run_ms: int) -> int:
    """Log time (ms) by which a job has left after a charge at ``at``; 0 without a declared run time."""
    return at + run_ms + AROUND_MS if run_ms else 0


# --- demand -----------------------------------------------------------------------------------------------------------


ONE = 1000
"""One unit of a counted resource, in base units."""

chain_of = lru_cache(maxsize=65536)(path_chain)


class Charge(Struct):
    """The charge of one workload, and its leaf."""

    namespace: str
    queue: str
    request: Vector
    pods: int = 0
    preemptible: bool = True
    named: str = ""
    """The quota named by the label; empty when the namespace decides."""
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that runs beyond the grant."""
    until: int = 0
    """Log time (ms) by which the workload has left if its declaration is true; 0 without a declared run time."""
    priority: int = 0
    """The priority in its last queueing; 0 for adopted work, never queued."""
    begun: Cause = Cause(0, 0)
    """The event that charged the workload."""

    @property
    def rank(self) -> tuple[int, bool, Cause]:
        """The order in which the guarantee of a queue counts for its jobs: higher priority first, work beyond its grant
        last of its priority, then what began first.
        """
        return -self.priority, bool(self.over), self.begun

    @property
    def demand(self) -> Demand:
        return Demand(self.request, self.pods, self.preemptible)

    @property
    def granted(self) -> Vector:
        """The granted amounts of the resources in ``over``."""
        return {name: self.request[name] - amount for name, amount in self.over.items()}


class QueuedRequest(Struct, frozen=True):
    """The request of a waiting workload under an attempt."""

    attempt: int
    queue: str
    request: Vector
    priority: int = 0


class Scratch(Struct):
    """Charges decided or proposed, and not in the ledger yet: path -> vector on top of the ledger."""

    extra: dict[str, Vector] = field(default_factory=dict)
    firm: dict[str, Vector] = field(default_factory=dict)
    """The part of ``extra`` that is not preemptible."""

    def add(self, queue: str, demand: Demand, times: int = 1) -> None:
        """Add a demand to every node on the path; a negative ``times`` takes the demand off."""
        amounts = counted(demand)
        spread(self.extra, queue, amounts, times)
        if not demand.preemptible:
            spread(self.firm, queue, amounts, times)


def counted(of: Demand | Charge) -> Vector:
    """The request and the counted resources: jobs and machines."""
    amounts = dict(of.request)
    jobs = of.jobs if isinstance(of, Demand) else 1
    if jobs:
        amounts[JOBS] = ONE * jobs
    if of.pods:
        amounts[MACHINES] = of.pods * ONE
    return amounts


def spread(totals: dict[str, Vector], queue: str, amounts: Vector, times: int) -> None:
    for path in chain_of(queue):
        vector = totals.get(path)
        if vector is None:
            vector = totals[path] = {}
        for name, amount in amounts.items():  # As add_into does, inline: the most frequent call.
            value = vector.get(name, 0) + amount * times
            if value:
                vector[name] = value
            else:
                vector.pop(name, None)
        if not vector:
            del totals[path]


def lent_beside(nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector], queue: str, demand: Demand) -> bool:
    """Whether a node beside the path of ``queue`` uses more than its guarantee of the requested resources.

    ``nodes``, ``used``: path -> node, and path -> usage.
    """
    chain = chain_of(queue)
    for path in chain:
        for child in nodes[path].children if path in nodes else ():
            uses = used.get(child)
            if uses and child not in chain:
                least = nodes[child].guaranteed
                for name in demand.request:
                    if uses.get(name, 0) > least.get(name, 0):
                        return True
    return False


def laid_out(nodes: Mapping[str, QuotaNode], queue: str) -> str:
    """The placement strategies for the pods of a job, from its leaf and the nodes above; empty without any."""
    placements = [
        nodes[path].placement for path in reversed(chain_of(queue)) if path in nodes and nodes[path].placement
    ]
    return strategies_text(inherited(placements)) if placements else ""


def need_of(tree: QuotaTree | None, workload: Workload) -> Vector:
    """The request of a workload as its tree counts it."""
    return _in_parts(tree, workload, workload.need.get(tree.profile if tree is not None else "ack", {}))


def asks_of(tree: QuotaTree | None, workload: Workload) -> Vector:
    """The request of all pods of the spec, whatever the tree leaves out."""
    return _in_parts(tree, workload, workload.asks)


def _in_parts(tree: QuotaTree | None, workload: Workload, request: Vector) -> Vector:
    if tree is None or not tree.gpu_memory or GPU not in request:
        return request
    return tree.gpus.in_parts(request, workload.gpu_memory)


def demand_of(tree: QuotaTree | None, workload: Workload, priority: int | None = None) -> Demand:
    """The demand of a workload under the request profile of its tree.

    ``priority``: where known, and where the rules of the tree use priorities to tell preemptible work.
    """
    need = need_of(tree, workload)
    preemptible = is_preemptible(workload.labels)
    if tree is not None and tree.by_shares:
        preemptible = kai_preemptible(workload, priority)
    declared = run_time_ms(workload.labels)
    pods = sum([pod_set.count for pod_set in workload.pod_sets])
    return Demand(need, pods, preemptible, run_ms=declared, basis=workload.basis)
