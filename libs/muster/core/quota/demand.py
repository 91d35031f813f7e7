"""What is asked of the quota, what is charged, and what is held: the values the ledger counts with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct, field

from muster.core.objects.labels import is_preemptible
from muster.core.quota.declared import kai_preemptible, run_time_ms
from muster.model.demand import Demand
from muster.model.keys import path_chain
from muster.model.quota import JOBS, MACHINES, QuotaNode, QuotaTree
from muster.model.resources import Vector
from muster.model.strategies import inherited, strategies_text
from muster.model.workload import Workload

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
