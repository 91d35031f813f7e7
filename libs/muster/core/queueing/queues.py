"""The queues: workloads, waiting jobs in order, and a copy of the ledger for the foresight of answers."""

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
from muster.model.quota import Flavors, flavors_text
from muster.model.workload import Workload

JobStatus = Literal["waiting", "proposed", "charged"]


class Job(Struct):
    """A workload under an attempt."""

    ref: Ref
    attempt: int
    status: JobStatus
    queue: str
    shape: str
    demand: Demand
    priority: int
    queued_at: int
    rank: int
    """The order among jobs of the same queue and priority, ms since the epoch."""
    generation: int
    """metadata.generation of the object at the time of queueing."""
    cause: Cause
    """The event that made the job worth trying, or last changed the job."""
    placement: str = ""
    """The layout of the pods on nodes, by the rules of the queue at the reservation."""
    growth: GrowthOption | None = None
    """The replicas asked for beyond the grant, for a running Ray cluster."""

    @property
    def place(self) -> Place:
        return Place(-self.priority, self.rank, self.ref.key, self.ref.uid)


class Retry(Struct, frozen=True):
    """The next try of a refused shape, whatever is free, in a queue with visible backoff."""

    tries: int
    at: int


class WaitsForNodes(Struct, frozen=True):
    """A workload that found no place on the nodes under an attempt and released its quota."""

    attempt: int
    queue: str
    basis: str
    priority: int
    placement: str
    place: Place = Place(0, 0, "", "")
    """The place of the job in its queue."""
    queued_at: int = 0
    """The queueing time, ms since the epoch: the job comes back to its old place."""
    found: bool = False
    """Room was found, or a guarantee covers the job from now on: the job is queued again."""
    short: bool = False
    """Victims may leave for the job, and its quota was short at the time: the job is queued again if quota is still
    short.
    """
    flavors: Flavors = {}
    """The flavors of the attempt."""
    borrows: Demand | None = None
    """The demand, where no guarantee covered it under this attempt."""


class Queues(Struct):
    """Jobs, their order, and a copy of the ledger.

    The sorter decides on this state; the preemptor and the read model keep a copy each, by the same folds.
    """

    ledger: Ledger = field(default_factory=Ledger)
    proposed: Scratch = field(default_factory=Scratch)
    """The demands of the open proposals."""
    book: Book = field(default_factory=Book)
    workloads: dict[str, Workload] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """workload uid -> failed resumes in a row"""
    not_before: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time (ms) of the earliest new queueing"""
    unplaced: dict[str, WaitsForNodes] = field(default_factory=dict)
    """workload uid -> the terms of its wait for nodes; not queued again on the same terms before there is room"""
    passed: dict[str, dict[str, int]] = field(default_factory=dict)
    """workload uid -> {flavors that had quota and no room on the nodes: the attempt that told}, until there is room"""
    flavor_waits: dict[str, int] = field(default_factory=dict)
    """uid of a waiting job -> log time (ms) until which the job waits for the best of its flavors alone"""
    reserved: dict[str, None] = field(default_factory=dict)
    """uids with a reservation and no admission yet"""
    places: bool = False
    """Whether gangs are placed on nodes: a job with quota may still find no place."""
    resumed: dict[str, None] = field(default_factory=dict)
    """uids of charged workloads with a known resume"""
    stale: dict[str, int] = field(default_factory=dict)
    """workload uid -> generation of an outdated spec: not queued again with this spec"""
    priority_classes: dict[str, int] = field(default_factory=dict)
    default_classes: dict[str, None] = field(default_factory=dict)
    """Names of the classes marked as the default."""
    queue_priorities: dict[str, int] = field(default_factory=dict)
    """quota path -> priority of its Queue object; absent without an object"""
    queue_paths: dict[str, str] = field(default_factory=dict)
    """Queue object uid -> quota path"""
    queue_specs: dict[str, QueueObserved] = field(default_factory=dict)
    """Queue object uid -> its fields"""
    policies: dict[str, str] = field(default_factory=dict)
    """quota path -> policy of its Queue object"""
    paused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """quota path -> the parts paused by Queue objects"""
    pauses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """quota path -> (user that paused the queue, reason)"""
    backoffs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """quota path -> (first, longest) pause in ms, of queues with visible backoff"""
    retries: dict[str, Retry] = field(default_factory=dict)
    """key of a refused shape in such a queue -> next try"""
    unit_priorities: dict[str, int | None] = field(default_factory=dict)
    """workload uid -> priority of its QueueUnit, as last seen"""
    unit_owners: dict[str, str] = field(default_factory=dict)
    """QueueUnit uid -> workload uid"""
    unit_wishes: dict[str, int] = field(default_factory=dict)
    """workload uid -> priority written into its QueueUnit by a client"""

    def priority_of(self, workload: Workload, leaf: str | None = None) -> int:
        """The priority wished for on the job or its QueueUnit; otherwise the priority of the template, see
        ``own_priority_of``.
        """
        if workload.wishes.priority is not None:
            return workload.wishes.priority
        if workload.ref.uid in self.unit_wishes:
            return self.unit_wishes[workload.ref.uid]
        return self.own_priority_of(workload, leaf)

    def own_priority_of(self, workload: Workload, leaf: str | None = None) -> int:
        """The number in the template, the named class, the default class, or 0, in this order. In a KAI queue: by the
        rules of KAI.
        """
        if self.ledger.by_shares(leaf or leaf_of(self.ledger, workload) or ""):
            return kai_priority(workload, self.priority_classes)
        if workload.priority is not None:
            return workload.priority
        return self.priority_classes.get(workload.priority_class or self.default_class(), 0)

    def unknown_class(self, workload: Workload) -> str:
        """The PriorityClass named by a workload and missing in the cluster; empty where the class decides nothing."""
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
        """The demand of a workload, by the profile of its tree. ``leaf``, ``priority``: known
        values of the workload.
        """
        leaf = leaf or leaf_of(self.ledger, workload) or ""
        priority = self.priority_of(workload, leaf) if priority is None else priority
        job, unplaced = self.jobs.get(workload.ref.uid), self.unplaced.get(workload.ref.uid)
        flavors = job.demand.flavors if job is not None else unplaced.flavors if unplaced is not None else None
        return demand_of(self.ledger.tree_of(leaf) or self.ledger.tree, workload, priority, queue=leaf, flavors=flavors)

    def order(self, queue: str) -> str:
        """The order of queues by the rules of the leaf's tree; ``share`` for KAI queues."""
        tree = self.ledger.tree_of(queue)
        return tree.rules.order if tree is not None and not tree.by_shares else "share"

    def is_blocking(self, queue: str) -> bool:
        """Whether no job passes the head of a queue."""
        return self.policies.get(queue, "") == "Block"

    def without_place(self, queue: str, place: Place) -> list[Place]:
        """The jobs before a place without quota that wait for room on the nodes; in order."""
        places = []
        for uid, unplaced in self.unplaced.items():
            workload = self.workloads.get(uid)
            if unplaced.queue != queue or unplaced.place >= place or unplaced.found or workload is None:
                continue
            if workload.waits and workload.basis == unplaced.basis and leaf_of(self.ledger, workload) == queue:
                places.append(unplaced.place)
        return sorted(places)

    def before_on_nodes(self, queue: str, place: Place) -> list[Place]:
        """The jobs before a place in a queue without a place on the nodes, with quota or without; in order."""
        reserved = (self.jobs[uid] for uid in self.reserved if self.places and uid in self.jobs)
        tried = (job.place for job in reserved if job.queue == queue and job.place < place)
        return sorted((*tried, *self.without_place(queue, place)))

    def resting(self, queue: str) -> tuple[str, ...]:
        """The paused parts of a queue: ``admissions``, ``evictions``."""
        return union(self.ledger.rules_of(queue).paused, self.paused.get(queue, ()))


def withdraw(queues: Queues, job: Job) -> None:
    """Take a job out of the waiting order, or out of the open proposals."""
    if job.status == "waiting":
        queues.book.take(job.shape, job.place, queues.ledger)
    elif job.status == "proposed":
        queues.book.closed(job.shape)
        queues.proposed.add(job.queue, job.demand, -1)
        queues.book.used(job.queue)


def back_to(queues: Queues, uid: str, flavors: Flavors) -> int:
    """There is room on the nodes of flavors, or the job is tried there again; returns the attempt that found none."""
    passed = queues.passed.get(uid, {})
    attempt = passed.pop(flavors_text(flavors), 0) if passed else 0
    if attempt and not passed:
        del queues.passed[uid]
    return attempt


def is_current(queues: Queues, job: Job) -> bool:
    """Whether a job still waits unchanged since its queueing, by the events folded so far."""
    return still_waits(queues.ledger, queues.workloads.get(job.ref.uid), job.queue, job.demand)


def queued_at_of(workload: Workload, seen_at: int) -> int:
    """The queueing time of a workload, ms since the epoch.

    The stamp stored on the object, if any, so that the order survives the loss of the log. Every user can write a
    stamp, so the value is kept between the object's creation and now. Without a stamp: the time of first sight, kept
    inside the second of the creation (the API server stores whole seconds).
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
    )
