"""The shapes of the gateway's answers. The OpenAPI document is made of these shapes: fields are only added.

Times are RFC 3339; amounts are in base units (cpu and GPUs in thousandths, memory in bytes), and as Kubernetes
writes quantities.
"""

from __future__ import annotations

from msgspec import Struct, field


class MomentView(Struct, frozen=True):
    """A position of the log."""

    generation: int
    sequence: int
    at: str
    live: bool = True
    """Whether the moment is the newest."""
    log_id: str = ""


class AmountView(Struct, frozen=True):
    """One resource at one quota."""

    resource: str
    used: int
    guaranteed: int
    limit: int | None
    held: int
    """Kept for waiting jobs whose victims leave."""
    borrowed: int
    text: str
    """The used amount, and the limit."""


class HeadView(Struct, frozen=True):
    """The first waiting job of a queue."""

    job: str
    code: str
    text: str


class WorkersView(Struct, frozen=True):
    """Worker replicas of Ray clusters: granted, asked for beyond the grant, and being taken back."""

    granted: int
    asked: int
    going: int


class QueueView(Struct, frozen=True):
    """One quota of the tree. The counts of an inner quota include all quotas below."""

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
    """The part of the use beyond the grants, by resource."""
    workers: WorkersView | None = None
    """Of the Ray clusters in the quota that scale themselves; none without such clusters."""


class QueuesView(Struct, frozen=True):
    """The quota tree."""

    moment: MomentView
    tree: str
    queues: list[QueueView]
    notes: list[str] = field(default_factory=list)
    """The reasons that stop all admissions, and the pauses; one sentence for each."""
    profile: str = ""
    unsynced: list[str] = field(default_factory=list)
    """Resources that are not listed yet: nothing is admitted meanwhile."""
    pauses: list[str] = field(default_factory=list)


class StartView(Struct, frozen=True):
    """A promised start: about when, and by when in 9 of 10 cases."""

    start: str
    latest: str
    percent: int
    settled: int
    """How many promises to jobs as large that had waited as long are known to have been kept or not."""
    kept: int
    first: str = ""
    """The latest start that was promised to the job first; empty before a promise."""


class JobView(Struct, frozen=True):
    """One job as a row of the list."""

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
    """How the job ended: succeeded, failed or invalid."""
    tone: str = ""
    """How the status looks: ``good``; ``waits``, and nothing has to be done; ``act``, someone must act; ``plain``."""
    cause: str = ""
    """The code of a pod, of a closed set, that keeps the pods from running, or made the job fail."""
    cause_since: str = ""
    promise: StartView | None = None
    why_no_promise: str = ""
    owner: str = ""
    """As label or annotation muster.dev/owner says."""
    no_promise: str = ""
    """Why no start is promised, as a code of a closed set."""
    headline: str = ""
    """One short sentence about the state; jobs that wait for the same read alike. Empty for a job that is over."""


class JobsView(Struct, frozen=True):
    """A page of jobs. ``states``: the number of jobs in each state, regardless of the state in the filter."""

    moment: MomentView
    total: int
    states: dict[str, int]
    jobs: list[JobView]
    failed: int = 0
    """How many of the finished and gone jobs have failed."""


class EventView(Struct, frozen=True):
    """A happening. ``sequence`` and ``index`` name its place in the log; ``times`` over 1: repeats in a row."""

    at: str
    sequence: int
    index: int
    subject: str
    word: str
    text: str
    weight: str
    times: int = 1
    last_at: str = ""
    """The time of the last repeat, for a happening with repeats."""


class PaceView(Struct, frozen=True):
    """The rest of a wait by the speed of the queue, in ms: 8 of 10 waits should end between ``low`` and ``high``.

    All three are -1 without an estimate; ``why``: too_few or overdue.
    """

    low: int
    middle: int
    high: int
    rows: int
    intervals: int
    why: str


class HolderView(Struct, frozen=True):
    """A job that holds quota for which another job waits; ``job`` is empty where the job may not be shown."""

    job: str
    amount: str
    text: str


class WantingView(Struct, frozen=True):
    """The limit that refuses a waiting job, in numbers of the moment."""

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
    """Waiting tasks and actors of one shape, or a placement group; ``groups``: the fate in each worker group."""

    text: str
    groups: list[str]


class RayWaitsView(Struct, frozen=True):
    """The waiting demand of a Ray cluster, by the last report of the head."""

    text: str
    pieces: list[PieceView]


class WhyView(Struct, frozen=True):
    """A job: the status, the limit for which the job waits, and the whole history."""

    moment: MomentView
    job: JobView
    text: str
    wanting: WantingView | None
    events: list[EventView]
    pauses: list[str] = field(default_factory=list)
    earlier: int = 0
    """How many earlier jobs had the same name."""
    waits: list[RayWaitsView] = field(default_factory=list)
    """The waiting demand of the job's Ray clusters."""
    code: str = ""
    """The status code, where the gateway knows whether admissions are carried out."""
    charged: str = ""
    """The charged amounts."""
    pace: PaceView | None = None
    """By the speed of the queue, for a job that waits for its turn without a promise."""
    pod: str = ""
    """The node, or the trouble, of the pod that the question named instead of the job."""


class CauseView(Struct, frozen=True):
    """One event of a chain of causes; empty words where the event may not be shown."""

    sequence: int
    index: int
    at: str
    stage: str
    decision: bool
    word: str
    subject: str
    text: str
    job: str = ""
    """namespace/name of the job, for an event about a job."""


class CausesView(Struct, frozen=True):
    """An event, the cause of the event, the cause of the cause, and so on, back to an observation."""

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
    """A node: all amounts, the free amounts, and the pods that hold the rest."""

    name: str
    ready: bool
    schedulable: bool
    allocatable: dict[str, str]
    free: dict[str, str]
    gpus: int
    """Whole GPUs of the node."""
    gpus_used_milli: int
    pods: list[PodShown]
    others: int = 0
    """Pods on the node that may not be shown."""


class NodesView(Struct, frozen=True):
    """The nodes. ``total``: the number of nodes; ``fragmented``: nodes on which only a part of the GPUs is free."""

    moment: MomentView
    total: int
    fragmented: int
    nodes: list[NodeView]


class GangPod(Struct, frozen=True):
    """A pod of a gang, and the place of the pod."""

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
    """A gang and its history."""

    moment: MomentView
    gang: GangView
    events: list[EventView]


class HappenedView(Struct, frozen=True):
    """The happenings, the newest first."""

    moment: MomentView
    events: list[EventView]


class MomentsView(Struct, frozen=True):
    """The turns of the log for the time slider, the oldest first; a selection where there are many."""

    first: MomentView
    last: MomentView
    marks: list[EventView]


class PointView(Struct, frozen=True):
    """The use of a resource in one quota from a moment on."""

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
    """The user of the request, and the rights of the user. ``namespaces`` None: all."""

    name: str
    namespaces: list[str] | None
    nodes: bool
    cell: str
    version: str


class FindingView(Struct, frozen=True):
    """A problem. ``level``: ``stopped``, nothing is admitted; ``attention``, an object needs a change."""

    level: str
    subject: str
    """The object with the problem; empty for the whole cell."""
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


class WaiterView(Struct, frozen=True):
    """A waiting job; ``waited`` in ms."""

    job: str
    position: int
    priority: int
    waited: int
    reason: str


class TallyView(Struct, frozen=True):
    """How often each thing happened to the known jobs. Times in ms."""

    queued: int
    admitted: int
    finished: int
    released: int
    evicted: int
    denied: int
    longest_wait: int
    longest_waiter: str
    waits: int
    """The sum of the waits of the admitted jobs."""


class TaleView(Struct, frozen=True):
    """A queue and all queues below: the use, the waiting jobs, and the turns of jobs, the newest last."""

    moment: MomentView
    queue: str
    usage: str
    guaranteed: str
    tally: TallyView
    waiting: list[WaiterView]
    length: int
    events: list[EventView]
    left_out: int
    next_start: PaceView
    pauses: list[str]
