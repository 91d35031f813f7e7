"""What a workload declares, and what is asked of the quota, charged and held.

What a workload declares: its priority and whether it may be preempted (labels of KAI), how long it runs at most.

What is asked of the quota, what is charged, and what is held: the values the ledger counts with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct, field

from muster.core.objects.meta import (
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    KAI_PRIORITY,
    KAI_QUEUE,
    RUN_TIME,
    is_preemptible,
)
from muster.core.quota.trees.rules import span_or
from muster.model.demand import Demand
from muster.model.keys import path_chain
from muster.model.quota import JOBS, MACHINES, QuotaNode, QuotaTree
from muster.model.resources import Vector
from muster.model.strategies import inherited, strategies_text
from muster.model.workload import Workload

# --- declared ---------------------------------------------------------------------------------------------------------


CLASSES: Mapping[str, int] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The PriorityClasses that are shipped (deploy/kai): in force under these names also where they are not applied."""
DEFAULT_CLASS = "train"
FIRM = 100
"""From this priority on, work is not preemptible, and stays within its quota."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

AROUND_MS = 2 * MINUTE_MS
"""To start and to stop take so long beside each declared run time: its charge begins before and ends after it."""


def kai_class(workload: Workload) -> str:
    """The PriorityClass by name: of the label on the workload, else of its pods, else ``train``."""
    return workload.labels.get(KAI_PRIORITY, "") or workload.priority_class or DEFAULT_CLASS


def kai_priority(workload: Workload, classes: Mapping[str, int]) -> int:
    """Its priority: of the label's class, else the number in its pods, else of their class, else that of ``train``.

    ``classes``: the PriorityClasses that exist. One that does not, and is not shipped either, counts as ``train``.
    """
    name = kai_class(workload)
    if not workload.labels.get(KAI_PRIORITY) and workload.priority is not None:
        return workload.priority
    found = classes.get(name, CLASSES.get(name))
    return CLASSES[DEFAULT_CLASS] if found is None else found


def kai_preemptible(workload: Workload, priority: int | None) -> bool:
    """What its label says, else whether its priority is below FIRM."""
    said = workload.labels.get(KAI_PREEMPTIBILITY, "")
    if said in PREEMPTIBILITY:
        return said == PREEMPTIBILITY[0]
    return (kai_priority(workload, {}) if priority is None else priority) < FIRM


def preemption_delay_ms(labels: Mapping[str, str]) -> int:
    """How long work waits before others may be suspended for it; 0 unless it says a time, and outside KAI queues."""
    said = labels.get(KAI_PREEMPTION_DELAY, "")
    return span_or(said, 0) if labels.get(KAI_QUEUE) else 0


def run_time_ms(labels: Mapping[str, str]) -> int:
    """How long a job declares to run, rounded up to few steps: jobs of one request and one step are refused together.

    Minutes up to an hour, five minutes up to six, half hours up to a day, then hours. 0 where it declares nothing that
    can be read.
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


def left_by(at: int, run_ms: int) -> int:
    """Log time (ms) by which a job that takes its quota at ``at`` has left; 0 where it declares no run time."""
    return at + run_ms + AROUND_MS if run_ms else 0


# --- demand -----------------------------------------------------------------------------------------------------------


ONE = 1000
"""One of a counted resource, in base units."""

chain_of = lru_cache(maxsize=65536)(path_chain)


class Charge(Struct):
    """What one workload is charged with, and where."""

    namespace: str
    queue: str
    request: Vector
    pods: int = 0
    preemptible: bool = True
    named: str = ""
    """The quota its label names; empty when its namespace decides."""
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that runs beyond what was granted."""
    until: int = 0
    """Log time (ms) by which it has left if what it declares is true; 0 where it declares no run time."""

    @property
    def demand(self) -> Demand:
        return Demand(self.request, self.pods, self.preemptible)

    @property
    def granted(self) -> Vector:
        """What of the resources in ``over`` was granted."""
        return {name: self.request[name] - amount for name, amount in self.over.items()}


class QueuedRequest(Struct, frozen=True):
    """What a workload asks for while it waits under an attempt."""

    attempt: int
    queue: str
    request: Vector


class Scratch(Struct):
    """Charges that are decided or proposed but not in the ledger yet: path -> vector on top of it."""

    extra: dict[str, Vector] = field(default_factory=dict)
    firm: dict[str, Vector] = field(default_factory=dict)
    """The part of it that is not preemptible."""

    def add(self, queue: str, demand: Demand, times: int = 1) -> None:
        """Put a demand on top of every node on the path (or, with a negative ``times``, take it off)."""
        amounts = counted(demand)
        spread(self.extra, queue, amounts, times)
        if not demand.preemptible:
            spread(self.firm, queue, amounts, times)


def counted(of: Demand | Charge) -> Vector:
    """The request together with the resources that are counted rather than requested."""
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
        for name, amount in amounts.items():  # as add_into does: this is called most of all
            value = vector.get(name, 0) + amount * times
            if value:
                vector[name] = value
            else:
                vector.pop(name, None)
        if not vector:
            del totals[path]


def lent_beside(nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector], queue: str, demand: Demand) -> bool:
    """Whether a node beside the path of ``queue`` uses more than its guarantee of the requested resources.

    ``nodes``, ``used``: path -> node, and what it uses.
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
    """How the pods of a job are laid out on nodes, by the words of its leaf and those above it; empty: none says."""
    said = [nodes[path].placement for path in reversed(chain_of(queue)) if path in nodes and nodes[path].placement]
    return strategies_text(inherited(said)) if said else ""


def demand_of(tree: QuotaTree | None, workload: Workload, priority: int | None = None) -> Demand:
    """What a workload asks for under the profile of the tree it belongs to.

    ``priority``: where the rules of the tree decide by it which work is preemptible, and it is known.
    """
    need = workload.need.get(tree.profile if tree else "ack", {})
    preemptible = is_preemptible(workload.labels)
    if tree is not None and tree.by_shares:
        preemptible = kai_preemptible(workload, priority)
    declared = run_time_ms(workload.labels)
    pods = sum([each.count for each in workload.pod_sets])
    return Demand(need, pods, preemptible, run_ms=declared, basis=workload.basis)
