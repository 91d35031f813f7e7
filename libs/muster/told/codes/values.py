"""The values of the status of a subject: closed codes with numbers, without a sentence.

The values import no state: ``told.status`` makes the values and ``told.wording`` makes the sentences.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.events.alarms import AlarmRaised
from muster.events.base import Cause
from muster.events.elastic import GrowthDenied
from muster.events.gangs import GangHeldBack, HeldAs
from muster.events.reasons import AdoptionReason
from muster.events.refusals import Refusal
from muster.model.demand import Shortfall
from muster.model.elastic import Counts
from muster.model.gang import Verdict
from muster.model.places import Shortage
from muster.model.pools import Growth, PoolRefusal
from muster.model.problem import FieldProblem
from muster.model.resources import Vector
from muster.model.workload import Outcome

Phase = Literal[
    "seen", "outside", "refused", "waiting", "reserved", "admitted", "running", "leaving", "finished", "gone"
]
"""How far a job has come. ``muster ls`` filters by the phase, and the table of legal steps lists phases."""

STOPPED = (
    "DeadlineExceeded",
    "PreRunningDeadlineExceeded",
    "JobDeploymentStatusTransitionGracePeriodExceeded",
    "JobStatusCheckTimeoutExceeded",
)
"""The reasons with which a controller stops a job: the exit codes of its pods say nothing."""
EndedAs = Literal["finished", "left", "refused", "released", ""]
"""The last event of a job that is gone."""


class Pools(Struct, frozen=True):
    """The nodes that node pools could add for a gang, or why no pool can help."""

    growth: Growth | None = None
    refusals: tuple[PoolRefusal, ...] = ()


class NodesKept(Struct, frozen=True):
    """A claim on some nodes: places that become free there are kept for a gang that too much later work has passed."""

    gang: str
    """namespace/name"""
    uid: str
    """uid of the gang's job; empty for a gang of pods."""
    nodes: tuple[str, ...]


LeavingCode = Literal["Reclaimed", "Preempted", "RunningTimeout", "StaleGang", "Overuse"]
"""The code of an admitted job that a decision suspends."""


class Leaving(Struct, frozen=True):
    """Why a decision of Muster suspended an admitted job, and which decision."""

    code: LeavingCode
    generation: int
    cause: Cause
    claimant: str = ""
    """namespace/name of the job for which the victim is evicted."""
    queue: str = ""
    """The claimant's."""
    owing: str = ""
    """The node above this queue whose guarantee covers the claimant; empty for the queue's own."""
    path: str = ""
    resource: str = ""
    priority: int = 0
    claimant_priority: int = 0
    served: bool = False
    """The claimant has had less service, regardless of the priorities."""
    problem: FieldProblem | None = None
    """kube-scheduler's verdict, where kube-scheduler has no places for the gang; else how many pods of the gang have
    none.
    """
    of_nodes: bool = False
    """The quota has room, and the nodes have none."""
    before: tuple[str, ...] = ()
    """For a job that moves: names of the nodes before the move, ..."""
    after: tuple[str, ...] = ()
    """... and after the move."""

    @property
    def stamp(self) -> str:
        return f"{self.generation}-{self.cause.seq}-{self.cause.item}"


class Remains(Struct, frozen=True):
    """The objects of a job that still exist in the cluster."""

    children: bool = False
    pods: int = 0


class Scaling(Struct):
    """How far a Ray cluster that scales itself may grow, in replicas of each worker group."""

    granted: Counts = field(default_factory=dict)
    ceilings: Counts = field(default_factory=dict)
    """The most replicas that the owner wants."""
    asked: Counts = field(default_factory=dict)
    """Requests beyond the grant."""
    denied: GrowthDenied | None = None
    """The denial of the asked growth."""
    alarm: AlarmRaised | None = None
    """The alarm of the cluster."""
    promised: int = 0
    """Log time (ms) by which the refused growth is granted, if declared run times are true; 0: not promised."""


class InLine(Struct, frozen=True):
    """The place of a job in its queue. ``position``: from 1; 0 for a job that does not wait there."""

    position: int = 0
    length: int = 0
    ahead: tuple[str, ...] = ()
    """namespace/name of the first few before it."""
    leaving: Leaving | None = None
    """Why the job was suspended before the present wait."""


# --- the values of a code, one class for each set of them; told.codes.codetable says which code has which ---


class Plain(Struct, frozen=True):
    """No values: the code is the whole status."""


class Untried(Struct, frozen=True):
    """No limit refuses the job now."""

    cleared: Shortfall | None = None
    """The limit that refused the job last and has room again."""


class Unlisted(Struct, frozen=True):
    """The cluster is not fully known."""

    missing: tuple[str, ...]
    """Kinds that are not listed yet."""


class NotQueued(Struct, frozen=True):
    """The job asks to be queued and is refused."""

    refusal: Refusal


class Pause(Struct, frozen=True):
    """A pause, with the author and the reason if given."""

    by: str
    message: str


class Short(Struct, frozen=True):
    """A limit refuses the job."""

    refusal: Shortfall
    """With the numbers of now."""
    cause: Cause | None = None
    """The denial on which the job is parked, where there was a denial."""
    declared: int = 0
    """The run time (ms) that the job declares, where part is held for age; 0: none."""
    promised: int = 0
    """Log time (ms) by which the claimant starts if the run times that jobs declare are true; 0: not promised."""
    owed: tuple[str, str, int] | None = None
    """(path, resource, amount) that others use or ask for within their guarantees, where the job needs some of the
    amount.
    """
    idles: Idles | None = None
    """The idle amounts of the job's claim for age, where the job has such a claim."""
    flavors: tuple[OtherFlavor, ...] = ()
    """The alternatives to the flavors that it waits for, where the tree tells types of nodes apart."""


class OtherFlavor(Struct, frozen=True):
    """Another type of nodes, and why the job does not start there."""

    names: tuple[str, ...]
    """Of the flavor, or of the flavors of several pod sets."""
    refusal: Shortfall | None = None
    """The limit that refuses the job there; None: its pods cannot run there, or it has room there now."""
    kind: str = ""
    """``label``, ``affinity`` or ``taint``: what keeps its pods away; ``nodes``: without room at the last try;
    ``later``: the job waits for a better type."""
    key: str = ""
    """The name of the label or taint."""
    until: int = 0
    """Log time (ms) from which the job would start there."""


class Idles(Struct, frozen=True):
    """The amount that was idle for a claim for age though others asked for the amount."""

    since: int
    """Log time (ms) since which the amount is held."""
    idle: int
    """The amount of the resource that refuses the claimant, times ms."""
    most: int
    """The claim ends when ``idle`` reaches this."""


class ResumeRefused(Struct, frozen=True):
    """A write failed, and is tried again."""

    until: int
    """Log time (ms) before which the job is not tried again."""
    failures: int
    problem: FieldProblem | None


class NoPlace(Struct, frozen=True):
    """The gang has no place on the nodes."""

    shortage: Shortage
    pools: Pools
    tried: int = 0
    """Log time (ms) at which the gang found no place last."""
    kept: tuple[NodesKept, ...] = ()
    """Nodes that are claimed now: free places there go only to the claimant."""
    leaves: tuple[str, ...] = ()
    """namespace/name of the jobs that leave, or move to other nodes, to make room for this job."""
    flavors: tuple[OtherFlavor, ...] = ()
    """The alternatives to the flavors whose nodes have no room."""


class Unfit(Struct, frozen=True):
    """No node, and no node of a declared pool, can run a pod of the job, even an empty node.

    ``why``: no node has a resource at all (``absent``), or as much of it as one pod asks for (``large``); no node has
    the labels that the pods require (``label``); no node has everything at once (``together``).
    """

    why: Literal["absent", "large", "label", "together"]
    pod_set: str
    pods: int
    nodes: int
    """How many nodes there are."""
    asked: Vector = field(default_factory=dict)
    """What one pod asks for: the resource in question, or all of them."""
    most: int = 0
    """The most that a node with the required labels has of the resource."""
    narrowed: bool = False
    """Some nodes lack the required labels."""
    label: str = ""
    """``KEY=VALUE`` that no node has; empty where a rule with several terms excludes every node."""
    short: Shortfall | None = None
    """The limit that the job exceeds as well, even if all quota is released."""
    near: tuple[str, ...] = ()
    """Names that exist: the resource spelled most alike, or all; values of the label."""


class HasQuota(Struct, frozen=True):
    """The job has quota and is not admitted yet."""

    leaves: tuple[str, ...] = ()
    """namespace/name of the jobs that leave, or move to other nodes, to make room for this job."""


class Suspended(Struct, frozen=True):
    """A decision of Muster has suspended the job."""

    leaving: Leaving
    remains: Remains = Remains()
    until: int = 0
    """Log time (ms) before which the job is not queued again; 0 while the job holds quota."""


class Start(Struct, frozen=True):
    """The job is resumed."""

    remains: Remains
    verdict: Verdict | None
    """kube-scheduler's verdict on the gang, where kube-scheduler places the gang."""


class Adoption(Struct, frozen=True):
    """The job is charged without an admission. ``by``, ``because``: the person that started the job by hand, and the
    reason, where the job names them.
    """

    reason: AdoptionReason
    by: str = ""
    because: str = ""


class Remainder(Struct, frozen=True):
    """The job is charged for pods that still exist. ``by``: the field manager that suspended the job."""

    remains: Remains
    by: str = ""


class Over(Struct, frozen=True):
    """The job has ended, or is gone."""

    outcome: Outcome = ""
    remains: Remains = Remains()
    ended: EndedAs = ""
    reason: str = ""
    """Of a job that is gone: the reason of the release or of leaving the queue."""
    request: Vector = field(default_factory=dict)
    """Of a job that is gone: the released amounts."""


Values = (
    Plain
    | Untried
    | Unlisted
    | NotQueued
    | Pause
    | Short
    | ResumeRefused
    | NoPlace
    | Unfit
    | HasQuota
    | Suspended
    | Start
    | Adoption
    | Remainder
    | Over
)


class Holder(Struct, frozen=True):
    """A charge for which a waiting job waits. ``amount`` in base units of the resource."""

    job: str
    amount: int
    does: Literal["deleted", "finished", "running", "admitted", "other"]
    kind: str = ""
    since: int = 0
    """Log time (ms) of the admission or of the first run."""
    phase: str = ""
    lost: str = ""
    """A node of the running job that is not ready."""


class Wanting(Struct, frozen=True):
    """The limit for which a waiting job waits, in base units and as of now."""

    refusal: Shortfall
    holders: tuple[Holder, ...] = ()
    """The largest first."""
    held_by: int = 0
    """How many jobs hold some of the resource in all."""

    @property
    def free(self) -> int:
        """The amount that is neither used, nor held or kept for others."""
        return max(self.refusal.asked - self.refusal.missing, 0)

    @property
    def missing(self) -> int:
        return self.refusal.missing


# --- gangs of pods ------------------------------------------------------------------------------------------------

GangCode = Literal[
    "Gone",
    "Waiting",
    "OtherScheduler",
    "KubeScheduler",
    "Starting",
    "Bound",
    "Running",
    "Finished",
    "Failed",
    HeldAs,
    "Waits",
    "FailedScheduling",
    "BindRefused",
]
"""The status of a gang, in one word; the last three are of pods in no gang."""


class Counted(Struct, frozen=True):
    """How many pods a gang has, and how far the pods have come."""

    pods: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def alive(self) -> int:
        """Pods that have a node and have not failed."""
        return self.bound - self.failed

    def phase(self, minimum: int) -> str:
        """The phase of the gang's PodGroup."""
        if self.succeeded >= minimum > 0:
            return "Finished"
        if self.failed and self.running + self.succeeded + self.failed >= minimum:
            return "Failed"
        if self.running + self.succeeded >= minimum:
            return "Running"
        return "Scheduling" if self.pods >= minimum else "Pending"


class GangStatus(Struct, frozen=True):
    """The status of a gang. ``held``: the last reason to wait, for a gang that waits."""

    code: GangCode
    pods: Counted = Counted()
    minimum: int = 0
    """How many pods the gang takes; 0 when unknown."""
    held: GangHeldBack | None = None
    verdict: Verdict | None = None
    """For a gang of Kubernetes itself: kube-scheduler's last verdict."""


NoPromise = Literal["not_waiting", "standing", "few_runs", "few_waits", "endless"]
"""Why no start is promised:

not_waiting  the job does not wait in a queue
standing     the queue does not determine how long the status of the job lasts
few_runs     too few runs have ended to know how long jobs take
few_waits    too few waits as long and as large have ended to know what a projection is worth
endless      as far as is known, the jobs ahead do not end
"""


class Promise(Struct, frozen=True):
    """About when a waiting job starts, and when 90 of 100 such jobs have started; log times in ms, 0 where ``why``."""

    start: int = 0
    latest: int = 0
    settled: int = 0
    """How many promises to jobs as large that had waited as long are known to have been kept or not."""
    kept: int = 0
    """How many of the settled promises were kept."""
    first: int = 0
    """The latest start that was promised to the job first, kept or not; 0 before a promise."""
    why: NoPromise | Literal[""] = ""
