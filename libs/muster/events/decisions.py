"""Decisions of the deciding stages. Each decision names its cause and its (uid, attempt).

``attempt`` counts how often a workload entered its queue: a decision with an older attempt is void.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.events.base import Cause, Decision
from muster.events.demands import ClaimantDecision, DemandDecision
from muster.events.elastic import GrowthOption
from muster.events.reasons import (
    AdoptionReason,
    ClaimKind,
    DeferralReason,
    DenialReason,
    DequeueReason,
    GiveBackReason,
    OrderKind,
    ReleaseReason,
    SuspensionReason,
    Withheld,
)
from muster.events.refusals import Refusal
from muster.model.demand import Demand, Shortfall
from muster.model.keys import Ref
from muster.model.places import Move, Placement, Shortage
from muster.model.pools import Growth, PoolRefusal
from muster.model.problem import FieldProblem
from muster.model.quota import QuotaTree
from muster.model.resources import Vector
from muster.model.victims import PartialVictim, Victim
from muster.model.workload import PodSet


class Candidate(Struct, frozen=True, gc=False, omit_defaults=True):
    """A workload proposed for admission; ``cause`` is the event that made a try worthwhile."""

    cause: Cause
    ref: Ref
    attempt: int
    queue: str
    request: Vector
    basis: str = ""
    """Digest of the decision's input, as it is in the fact about the workload."""
    pods: int = 0
    preemptible: bool = True
    tries: int = 0
    """How often it has been tried in a row, this one included, in a queue with visible backoff; else 0."""
    run_ms: int = 0
    """How long it declares to run at most (ms); 0: it does not say."""

    @property
    def demand(self) -> Demand:
        return Demand(self.request, self.pods, self.preemptible, run_ms=self.run_ms, basis=self.basis)


# --- queue sorter -----------------------------------------------------------------------------------------------


class WorkloadQueued(DemandDecision, frozen=True, kw_only=True):
    """A suspended workload entered its queue (or returned under a new attempt)."""

    priority: int = 0
    queued_at: int = 0
    """ms since the epoch; together with priority this is its place in the queue."""
    rank: int = 0
    """ms since the epoch: its place instead of ``queued_at``, in a tree that orders by learned durations; else 0."""
    generation: int = 0
    """metadata.generation of the object as it was then."""


class WorkloadDequeued(Decision, frozen=True, kw_only=True):
    """A waiting workload left its queue without being admitted."""

    ref: Ref
    attempt: int
    queue: str
    reason: DequeueReason


class WorkloadRefused(Decision, frozen=True, kw_only=True):
    """A workload asks to be queued and cannot be: codes and names say why."""

    ref: Ref
    refusal: Refusal


class CandidatesProposed(Decision, frozen=True, kw_only=True):
    """The workloads that should be tried now, best first."""

    candidates: tuple[Candidate, ...]


# --- quota accountant -------------------------------------------------------------------------------------------


class QuotaTreeAccepted(Decision, frozen=True, kw_only=True):
    """A valid tree is in force from here on."""

    tree: QuotaTree
    rv: int
    warnings: tuple[FieldProblem, ...] = ()


class QuotaTreeRejected(Decision, frozen=True, kw_only=True):
    """A tree breaks rules and changes nothing: the last good one stays in force."""

    ref: Ref
    rv: int
    violations: tuple[FieldProblem, ...]


class QuotaTreeRemoved(Decision, frozen=True, kw_only=True):
    """The tree in force was deleted: nothing is admitted until another one is there."""

    ref: Ref


class QuotaReserved(DemandDecision, frozen=True, kw_only=True):
    """The request fits on the whole path and is charged from here on."""

    named: str = ""
    """The quota its label names; empty when its namespace decides."""
    placement: str = ""
    """How its pods are to be laid out on nodes, by the words of its queue and those above it; empty: none says."""
    beside: str = ""
    """The job, namespace/name, of whose claim for age it uses what is held, for by its run time it leaves in time."""
    promised: int = 0
    """Log time (ms) by which that job is promised to start."""
    owed: bool = False
    """It is guaranteed what it asks for."""
    serves: str = ""
    """uid of another job, which asks alike, whose claim this ends: it has the room that was made for that."""


class QuotaMoved(Decision, frozen=True, kw_only=True):
    """A charge follows its workload to another leaf, even over a limit there: a user moved an admitted workload."""

    ref: Ref
    attempt: int
    before: str
    """Path of the leaf that it was charged at."""
    queue: str
    request: Vector
    named: str = ""
    """The quota its label names; empty when its namespace decides."""


class QuotaDenied(Decision, frozen=True, kw_only=True):
    """The request does not fit: the first limit that refuses, leaf first, resources in sorted order."""

    ref: Ref
    attempt: int
    queue: str
    reason: DenialReason
    request: Vector = field(default_factory=dict)
    short: Shortfall | None = None
    """The limit that refuses it; None for a proposal that is stale."""
    tries: int = 0
    """How often it has been tried in a row, in a queue with visible backoff; else 0."""


class WorkloadAdopted(DemandDecision, frozen=True, kw_only=True):
    """A charge without a queue: of a running job, even over a limit; of a pod of no job that fits (``reserved``)."""

    reason: AdoptionReason
    named: str = ""


class SuspensionRecorded(Decision, frozen=True, kw_only=True):
    """An admitted workload was suspended by another client: charged until its pods are gone, then queued again.

    ``by``: the field manager of this client, where the object names one.
    """

    ref: Ref
    attempt: int
    by: str = ""


class QuotaReleased(Decision, frozen=True, kw_only=True):
    """A charge ended."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    reason: ReleaseReason
    owed: bool = False
    """Of one whose gang has no places: it is guaranteed what it asks for."""


# --- claims and evictions (proposed by the preemptor, decided by the accountant) ---------------------------------


class PreemptionProposed(ClaimantDecision, frozen=True, kw_only=True):
    """``ref`` waits for more than the free quota and should start: the possible victims, and the limit in the way.

    ``guarantee``: the job stays within a guarantee of its own, and the victims run above theirs. ``priority``: victims
    are of the job's leaf and have lower priority, where the tree asks for preemption. ``service``: victims keep
    checkpoints and have had more service, where the tree asks for this rule. ``move``: all victims move. ``age``: the
    job has waited longer than the age limit, no job leaves, and quota released by others should be held for the job up
    to ``path``.
    """

    kind: ClaimKind = "guarantee"
    victims: tuple[Victim, ...] = ()
    partial: tuple[PartialVictim, ...] = ()
    short: Shortfall | None
    """The limit that refuses it now; None: its quota has room, and the nodes have none."""
    withheld: Literal["", Withheld] = ""
    """Told, not done: why nothing follows from it."""
    supply: int = 0
    """How often what could be taken back had changed when this was decided."""
    nodes: int = -1
    """The same of the nodes, where its victims are to make room there."""
    for_places: bool = False
    """What leaves for others frees all the quota that it lacks, and no place: its victims do."""
    priority: int | None = None
    """Its priority, where jobs of its own queue are proposed to be suspended for that; else None."""
    placement: str = ""
    """As in QuotaReserved: how its pods are to be laid out on nodes."""


class ReclaimDeferred(Decision, frozen=True, kw_only=True):
    """``ref`` is within a guarantee, or outranks jobs of its queue, and no job may be evicted until a change."""

    ref: Ref
    attempt: int
    queue: str
    path: str
    resource: str
    reason: DeferralReason
    until: int = 0
    """Log time (ms) at which a job has run long enough; 0 when none will."""
    supply: int = 0
    nodes: int = -1
    """Changes of the nodes that were seen, where they are the reason."""
    growth: GrowthOption | None = None
    """As in PreemptionProposed."""


class EvictionOrdered(ClaimantDecision, frozen=True, kw_only=True):
    """The victims are suspended for ``ref``; quota is held until the admission of ``ref`` or the end of the claim."""

    kind: OrderKind = "guarantee"
    victims: tuple[Victim, ...] = ()
    partial: tuple[PartialVictim, ...] = ()
    """Ray clusters that release workers; the autoscaler bridge chooses which."""
    path: str = ""
    """The limit that refuses it; empty: its quota has room, and they make room on the nodes."""
    resource: str = ""
    owing: str = ""
    """The node above its queue whose guarantee covers it; empty: its queue's own covers it, or another right."""
    priority: int | None = None
    """Its priority, where jobs of its own queue are suspended for that; else None."""
    moves: tuple[Move, ...] = ()
    """Where each of the victims that move starts again, with the quota it has."""

    @property
    def for_nodes(self) -> bool:
        """Whether the victims make room on the nodes alone: the quota of ``ref`` has room."""
        return not self.path

    @property
    def suspended(self) -> tuple[Victim, ...]:
        """The victims without the jobs that are left to end by themselves."""
        return tuple(victim for victim in self.victims if not victim.ends_by)

    @property
    def evicted(self) -> tuple[Victim, ...]:
        """The suspended victims that are queued again, and do not move."""
        return tuple(victim for victim in self.suspended if not victim.moves)

    @property
    def gives(self) -> tuple[Victim, ...]:
        """The victims that release their quota: all but the moves."""
        return tuple(victim for victim in self.victims if not victim.moves)


class SuspensionOrdered(Decision, frozen=True, kw_only=True):
    """A workload did not start, lost too many pods, or runs beyond its admission: suspended again, and queued."""

    ref: Ref
    attempt: int
    reason: SuspensionReason
    problem: FieldProblem | None = None
    """Without pods: for how long. What kube-scheduler says, where it has no places for its gang;
    else how many of its pods have none.
    """


# --- gang admitter ----------------------------------------------------------------------------------------------


class GangAdmitted(Decision, frozen=True, kw_only=True):
    """The whole workload may start: the actuator resumes it."""

    ref: Ref
    attempt: int
    queue: str
    basis: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    """The pod sets that are placed, as they were when the gang admitter decided; empty where Muster places no gangs."""
    placements: tuple[Placement, ...] = ()
    held_until: int = 0
    """Log time until which the places are held for the pods; 0 without places."""
    placement: str = ""
    """The layout on nodes that the queue asks for and the places follow; empty: the layout of the cell."""
    together: int = 0
    """The number of pods that kube-scheduler must place all at once; 0: no such number."""


class GangAwaitingNodes(Decision, frozen=True, kw_only=True):
    """The gang has its quota and no place for the whole gang; the quota is kept, for nodes may be added."""

    ref: Ref
    attempt: int
    queue: str
    shortage: Shortage
    until: int
    growth: Growth | None = None
    """The nodes that would do, where node pools are declared."""


class GangDeferred(Decision, frozen=True, kw_only=True):
    """The gang has no place as a whole: the quota is released, and the gang is tried again when there is room."""

    ref: Ref
    attempt: int
    queue: str
    shortage: Shortage
    refusals: tuple[PoolRefusal, ...] = ()
    """Why no node pool can help, where any is declared."""


class PlacesFound(Decision, frozen=True, kw_only=True):
    """The nodes have room for a gang that released its quota for lack of room: the gang is queued and tried again."""

    ref: Ref
    attempt: int
    """The one that found no place."""
    growth: bool = False
    """They have none yet: node pools may add nodes for it."""


class PlacesReleased(Decision, frozen=True, kw_only=True):
    """Places that were held for the pods of an admitted gang are free for others again."""

    ref: Ref
    attempt: int
    reason: GiveBackReason
    placements: tuple[Placement, ...]


AnyDecision = (
    WorkloadQueued
    | WorkloadDequeued
    | WorkloadRefused
    | CandidatesProposed
    | QuotaTreeAccepted
    | QuotaTreeRejected
    | QuotaTreeRemoved
    | QuotaReserved
    | QuotaMoved
    | QuotaDenied
    | WorkloadAdopted
    | SuspensionRecorded
    | QuotaReleased
    | PreemptionProposed
    | ReclaimDeferred
    | EvictionOrdered
    | SuspensionOrdered
    | GangAdmitted
    | GangAwaitingNodes
    | GangDeferred
    | PlacesFound
    | PlacesReleased
)
