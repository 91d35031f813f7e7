"""The values of the status of a subject: closed codes with numbers, without a sentence.

They import no state: the modules beside this one make them, ``told.wording`` words them.
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
"""How far a job has come: what ``muster ls`` filters by, and what the table of legal changes is about."""

EndedAs = Literal["finished", "left", "refused", "released", ""]
"""What happened last to a job that is gone."""


class Pools(Struct, frozen=True):
    """What node pools could give a gang: nodes that would do, or why none is any help."""

    growth: Growth | None = None
    refusals: tuple[PoolRefusal, ...] = ()


class NodesKept(Struct, frozen=True):
    """What becomes free on some nodes is kept for a gang that has waited too long."""

    gang: str
    """namespace/name"""
    uid: str
    """Of its job; empty for a gang of pods."""
    nodes: tuple[str, ...]


class Leaving(Struct, frozen=True):
    """Why an admitted job was suspended by a decision of ours, and which one."""

    code: Literal["Reclaimed", "Preempted", "RunningTimeout", "StaleGang", "Overuse"]
    generation: int
    cause: Cause
    claimant: str = ""
    """namespace/name of the job that it is evicted for."""
    queue: str = ""
    """The claimant's."""
    path: str = ""
    resource: str = ""
    priority: int = 0
    claimant_priority: int = 0
    served: bool = False
    """The claimant has had less service, whatever the priorities."""
    problem: FieldProblem | None = None
    """What kube-scheduler says, where it has no places for its gang; else how many of its pods have none."""
    of_nodes: bool = False
    """Its quota has room: it lacks room on the nodes."""
    before: tuple[str, ...] = ()
    """Where it is moved: names of the nodes it leaves, ..."""
    after: tuple[str, ...] = ()
    """... and of those it starts again on."""

    @property
    def stamp(self) -> str:
        return f"{self.generation}-{self.cause.seq}-{self.cause.item}"


class Remains(Struct, frozen=True):
    """What still exists of a job in the cluster."""

    children: bool = False
    pods: int = 0


class Scaling(Struct):
    """How far a Ray cluster that scales itself may grow, in replicas of each worker group."""

    granted: Counts = field(default_factory=dict)
    ceilings: Counts = field(default_factory=dict)
    """The most that its owner wants."""
    asked: Counts = field(default_factory=dict)
    """Its requests beyond its grant."""
    denied: GrowthDenied | None = None
    """What refuses that."""
    alarm: AlarmRaised | None = None
    """What is wrong with it."""
    promised: int = 0
    """Log time (ms) by which what is refused is granted, if declared run times are true; 0: not promised."""


class InLine(Struct, frozen=True):
    """The place of a job in its queue. ``position``: from 1; 0 for one that does not wait there."""

    position: int = 0
    length: int = 0
    ahead: tuple[str, ...] = ()
    """namespace/name of the first few before it."""
    leaving: Leaving | None = None
    """Why it was suspended before it came back."""


# --- the values of a code, one class for each set of them; told.codes.codetable says which code has which ---


class Plain(Struct, frozen=True):
    """The code says it all."""


class Untried(Struct, frozen=True):
    """Nothing refuses it now."""

    cleared: Shortfall | None = None
    """What refused it last and has room again."""


class Unlisted(Struct, frozen=True):
    """The cluster is not fully known."""

    missing: tuple[str, ...]
    """Kinds that are not listed yet."""


class NotQueued(Struct, frozen=True):
    """It asks to be queued and is not."""

    refusal: Refusal


class Pause(Struct, frozen=True):
    """A pause, as far as its author said why."""

    by: str
    message: str


class Short(Struct, frozen=True):
    """A limit refuses it."""

    refusal: Shortfall
    """With the numbers of now."""
    cause: Cause | None = None
    """The denial it is parked on, where there was one."""
    declared: int = 0
    """The run time (ms) that it declares, where part is held for age; 0: none."""
    promised: int = 0
    """Log time (ms) by which the claimant starts if the run times that jobs declare are true; 0: not promised."""
    owed: tuple[str, str, int] | None = None
    """(path, resource, amount) that others use or ask for within their guarantees, where it needs some of that, too."""
    idles: Idles | None = None
    """Where it has a claim for age."""


class Idles(Struct, frozen=True):
    """What was idle for a claim for age though others asked for it."""

    since: int
    """Log time (ms) from which it is held."""
    idle: int
    """The amount of the resource that refuses the claimant, times ms."""
    most: int
    """The claim ends when it comes to this."""


class ResumeRefused(Struct, frozen=True):
    """A write failed, and is tried again."""

    until: int
    """Log time (ms) before which it is not."""
    failures: int
    problem: FieldProblem | None


class NoPlace(Struct, frozen=True):
    """Its gang has no place on the nodes."""

    shortage: Shortage
    pools: Pools
    tried: int = 0
    """Log time (ms) at which its gang found no place last."""
    kept: tuple[NodesKept, ...] = ()
    """Nodes that are kept now: what is free there it does not get, unless they are kept for it."""
    leaves: tuple[str, ...] = ()
    """namespace/name of the jobs that leave, or move to other nodes, to make room for it."""


class HasQuota(Struct, frozen=True):
    """It has quota and is not admitted yet."""

    leaves: tuple[str, ...] = ()
    """namespace/name of the jobs that leave, or move to other nodes, to make room for it."""


class Suspended(Struct, frozen=True):
    """A decision of ours has suspended it."""

    leaving: Leaving
    remains: Remains = Remains()
    until: int = 0
    """Log time (ms) before which it is not queued again; 0 while it holds quota."""


class Start(Struct, frozen=True):
    """It is resumed."""

    remains: Remains
    verdict: Verdict | None
    """What kube-scheduler says of its gang, where that places it."""


class Adoption(Struct, frozen=True):
    """It is charged without an admission."""

    reason: AdoptionReason


class Remainder(Struct, frozen=True):
    """It is charged for its pods that still exist."""

    remains: Remains


class Over(Struct, frozen=True):
    """It has ended, or is gone."""

    outcome: Outcome = ""
    remains: Remains = Remains()
    ended: EndedAs = ""
    reason: str = ""
    """Of one that is gone: the reason of its release or of its leaving the queue."""
    request: Vector = field(default_factory=dict)
    """Of one that is gone: what it released."""


Values = (
    Plain
    | Untried
    | Unlisted
    | NotQueued
    | Pause
    | Short
    | ResumeRefused
    | NoPlace
    | HasQuota
    | Suspended
    | Start
    | Adoption
    | Remainder
    | Over
)


class Holder(Struct, frozen=True):
    """A charge that a waiting job waits for. ``amount`` in base units of the resource."""

    job: str
    amount: int
    does: Literal["deleted", "finished", "running", "admitted", "other"]
    kind: str = ""
    since: int = 0
    """Log time (ms) of its admission or of its first run."""
    phase: str = ""


class Wanting(Struct, frozen=True):
    """What a waiting job waits for, in base units and as of now."""

    refusal: Shortfall
    holders: tuple[Holder, ...] = ()
    """The largest first."""
    held_by: int = 0
    """How many hold some of it in all."""

    @property
    def free(self) -> int:
        """What is neither used, nor held or kept for others."""
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
    """How many pods of a gang there are, and how far they have come."""

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
        """The phase of its PodGroup."""
        if self.succeeded >= minimum > 0:
            return "Finished"
        if self.failed and self.running + self.succeeded + self.failed >= minimum:
            return "Failed"
        if self.running + self.succeeded >= minimum:
            return "Running"
        return "Scheduling" if self.pods >= minimum else "Pending"


class GangStatus(Struct, frozen=True):
    """The status of a gang. ``held``: the last reason why it waits, while it does."""

    code: GangCode
    pods: Counted = Counted()
    minimum: int = 0
    """How many pods it takes; 0 when it is unknown."""
    held: GangHeldBack | None = None
    verdict: Verdict | None = None
    """Of a gang of Kubernetes itself: what kube-scheduler said last."""


NoPromise = Literal["not_waiting", "standing", "few_runs", "few_waits", "endless"]
"""Why no start is promised:

not_waiting  it does not wait in a queue
standing     how long its standing lasts does not follow from its queue
few_runs     too few runs have ended to know how long jobs take
few_waits    too few waits have ended to know what a projection is worth
endless      as far as is known, what it waits for does not end
"""


class Promise(Struct, frozen=True):
    """About when a waiting job starts, and when 90 of 100 such jobs have started; log times in ms, 0 where ``why``."""

    start: int = 0
    latest: int = 0
    settled: int = 0
    """How many promises are known to have been kept or not, since the log began."""
    kept: int = 0
    """How many of those were kept."""
    why: NoPromise | Literal[""] = ""
