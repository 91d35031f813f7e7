"""The queues: the workloads, the waiting ones in order, and a copy of the ledger to foresee answers with."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.core.queueing.book import Book, Place, shape_key
from muster.core.quota.demand import CLASSES, Scratch, demand_of, kai_class, kai_priority
from muster.core.quota.ledger.quotaledger import Ledger, leaf_of, still_waits
from muster.core.quota.trees.rules import union
from muster.events.base import Cause
from muster.events.decisions import WorkloadQueued
from muster.events.elastic import GrowthOption
from muster.events.facts import QueueObserved
from muster.events.refusals import Refusal
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.workload import Workload

JobStatus = Literal["waiting", "proposed", "charged"]


class Job(Struct):
    """One workload under one attempt."""

    ref: Ref
    attempt: int
    status: JobStatus
    queue: str
    shape: str
    demand: Demand
    priority: int
    queued_at: int
    rank: int
    """What orders it among its queue's jobs of its priority, ms since the epoch."""
    generation: int
    """metadata.generation of its object as it was when it was queued."""
    cause: Cause
    """The event that made it worth trying (or last changed it)."""
    placement: str = ""
    """How its pods are laid out on nodes, by the words of its queue when it reserved."""
    expected_ms: int = 0
    """How long such jobs had run on average when it was queued, in a tree that lends by that; 0: unknown."""
    freely_ms: int = 0
    """How long a job was expected to run at the most then that borrows whatever is free; 0 for any time."""
    freely_at: int = 0
    """Log time (ms) from which it borrows whatever is free all the same."""
    growth: GrowthOption | None = None
    """The replicas that it asks for beyond its grant, where it is a Ray cluster that runs."""

    @property
    def place(self) -> Place:
        return Place(-self.priority, self.rank, self.ref.key, self.ref.uid)


class Retry(Struct, frozen=True):
    """When a refused shape of a queue with visible backoff is tried again, whatever is free."""

    tries: int
    at: int


class WaitsForNodes(Struct, frozen=True):
    """A workload that found no place on the nodes under an attempt, and released its quota."""

    attempt: int
    queue: str
    basis: str
    priority: int
    placement: str
    place: Place = Place(0, 0, "", "")
    """Its place in its queue."""
    queued_at: int = 0
    """When it counts as queued, ms since the epoch: it comes back to its old place."""
    found: bool = False
    """Whether there is room by now: it is queued again."""
    short: bool = False
    """Whether others may leave for it, and its quota was short then: it is queued again if it still is."""


class WantedSince(Struct, frozen=True):
    """What of its guarantee a leaf uses or asks for, since a log time (ms)."""

    since: int
    amounts: Vector


class Loan(Struct, frozen=True):
    """What is charged for a job that is expected to end soon."""

    leaf: str
    amounts: Vector
    until: int
    """Log time (ms) up to which it is; 0 while it does not run."""


class Lending(Struct):
    """What lending of unused guarantees rests on (``lending.py``); of trees that lend by how long jobs run."""

    soon: dict[str, int] = field(default_factory=dict)
    """root -> how long (ms) one is expected to run at the most that borrows whatever is free, as the newest job says"""
    levels: dict[str, WantedSince] = field(default_factory=dict)
    """leaf -> what it wants now"""
    wanted: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)
    """leaf -> resource -> (number of an hour, amount wanted up to then), the newest last: each the less"""
    running: dict[str, int] = field(default_factory=dict)
    """uid of a charged workload that runs -> log time (ms) at which it was found running first"""
    loans: dict[str, Loan] = field(default_factory=dict)
    """uid of a workload -> what is charged for it, while it is expected to end soon"""
    brief: dict[str, Vector] = field(default_factory=dict)
    """leaf -> the sum of those"""
    ends: list[tuple[int, str]] = field(default_factory=list)
    """sorted (log time up to which one that runs is expected to end soon, its uid)"""


class Queues(Struct):
    """Jobs, their order, and what is known of the quota.

    The sorter decides on it; the preemptor and the read model keep one each, by the same folds.
    """

    ledger: Ledger = field(default_factory=Ledger)
    lending: Lending = field(default_factory=Lending)
    """What is kept for owners, where a tree lends by how long jobs run."""
    proposed: Scratch = field(default_factory=Scratch)
    """What the open proposals ask for."""
    book: Book = field(default_factory=Book)
    workloads: dict[str, Workload] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """workload uid -> how often resuming it failed in a row"""
    not_before: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time before which it is not queued again"""
    unplaced: dict[str, WaitsForNodes] = field(default_factory=dict)
    """workload uid -> as what it waits for room on the nodes; not queued again until there is some"""
    reserved: dict[str, None] = field(default_factory=dict)
    """uids that have their quota and are not admitted yet"""
    places: bool = False
    """Whether gangs are placed on nodes: a job with quota may still find no place."""
    resumed: dict[str, None] = field(default_factory=dict)
    """uids that are charged and known to have been resumed"""
    stale: dict[str, int] = field(default_factory=dict)
    """workload uid -> generation of a spec that is known to have been edited since: not queued again as it was"""
    priority_classes: dict[str, int] = field(default_factory=dict)
    default_classes: dict[str, None] = field(default_factory=dict)
    """Names of the classes that say they are the default."""
    queue_priorities: dict[str, int] = field(default_factory=dict)
    """quota path -> priority of its Queue object, where it has one"""
    queue_paths: dict[str, str] = field(default_factory=dict)
    """Queue object uid -> quota path"""
    queue_specs: dict[str, QueueObserved] = field(default_factory=dict)
    """Queue object uid -> what it says"""
    policies: dict[str, str] = field(default_factory=dict)
    """quota path -> policy of its Queue object"""
    paused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """quota path -> what rests in its queue"""
    pauses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """quota path -> the user who paused its queue, and why"""
    backoffs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """quota path -> (first, longest) pause in ms, where its queue wants visible backoff"""
    retries: dict[str, Retry] = field(default_factory=dict)
    """key of a refused shape in such a queue -> its next try"""
    unit_priorities: dict[str, int | None] = field(default_factory=dict)
    """workload uid -> priority its QueueUnit was last seen with"""
    unit_owners: dict[str, str] = field(default_factory=dict)
    """QueueUnit uid -> uid of its workload"""
    unit_wishes: dict[str, int] = field(default_factory=dict)
    """workload uid -> priority that a client wrote into its QueueUnit"""

    def priority_of(self, workload: Workload, leaf: str | None = None) -> int:
        """What people ask for on the job or its QueueUnit, else the template's number, its class, the default, 0."""
        if workload.wishes.priority is not None:
            return workload.wishes.priority
        if workload.ref.uid in self.unit_wishes:
            return self.unit_wishes[workload.ref.uid]
        return self.own_priority_of(workload, leaf)

    def own_priority_of(self, workload: Workload, leaf: str | None = None) -> int:
        """Number in the template, else the named class, else the default, else 0; in a KAI queue by its rules."""
        if self.ledger.by_shares(leaf or leaf_of(self.ledger, workload) or ""):
            return kai_priority(workload, self.priority_classes)
        if workload.priority is not None:
            return workload.priority
        return self.priority_classes.get(workload.priority_class or self.default_class(), 0)

    def unknown_class(self, workload: Workload) -> str:
        """The PriorityClass that a workload names and that does not exist; empty where it decides nothing."""
        if workload.wishes.priority is not None or workload.ref.uid in self.unit_wishes:
            return ""
        if self.ledger.by_shares(leaf_of(self.ledger, workload) or ""):
            name = kai_class(workload)
            return "" if name in self.priority_classes or name in CLASSES else name
        named = workload.priority_class if workload.priority is None else ""
        return "" if named in self.priority_classes else named

    def default_class(self) -> str:
        """The default class; of several the lowest counts, and of equals the first by name, as in Kubernetes."""
        if not self.default_classes:
            return ""
        return min(self.default_classes, key=lambda name: (self.priority_classes[name], name))

    def demand_of(self, workload: Workload, leaf: str | None = None, priority: int | None = None) -> Demand:
        """What the workload asks for, by the profile of the tree it belongs to. ``leaf``, ``priority``: its own."""
        leaf = leaf or leaf_of(self.ledger, workload) or ""
        priority = self.priority_of(workload, leaf) if priority is None else priority
        return demand_of(self.ledger.tree_of(leaf) or self.ledger.tree, workload, priority)

    def order(self, queue: str) -> str:
        """Which order of queues the tree of a leaf asks for; KAI queues are ordered by shares."""
        tree = self.ledger.tree_of(queue)
        return tree.rules.order if tree is not None and not tree.by_shares else "share"

    def is_blocking(self, queue: str) -> bool:
        """Whether no job passes the head of a queue."""
        return self.policies.get(queue, "") == "Block"

    def without_place(self, queue: str, place: Place) -> list[Place]:
        """The jobs before a place that have released their quota and wait for room on the nodes; in order."""
        found = []
        for uid, each in self.unplaced.items():
            workload = self.workloads.get(uid)
            if each.queue != queue or each.place >= place or each.found or workload is None:
                continue
            if workload.waits and workload.basis == each.basis and leaf_of(self.ledger, workload) == queue:
                found.append(each.place)
        return sorted(found)

    def before_on_nodes(self, queue: str, place: Place) -> list[Place]:
        """The jobs before a place in a queue without a place on the nodes, with quota or without; in order."""
        reserved = (self.jobs[uid] for uid in self.reserved if self.places and uid in self.jobs)
        tried = (job.place for job in reserved if job.queue == queue and job.place < place)
        return sorted((*tried, *self.without_place(queue, place)))

    def resting(self, queue: str) -> tuple[str, ...]:
        """What is paused for a queue: ``admissions``, ``evictions``."""
        return union(self.ledger.rules_of(queue).paused, self.paused.get(queue, ()))


def withdraw(queues: Queues, job: Job) -> None:
    """Take a job out of the waiting order, or out of the open proposals."""
    if job.status == "waiting":
        queues.book.take(job.shape, job.place, queues.ledger)
    elif job.status == "proposed":
        queues.book.closed(job.shape)
        queues.proposed.add(job.queue, job.demand, -1)
        queues.book.used(job.queue)


def is_current(queues: Queues, job: Job) -> bool:
    """Whether a job still waits as it was queued, as far as is known here."""
    return still_waits(queues.ledger, queues.workloads.get(job.ref.uid), job.queue, job.demand)


def queued_at_of(workload: Workload, seen_at: int) -> int:
    """When a workload counts as queued, ms since the epoch.

    The stamp stored on the object if there is one, so that the order survives the loss of the log; every user can write
    one, so it counts only between the object's creation and now. Else the time we saw it, kept inside the second in
    which the API server says it was created (it stores whole seconds).
    """
    now = max(seen_at, workload.created)
    if workload.queued_at:
        return min(max(workload.queued_at, workload.created), now)
    return min(now, workload.created + 999)


def job_from(event: WorkloadQueued, cause: Cause) -> Job:
    """The waiting job a queueing makes."""
    demand = event.demand
    return Job(
        ref=event.ref,
        attempt=event.attempt,
        status="waiting",
        queue=event.queue,
        shape=shape_key(event.queue, demand),
        demand=demand,
        priority=event.priority,
        queued_at=event.queued_at,
        rank=event.rank or event.queued_at,
        generation=event.generation,
        cause=cause,
        expected_ms=event.expected_ms,
        freely_ms=event.freely_ms,
        freely_at=event.freely_at,
    )
