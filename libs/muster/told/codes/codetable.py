"""Closed codes of jobs and of pods of jobs, one row for each code.

Only the table here lists the codes of a job. A row has everything that readers ask of a code: Events, QueueUnits,
colours, promises, holders. ``told.wording.meanings`` has the words of the codes in the same order. An import checks
both tables.

The codes of a pod say why pods of a job do not run; ``told.wording.pods`` has the words.

The values for Ray clusters: each waiting piece, and the fate of the piece in each worker group.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.events.refusals import RefusalReason
from muster.model.closed import IncompleteTableError, total
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.raydemand import RayShape, RayTrouble
from muster.told.codes.values import (
    Adoption,
    HasQuota,
    NoPlace,
    NotQueued,
    Over,
    Pause,
    Phase,
    Plain,
    Remainder,
    ResumeRefused,
    Short,
    Start,
    Suspended,
    Unfit,
    Unlisted,
    Untried,
    Values,
)

# --- codes ------------------------------------------------------------------------------------------------------------


JobCode = Literal[
    "Seen",
    "NotSynced",
    "NoQuotaTree",
    "NoQuota",
    "TwoQuotas",
    "QueueLabelMissing",
    "QueueDoesNotExist",
    "SetAside",
    "CannotSuspend",
    "Held",
    "Unreadable",
    "Unmanaged",
    "NotSuspended",
    "Queued",
    "BeingTried",
    "LogNearlyFull",
    "Paused",
    "BehindHead",
    "FitsNoNode",
    "InsufficientQuota",
    "InsufficientMinQuota",
    "InsufficientRuntimeQuota",
    "ExceedsMaxQuota",
    "ExceedsMinQuota",
    "QuotaHeld",
    "WaitingForClaim",
    "ResumeFailed",
    "GangUnschedulable",
    "RunningTimeout",
    "StaleGang",
    "Overuse",
    "Reclaimed",
    "Preempted",
    "Reserved",
    "AwaitingNodes",
    "WouldBeAdmitted",
    "Admitted",
    "Starting",
    "Running",
    "Adopted",
    "SuspendedOutside",
    "Finished",
    "FinishedStillCharged",
    "DeletedStillCharged",
    "Gone",
]


Tone = Literal["good", "waits", "act", "plain"]
"""How a code looks: the job has quota; the job waits and nothing has to be done; someone must act; none of these."""

Lasts = Literal["moment", "while", "final"]
"""How long a code lasts: until the next stage has answered; until others change something; until the owner of the job
or
of the quota changes something.
"""

Holders = Literal["none", "all", "firm"]
"""Which charges keep a job waiting: none; all at the quota that refuses the job; the charges that are not preemptible.
"""

Told = Literal["never", "while", "after"]
"""When a Kubernetes Event on the job has this reason: while the job has the code; once it is queued again."""


class Code(Struct, frozen=True, kw_only=True):
    """One row. ``phases``: the phases in which a job may have the code."""

    phases: tuple[Phase, ...] = ("waiting",)
    tone: Tone = "waits"
    lasts: Lasts = "while"
    event: Told = "never"
    values: type[Values] = Plain
    turn: bool = False
    """The code ends when other jobs end, so that a start can be projected."""
    holders: Holders = "none"
    started: bool = False
    """The pods of the job may exist."""
    refuses: RefusalReason | None = None
    """The reason in the log that keeps the job out of the queue."""
    kai: str = ""
    """KAI Scheduler's reason for the code."""


def _refused(reason: RefusalReason) -> Code:
    return Code(phases=("refused",), tone="act", lasts="final", event="while", values=NotQueued, refuses=reason)


CODES: dict[JobCode, Code] = {
    "Seen": Code(phases=("seen",), lasts="moment", values=Untried),
    "NotSynced": Code(phases=("seen", "outside", "waiting", "refused"), values=Unlisted),
    "NoQuotaTree": _refused("no_tree"),
    "NoQuota": _refused("unbound"),
    "CannotSuspend": _refused("cannot_suspend"),
    "TwoQuotas": _refused("two_quotas"),
    "QueueLabelMissing": _refused("queue_label_missing"),
    "QueueDoesNotExist": _refused("queue_unknown"),
    "SetAside": _refused("set_aside"),
    "Held": _refused("held"),
    "Unreadable": _refused("unreadable"),
    "Unmanaged": Code(phases=("outside",), tone="plain"),
    "NotSuspended": Code(phases=("outside",), tone="plain"),
    "Queued": Code(lasts="moment", turn=True, values=Untried),
    "BeingTried": Code(lasts="moment", turn=True),
    "LogNearlyFull": Code(tone="act", lasts="moment"),
    "Paused": Code(tone="act", event="while", values=Pause),
    "BehindHead": Code(event="while"),
    "FitsNoNode": Code(tone="act", lasts="final", event="while", values=Unfit, kai="PodSchedulingErrors"),
    "InsufficientQuota": Code(event="while", turn=True, values=Short, holders="all", kai="OverLimit"),
    "InsufficientMinQuota": Code(event="while", turn=True, values=Short, holders="firm", kai="NonPreemptibleOverQuota"),
    "InsufficientRuntimeQuota": Code(event="while", turn=True, values=Short, holders="all"),
    "ExceedsMaxQuota": Code(tone="act", lasts="final", event="while", values=Short, kai="OverLimit"),
    "ExceedsMinQuota": Code(tone="act", lasts="final", event="while", values=Short, kai="NonPreemptibleOverQuota"),
    "QuotaHeld": Code(event="while", turn=True, values=Short, holders="all"),
    "WaitingForClaim": Code(event="while", turn=True, values=Short, holders="all"),
    "ResumeFailed": Code(tone="act", event="while", values=ResumeRefused),
    "GangUnschedulable": Code(tone="act", values=NoPlace),
    "RunningTimeout": Code(phases=("waiting", "leaving"), tone="act", event="while", values=Suspended, started=True),
    "StaleGang": Code(phases=("waiting", "leaving"), tone="act", event="while", values=Suspended, started=True),
    "Overuse": Code(phases=("waiting", "leaving"), tone="act", event="while", values=Suspended, started=True),
    "Reclaimed": Code(phases=("waiting", "leaving"), event="after", values=Suspended, started=True),
    "Preempted": Code(phases=("waiting", "leaving"), event="after", values=Suspended, started=True),
    "Reserved": Code(phases=("reserved",), tone="good", lasts="moment", values=HasQuota),
    "AwaitingNodes": Code(phases=("reserved",), tone="act", values=NoPlace),
    "WouldBeAdmitted": Code(phases=("admitted",), tone="good", lasts="moment"),
    "Admitted": Code(phases=("admitted",), tone="good", lasts="moment"),
    "Starting": Code(phases=("admitted",), tone="good", values=Start, started=True),
    "Running": Code(phases=("running",), tone="good", started=True),
    "Adopted": Code(phases=("admitted", "running"), tone="good", values=Adoption, started=True),
    "SuspendedOutside": Code(phases=("leaving",), event="while", values=Remainder, started=True),
    "Finished": Code(phases=("finished",), tone="plain", values=Over),
    "FinishedStillCharged": Code(phases=("finished",), tone="plain", values=Over),
    "DeletedStillCharged": Code(phases=("gone",), tone="plain", values=Remainder),
    "Gone": Code(phases=("gone",), tone="plain", values=Over),
}

FILE = "libs/muster/told/codes/codetable.py (CODES)"

REFUSED: dict[RefusalReason, JobCode] = {row.refuses: code for code, row in CODES.items() if row.refuses}

total(CODES, JobCode, FILE)
total(REFUSED, RefusalReason, f"{FILE}.refuses")
for _code, _row in CODES.items():
    if _row.holders != "none" and _row.values is not Short:
        raise IncompleteTableError(f"{FILE}: {_code} names holders and has no Short, whose holders they would be")


# --- pods -------------------------------------------------------------------------------------------------------------


Stops = Literal["waits", "breaks"]
"""What a code means for the pod: it waits and may run yet without an act; it has failed, or fails until someone acts.
"""

POD_CODES: dict[PodCode, Stops] = {
    "OOMKilled": "breaks",
    "Evicted": "breaks",
    "NodeLost": "breaks",
    "DeadlineExceeded": "breaks",
    "ContainerFailed": "breaks",
    "PodFailed": "breaks",
    "CrashLoopBackOff": "breaks",
    "ImagePullBackOff": "breaks",
    "ContainerNotCreated": "breaks",
    "PodsRefused": "breaks",
    "Unschedulable": "waits",
    "InitWaiting": "waits",
}
"""By rank: of several codes at the pods of one job, the first in this order is shown."""

total(POD_CODES, PodCode, "libs/muster/told/codes/codetable.py (POD_CODES)")
RANK: dict[PodCode, int] = {code: index for index, code in enumerate(POD_CODES)}


def worse(code: PodCode, than: PodCode | None) -> bool:
    """Whether a code is shown before another one."""
    return than is None or RANK[code] < RANK[than]


class TroubledPod(Struct, frozen=True):
    """A pod that does not run, or has failed."""

    name: str
    trouble: PodTrouble
    since: int
    """Log time (ms) since which the pod has had this code."""
    over: bool = False
    group: str = ""
    """The worker group of a Ray cluster, for a pod of a worker group."""


class HeldUp(Struct, frozen=True):
    """The worst code among the pods of a job: the code keeps the pods from running, or made the job fail."""

    first: TroubledPod
    """The pod that has had the code for the longest time."""
    pods: int = 1
    """How many have the same code."""

    @property
    def code(self) -> PodCode:
        return self.first.trouble.code


# --- pieces that wait in a Ray cluster --------------------------------------------------------------------------------


Fate = Literal["too_small", "other_labels", "no_nodes", "refused", "asked", "coming", "at_most", "elsewhere"]
"""The fate of a piece in one worker group:

too_small     one worker does not offer enough
other_labels  the nodes of the group do not have the labels
no_nodes      granted workers find no node
refused       quota refuses more replicas
asked         more replicas are asked for, and not answered yet
coming        replicas are granted, and not all of the replicas have joined
at_most       the owner of the group allows no more replicas
elsewhere     no worker of the group is asked for: another group, or a worker with room, comes first
"""


class GroupFate(Struct, frozen=True):
    """The fate of a piece in one worker group."""

    group: str
    fate: Fate
    count: int = 0
    """Pods without a node, or replicas that are asked for, granted or allowed."""
    joined: int = 0
    """How many of the granted replicas have joined."""
    resource: str = ""
    """Of ``too_small``: Ray's name of the resource that the worker lacks."""
    asked: int = 0
    offers: int = 0
    """How much of the resource one worker offers, as ``asked`` in ten-thousandths."""
    short: Shortfall | None = None
    pod: TroubledPod | None = None


class RayPiece(Struct, frozen=True):
    """A piece that waits as a whole: tasks and actors of one shape, a placement group, or an explicit request."""

    kind: Literal["alone", "placement_group", "explicit"]
    shapes: tuple[RayShape, ...]
    fates: tuple[GroupFate, ...]
    name: str = ""
    strategy: str = ""


class RayWaits(Struct, frozen=True):
    """Every waiting piece of one cluster, by the last report of the cluster's head."""

    cluster: Ref
    read_at: int
    pieces: tuple[RayPiece, ...]
    trouble: RayTrouble | None = None
    """Why the report may be old."""
