"""What the gateway answers with. The OpenAPI document is made of these: fields are added, none is changed or removed.

Times are RFC 3339; amounts are given in base units (cpu and GPUs in thousandths, memory in bytes), and as Kubernetes
writes them.
"""

from __future__ import annotations

from msgspec import Struct, field


class MomentView(Struct, frozen=True):
    """A position of the log."""

    generation: int
    sequence: int
    at: str
    live: bool = True
    """Whether it is the newest one."""
    log_id: str = ""


class AmountView(Struct, frozen=True):
    """One resource at one quota."""

    resource: str
    used: int
    guaranteed: int
    limit: int | None
    held: int
    """Kept for waiting jobs that others leave for."""
    borrowed: int
    text: str
    """What of it is used, of how much."""


class HeadView(Struct, frozen=True):
    """The first waiting job of a queue."""

    job: str
    code: str
    text: str


class WorkersView(Struct, frozen=True):
    """Worker replicas of Ray clusters: granted ones, how many more are asked for, how many are taken back."""

    granted: int
    asked: int
    going: int


class QueueView(Struct, frozen=True):
    """One quota of the tree. The counts of an inner one include everything below it."""

    path: str
    name: str
    depth: int
    leaf: bool
    namespaces: list[str]
    amounts: list[AmountView]
    waiting: int
    admitted: int
    running: int
    policy: str
    paused: list[str] = field(default_factory=list)
    head: HeadView | None = None
    priority: int = 0
    beyond: dict[str, int] = field(default_factory=dict)
    """What of the use runs beyond what was granted, by resource."""
    workers: WorkersView | None = None
    """Of the Ray clusters in it that scale themselves; none where there are none."""


class QueuesView(Struct, frozen=True):
    """The quota tree."""

    moment: MomentView
    tree: str
    queues: list[QueueView]
    notes: list[str] = field(default_factory=list)
    """What keeps everything from being admitted, and what is paused; a sentence each."""
    profile: str = ""
    unsynced: list[str] = field(default_factory=list)
    """What is not listed yet: nothing is admitted meanwhile."""
    pauses: list[str] = field(default_factory=list)


class StartView(Struct, frozen=True):
    """A promised start: about when, and by when in 9 of 10 cases."""

    start: str
    latest: str
    percent: int
    settled: int
    """How many promises of this log are known to have been kept or not."""
    kept: int


class JobView(Struct, frozen=True):
    """One job as it is listed."""

    uid: str
    kind: str
    namespace: str
    name: str
    state: str
    status: str
    queue: str
    position: int
    length: int
    priority: int | None
    request: dict[str, str]
    since: str
    text: str
    outcome: str = ""
    """How it ended: succeeded, failed or invalid."""
    tone: str = ""
    """How that looks: ``good``; ``waits``, and nothing has to be done; ``act``, something has to; ``plain``."""
    cause: str = ""
    """What keeps its pods from running, or made it fail: a code of a closed set."""
    cause_since: str = ""
    promise: StartView | None = None
    why_no_promise: str = ""
    owner: str = ""
    """As label or annotation muster.dev/owner says."""
    no_promise: str = ""
    """Why no start is promised, as a code of a closed set."""


class JobsView(Struct, frozen=True):
    """A page of jobs. ``states``: how many there are of each state, whatever the filter asks of the state."""

    moment: MomentView
    total: int
    states: dict[str, int]
    jobs: list[JobView]
    failed: int = 0
    """How many of the finished and gone ones have failed."""


class EventView(Struct, frozen=True):
    """Something that happened. ``sequence`` and ``index`` name it in the log; ``times`` over 1: so often in a row."""

    at: str
    sequence: int
    index: int
    subject: str
    word: str
    text: str
    weight: str
    times: int = 1
    last_at: str = ""
    """When it happened last, where it did more than once."""


class PaceView(Struct, frozen=True):
    """What a wait may still take by the speed of the queue, in ms: 8 of 10 should end between ``low`` and ``high``.

    All three are -1 where nothing can be said; ``why``: too_few or overdue.
    """

    low: int
    middle: int
    high: int
    rows: int
    intervals: int
    why: str


class HolderView(Struct, frozen=True):
    """A job that holds what another waits for; ``job`` is empty where it may not be shown."""

    job: str
    amount: str
    text: str


class WantingView(Struct, frozen=True):
    """The limit that a waiting job is refused by, in numbers of the moment."""

    quota: str
    resource: str
    request: str
    limit: str
    used: str
    free: str
    missing: str
    holders: list[HolderView] = field(default_factory=list)
    held_by: int = 0


class PieceView(Struct, frozen=True):
    """Tasks and actors of one shape, or a placement group, that wait; ``groups``: what each worker group says to it."""

    text: str
    groups: list[str]


class RayWaitsView(Struct, frozen=True):
    """What waits in a Ray cluster, as its head said last."""

    text: str
    pieces: list[PieceView]


class WhyView(Struct, frozen=True):
    """A job: its status, what it waits for, and everything that happened to it."""

    moment: MomentView
    job: JobView
    text: str
    wanting: WantingView | None
    events: list[EventView]
    pauses: list[str] = field(default_factory=list)
    earlier: int = 0
    """How many jobs of the same name there were before it."""
    waits: list[RayWaitsView] = field(default_factory=list)
    """What waits in its Ray clusters."""
    code: str = ""
    """Its status, where it is known whether admissions are carried out."""
    charged: str = ""
    """What it is charged for."""
    pace: PaceView | None = None
    """By the speed of its queue, where it waits for its turn; for jobs without a promise."""
    pod: str = ""
    """Of the pod that was named instead of its job: where it is, or why it does not run."""


class CauseView(Struct, frozen=True):
    """One event of a chain of causes; empty words where it may not be shown."""

    sequence: int
    index: int
    at: str
    stage: str
    decision: bool
    word: str
    subject: str
    text: str
    job: str = ""
    """namespace/name of the job that it is about, where it is about one."""


class CausesView(Struct, frozen=True):
    """An event, its cause, the cause of that, and so on, back to an observation."""

    moment: MomentView
    chain: list[CauseView]


class PodShown(Struct, frozen=True):
    """A pod on a node."""

    namespace: str
    name: str
    job: str
    request: dict[str, str]
    devices: list[int] = field(default_factory=list)


class NodeView(Struct, frozen=True):
    """A node: what it has, what is free, and which pods hold the rest."""

    name: str
    ready: bool
    schedulable: bool
    allocatable: dict[str, str]
    free: dict[str, str]
    gpus: int
    """Whole GPUs it has."""
    gpus_used_milli: int
    pods: list[PodShown]
    others: int = 0
    """Pods on it that may not be shown."""


class NodesView(Struct, frozen=True):
    """The nodes. ``total``: how many there are; ``fragmented``: nodes of which only a part of the GPUs is free."""

    moment: MomentView
    total: int
    fragmented: int
    nodes: list[NodeView]


class GangPod(Struct, frozen=True):
    """A pod of a gang, and where it is."""

    name: str
    where: str


class GangView(Struct, frozen=True):
    """A gang of pods."""

    name: str
    code: str
    text: str
    minimum: int
    pods: list[GangPod]


class GangsView(Struct, frozen=True):
    """The gangs of pods that are placed as one."""

    moment: MomentView
    total: int
    gangs: list[GangView]


class GangTold(Struct, frozen=True):
    """A gang and what happened to it."""

    moment: MomentView
    gang: GangView
    events: list[EventView]


class HappenedView(Struct, frozen=True):
    """What happened, the newest first."""

    moment: MomentView
    events: list[EventView]


class MomentsView(Struct, frozen=True):
    """The turns of the log to slide along, the oldest first; where there are many, some of them."""

    first: MomentView
    last: MomentView
    marks: list[EventView]


class PointView(Struct, frozen=True):
    """What one quota used of a resource from a moment on."""

    sequence: int
    at: str
    used: int
    guaranteed: int
    limit: int | None


class SeriesView(Struct, frozen=True):
    """Use against guarantee over time."""

    moment: MomentView
    queue: str
    resource: str
    points: list[PointView]


class Viewer(Struct, frozen=True):
    """The user of the request, and what this user may see. ``namespaces`` None: all."""

    name: str
    namespaces: list[str] | None
    nodes: bool
    cell: str
    version: str


class FindingView(Struct, frozen=True):
    """Something that is wrong. ``level``: ``stopped``, nothing is admitted; ``attention``, an object needs a change."""

    level: str
    subject: str
    """The object it is about; empty for the whole."""
    text: str


class HealthView(Struct, frozen=True):
    """Whether the cell works."""

    moment: MomentView
    admits: bool
    summary: str
    findings: list[FindingView]


class Problem(Struct, frozen=True):
    """Why there is no answer."""

    error: str
