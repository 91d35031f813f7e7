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
from muster.model.quota import FlavorNodes, Flavors, OnFlavors, QuotaTree
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
    """Digest of the decision's input, copied from the fact about the workload."""
    pods: int = 0
    preemptible: bool = True
    tries: int = 0
    """The number of tries in a row with this try, in a queue with visible backoff; otherwise 0."""
    run_ms: int = 0
    """The declared longest run time (ms); 0 for a workload that declares none."""
    flavors: Flavors = field(default_factory=dict)
    """{pod set: its flavors}, where the tree tells types of nodes apart."""

    @property
    def demand(self) -> Demand:
        return Demand(
            self.request, self.pods, self.preemptible, run_ms=self.run_ms, basis=self.basis, flavors=self.flavors
        )


# --- queue sorter -----------------------------------------------------------------------------------------------


class WorkloadQueued(DemandDecision, frozen=True, kw_only=True):
    """A suspended workload entered its queue, or returned there under a new attempt."""

    priority: int = 0
    queued_at: int = 0
    """ms since the epoch: with the priority, the place of the workload in its queue."""
    rank: int = 0
    """ms since the epoch: counts in place of ``queued_at``, in a tree that orders by learned durations; otherwise 0."""
    generation: int = 0
    """metadata.generation of the queued object."""
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """{pod set: what an admission adds to its pods for the nodes of its flavors}."""
    flavor_until: int = 0
    """Log time (ms) until which the job waits for the best of its flavors alone; 0 without such a wait."""
    flavor_waited: int = 0
    """How long (ms) the job has waited for a better flavor than these; 0 where it has not."""
    turn: int = 0
    """The place of its flavors among the alternatives of the job; 0: the best."""
    others: tuple[OnFlavors, ...] = ()
    """Further flavors with quota, in order: without a place on the nodes of its flavors the job goes to the first of
    these with room."""


class WorkloadDequeued(Decision, frozen=True, kw_only=True):
    """A waiting workload left its queue without an admission."""

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
    """A tree breaks rules and changes nothing: the last good tree stays in force."""

    ref: Ref
    rv: int
    violations: tuple[FieldProblem, ...]


class QuotaTreeRemoved(Decision, frozen=True, kw_only=True):
    """The tree in force was deleted: nothing is admitted until another tree is accepted."""

    ref: Ref


class QuotaReserved(DemandDecision, frozen=True, kw_only=True):
    """The request fits on the whole path and is charged from here on."""

    named: str = ""
    """The quota named by the workload's label; empty where the namespace decides."""
    placement: str = ""
    """The layout of the pods on nodes, set by the queue or by a queue above; empty where none sets a layout."""
    beside: str = ""
    """namespace/name of a job with a claim for age, whose held quota the workload uses: by its declared run time the
    workload leaves in time. Empty without such a job.
    """
    promised: int = 0
    """Log time (ms): the promised start of the job in ``beside``."""
    owed: bool = False
    """The request is within the guarantee of the queue."""
    serves: str = ""
    """uid of a job with the same request whose claim ends: this workload takes the room made for that job."""


class QuotaMoved(Decision, frozen=True, kw_only=True):
    """A user moved an admitted workload: the charge follows to another leaf, even over a limit there."""

    ref: Ref
    attempt: int
    before: str
    """Path of the leaf of the charge so far."""
    queue: str
    request: Vector
    named: str = ""
    """The quota named by the workload's label; empty where the namespace decides."""


class QuotaDenied(Decision, frozen=True, kw_only=True):
    """The request does not fit: the first limit that refuses, leaf first, resources in sorted order."""

    ref: Ref
    attempt: int
    queue: str
    reason: DenialReason
    request: Vector = field(default_factory=dict)
    short: Shortfall | None = None
    """The limit that refuses the request; None for a stale proposal."""
    tries: int = 0
    """The number of tries in a row, in a queue with visible backoff; otherwise 0."""


class WorkloadAdopted(DemandDecision, frozen=True, kw_only=True):
    """A workload is charged without a queue: a running job, even over a limit; or a pod of no job that fits
    (``reserved``).
    """

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
    """For a workload whose gang has no places: whether the request is within the guarantee of the queue."""


# --- claims and evictions (proposed by the preemptor, decided by the accountant) ---------------------------------


class PreemptionProposed(ClaimantDecision, frozen=True, kw_only=True):
    """``ref`` waits for more than the free quota and should start: the possible victims, and the limit in the way.

    ``guarantee``: the job stays within a guarantee of its own, and the victims run above theirs. ``priority``: victims
    are of the job's leaf and have lower priority, where the tree asks for preemption. ``service``: victims keep
    checkpoints and have had more service, where the tree asks for this rule. ``move``: all victims move. ``age``:
    too much later work has passed the job, no job leaves, and quota released by others should be held for the job up
    to ``path``.
    """

    kind: ClaimKind = "guarantee"
    victims: tuple[Victim, ...] = ()
    partial: tuple[PartialVictim, ...] = ()
    short: Shortfall | None
    """The limit that refuses the claimant now; None: the quota has room, and the nodes have none."""
    withheld: Literal["", Withheld] = ""
    """Why no eviction follows from this proposal; empty for a proposal to carry out."""
    supply: int = 0
    """The number of changes of the evictable work that the preemptor had counted."""
    nodes: int = -1
    """The number of changes of the nodes, for victims that make room on nodes; otherwise -1."""
    for_places: bool = False
    """Jobs that leave for others free all the missing quota and no place; the victims free the places."""
    priority: int | None = None
    """The claimant's priority, where victims of its own queue have a lower priority; otherwise None."""
    placement: str = ""
    """The layout of the pods on nodes, as in QuotaReserved."""
    idles_ms: int = 0
    """With ``age``: how long the claimed amounts may be idle for the job."""
    places: tuple[Placement, ...] = ()
    """Where Muster places gangs: the places of the claimant once the victims have left. Empty: nodes may be added."""
    moves: tuple[Move, ...] = ()
    """The new places of the victims that move, in the order of ``victims``."""


class ReclaimDeferred(Decision, frozen=True, kw_only=True):
    """``ref`` is within a guarantee, or outranks jobs of its queue, and no job may be evicted until a change."""

    ref: Ref
    attempt: int
    queue: str
    path: str
    resource: str
    reason: DeferralReason
    until: int = 0
    """Log time (ms) at which a job has run long enough to be evicted; 0 without such a job."""
    supply: int = 0
    nodes: int = -1
    """The number of changes of the nodes, where the nodes are the reason; otherwise -1."""
    growth: GrowthOption | None = None
    """The replicas that a Ray cluster asks for beyond its grant; None: the job waits."""


class EvictionOrdered(ClaimantDecision, frozen=True, kw_only=True):
    """The victims are suspended for ``ref``; quota is held until the admission of ``ref`` or the end of the claim."""

    kind: OrderKind = "guarantee"
    victims: tuple[Victim, ...] = ()
    partial: tuple[PartialVictim, ...] = ()
    """Ray clusters that release workers; the autoscaler bridge chooses which."""
    path: str = ""
    """Path of the quota that refuses the claimant; empty: the quota has room, and the victims make room on nodes."""
    resource: str = ""
    owing: str = ""
    """The node above the claimant's queue whose guarantee covers the claimant. Empty: the guarantee of the queue itself
    covers the claimant, or another right.
    """
    priority: int | None = None
    """The claimant's priority, where victims of its own queue have a lower priority; otherwise None."""
    moves: tuple[Move, ...] = ()
    """The new places of the victims that move; such a victim keeps its quota."""

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
    """A workload did not start, lost too many pods, or runs beyond its admission: the workload is suspended and queued
    again.
    """

    ref: Ref
    attempt: int
    reason: SuspensionReason
    problem: FieldProblem | None = None
    """``no_pods``: the time without pods, or with refused pods. ``unschedulable``: kube-scheduler's answer, or the
    number of pods without a node.
    """


class PodsAwaited(Decision, frozen=True, kw_only=True):
    """An admitted workload has had no pods, or fewer than its controller is to make at once, for some time: the
    actuator reads the refusal of the pods from the Events of the workload and of its children.
    """

    ref: Ref
    attempt: int
    since: int
    """Log time (ms) from which an Event counts: an earlier one may be about a pod that was made since."""


# --- gang admitter ----------------------------------------------------------------------------------------------


class GangAdmitted(Decision, frozen=True, kw_only=True):
    """The whole workload may start: the actuator resumes the workload."""

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
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """{pod set: what the resume adds to its pods for the nodes of its flavors}."""


class GangAwaitingNodes(Decision, frozen=True, kw_only=True):
    """The gang has its quota and no place for the whole gang; the quota is kept, for nodes may be added."""

    ref: Ref
    attempt: int
    queue: str
    shortage: Shortage
    until: int
    growth: Growth | None = None
    """The nodes that the gang lacks, as new nodes of declared node pools; None without such pools."""


class GangDeferred(Decision, frozen=True, kw_only=True):
    """The gang has no place as a whole: the quota is released, and the gang is tried again when there is room."""

    ref: Ref
    attempt: int
    queue: str
    shortage: Shortage
    refusals: tuple[PoolRefusal, ...] = ()
    """Why no declared node pool can help, pool by pool."""
    without: tuple[Flavors, ...] = ()
    """Further flavors with quota and no room on the nodes."""


class PlacesFound(Decision, frozen=True, kw_only=True):
    """The nodes have room for a gang that released its quota for lack of room: the gang is queued and tried again."""

    ref: Ref
    attempt: int
    """The attempt that found no place."""
    growth: bool = False
    """The nodes have no room yet, and node pools may add nodes."""
    flavors: Flavors = field(default_factory=dict)
    """The flavors with room, where the tree tells types of nodes apart."""


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
    | PodsAwaited
    | GangAdmitted
    | GangAwaitingNodes
    | GangDeferred
    | PlacesFound
    | PlacesReleased
)
