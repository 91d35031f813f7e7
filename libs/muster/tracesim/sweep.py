"""One pass over time: usage, requests and deserved shares; integrals of all of them in GPU-seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from msgspec import Struct, field

from muster.tracesim.history import History, JobHistory, JobRun
from muster.tracesim.model import GPU, Trace, TraceCluster, TraceJob
from muster.tracesim.shares import GpuShares
from muster.tracesim.stops import COSTLY, Stops

_PER_GPU_S = 1e-6
"""Base units x ms -> GPU-seconds."""

# What changes at a moment, in the order in which it is applied.
CAPACITY, STOP, USELESS, LEAVE, ARRIVE, START, ORDER = range(7)

Change = tuple[int, int, int, str, int]
"""(when, what, order, job id, amount)"""


class Integrals(Struct):
    """What the metrics are made of; GPU-seconds unless named otherwise."""

    contended_capacity: float = 0.0
    contended_useful: float = 0.0
    used_of_share: dict[str, float] = field(default_factory=dict)
    asked_of_share: dict[str, float] = field(default_factory=dict)
    over_max: float = 0.0
    under_guarantee: float = 0.0
    longest_head_s: float = 0.0


class Moment(Struct):
    """The cluster between two changes, for a chart; amounts in base units."""

    begin: int
    end: int
    capacity: int
    used: dict[str, int]
    asked: dict[str, int]
    deserved: Mapping[str, float]


def kept(uid: str, run: JobRun, stops: Stops, *, again: bool = False) -> int:
    """How much of a run (ms) is never done again: all of one that was not stopped, else up to its last checkpoint.

    ``again``: it was stopped before, so it began with a restart, which is no work.
    """
    ran = run.end - run.start
    if run.outcome not in ("evicted", "lost"):
        return ran
    return stops.kept(uid, ran, stops.restart if again else 0)


def changes(trace: Trace, history: History, stops: Stops) -> list[Change]:
    """Everything that changes, in order."""
    listed: list[Change] = [(at, CAPACITY, 0, "", amount) for at, amount in history.capacity]
    for order, job in enumerate(trace.jobs):
        past = history.jobs.get(job.id)
        if past is None or past.end == past.submit:
            continue
        end = past.end if past.end >= 0 else history.end
        listed.append((past.submit, ARRIVE, order, job.id, 0))
        if past.end >= 0:
            listed.append((end, LEAVE, order, job.id, 0))
        again = False
        for run in past.runs:
            listed += _run_changes(job, run, order, history.end, stops, again=again)
            again = again or run.start >= 0
    listed.sort()
    return listed


def _run_changes(job: TraceJob, run: JobRun, order: int, last: int, stops: Stops, *, again: bool) -> Iterator[Change]:
    """Of one run; one that took no time changes nothing."""
    if run.start < 0 or run.end == run.start:
        return
    whole = JobRun(run.reserved, run.admitted, run.start, run.end if run.end >= 0 else last, run.outcome)
    if run.start <= run.ordered < run.end:
        yield run.ordered, ORDER, order, job.id, 0
    useful = kept(job.id, whole, stops, again=again)
    yield whole.start, START, order, job.id, int(useful > 0)
    if 0 < useful < whole.end - whole.start:
        yield whole.start + useful, USELESS, order, job.id, 0
    if run.end >= 0:
        yield run.end, STOP, order, job.id, int(useful == run.end - run.start and useful > 0)


class Sweep:
    """Walks over the changes and sums up."""

    def __init__(self, trace: Trace, history: History, stops: Stops = COSTLY) -> None:
        self.trace = trace
        self.history = history
        self.changes = changes(trace, history, stops)
        self.cluster = trace.cluster
        self.shares = GpuShares(trace.cluster.root)
        self.capacity = 0
        self.useful = 0
        self.used = dict.fromkeys(trace.cluster.leaves, 0)
        self.asked = dict.fromkeys(trace.cluster.leaves, 0)
        self.preemptible: dict[str, dict[int, int]] = {path: {} for path in trace.cluster.leaves}
        """queue -> GPUs of a gang -> how many such gangs run and may be evicted"""
        self.leaving: dict[str, str] = {}
        """job that is evicted and has not stopped yet -> the job for which it leaves"""
        self.waiting: dict[str, dict[int, int]] = {path: {} for path in trace.cluster.leaves}
        """queue -> GPUs of a gang -> how many such gangs wait"""
        self.heads = {
            path: _Heads(queue.min.get(GPU, 0), _most(path, trace.cluster))
            for path, queue in trace.cluster.leaves.items()
        }
        self.nodes = [_Bounded(path, trace.cluster) for path in trace.cluster.queues]
        self.nodes = [node for node in self.nodes if node.limit is not None]
        self.sums = Integrals(
            used_of_share=dict.fromkeys(trace.cluster.leaves, 0.0),
            asked_of_share=dict.fromkeys(trace.cluster.leaves, 0.0),
        )

    def run(self, watch: Callable[[Moment], None] | None = None) -> Integrals:
        """Walk to the end; ``watch`` is shown every span between two changes."""
        now, index = 0, 0
        deserved: Mapping[str, float] = {}
        while index < len(self.changes):
            at = self.changes[index][0]
            if at > now:
                self._add(at - now, deserved)
                if watch is not None:
                    watch(Moment(now, at, self.capacity, self.used, self.asked, deserved))
                now = at
            while index < len(self.changes) and self.changes[index][0] == at:
                self._apply(self.changes[index])
                index += 1
            deserved = self.shares.of(float(self.capacity), self.asked)
        for heads in self.heads.values():
            heads.settle(self.history.end)
            self.sums.longest_head_s = max(self.sums.longest_head_s, heads.longest / 1000)
        return self.sums

    # --- changes ----------------------------------------------------------------------------------------------

    def _apply(self, change: Change) -> None:
        at, kind, order, uid, amount = change
        if kind == CAPACITY:
            self.capacity = amount
            return
        job = self.trace.by_id[uid]
        if kind == ARRIVE:
            self.asked[job.queue] += job.gpus
            self._wait(at, job, order)
        elif kind == START:
            self.used[job.queue] += job.gpus
            self.useful += job.gpus * amount
            self._unwait(at, job)
            self._runs(job, 1)
        elif kind == ORDER:
            self.leaving[uid] = next(run.claimant for run in self.history.jobs[uid].runs if run.ordered == at)
        elif kind == USELESS:
            self.useful -= job.gpus
        elif kind == STOP:
            self.leaving.pop(uid, None)
            self.used[job.queue] -= job.gpus
            self.useful -= job.gpus * amount
            self._runs(job, -1)
            self._wait(at, job, order)
        else:
            self.asked[job.queue] -= job.gpus
            self._unwait(at, job)

    def _runs(self, job: TraceJob, times: int) -> None:
        if job.preemptible and job.gpus:
            sizes = self.preemptible[job.queue]
            sizes[job.gpus] = sizes.get(job.gpus, 0) + times
            if not sizes[job.gpus]:
                del sizes[job.gpus]

    def _wait(self, at: int, job: TraceJob, order: int) -> None:
        sizes = self.waiting[job.queue]
        sizes[job.gpus] = sizes.get(job.gpus, 0) + 1
        self.heads[job.queue].add(at, job, order)

    def _unwait(self, at: int, job: TraceJob) -> None:
        sizes = self.waiting[job.queue]
        sizes[job.gpus] -= 1
        if not sizes[job.gpus]:
            del sizes[job.gpus]
        self.heads[job.queue].remove(at, job)

    # --- spans ------------------------------------------------------------------------------------------------

    def _add(self, ms: int, deserved: Mapping[str, float]) -> None:
        sums, span = self.sums, ms * _PER_GPU_S
        if sum(self.asked.values()) >= self.capacity > 0:
            sums.contended_capacity += self.capacity * span
            sums.contended_useful += self.useful * span
        rooms: dict[str, int] = {}
        for path, asked in self.asked.items():
            if not asked:
                continue
            used, share = self.used[path], deserved.get(path, 0.0)
            sums.used_of_share[path] += min(used, share) * span
            sums.asked_of_share[path] += min(share, asked) * span
            rooms[path] = self.heads[path].guaranteed - used
        sums.under_guarantee += self._unserved(rooms) * span
        for node in self.nodes:
            excess = sum(self.used[path] for path in node.leaves) - (node.limit or 0)
            if excess > 0:
                sums.over_max += excess * span

    def _unserved(self, rooms: Mapping[str, int]) -> int:
        """GPUs of waiting gangs within their queue's min that are free, or used by queues above their min: whole jobs
        leave such a queue as long as it is above. Gangs for which jobs leave are served, from free GPUs too: peers
        admit such a gang with the order of the evictions.
        """
        gone = sum(self.trace.by_id[uid].gpus for uid in self.leaving)
        served = [self.trace.by_id[uid] for uid in dict.fromkeys(self.leaving.values()) if uid in self.history.jobs]
        served = [job for job in served if self.heads[job.queue].has(job.id)]
        open_rooms = dict(rooms)
        for job in served:
            open_rooms[job.queue] = open_rooms.get(job.queue, 0) - job.gpus
        fitting = sum(min(self._fitting(path, room, served), room) for path, room in open_rooms.items() if room > 0)
        over = sum(_whole(self.preemptible[path], -room) for path, room in rooms.items() if room < 0)
        free = max(self.capacity - sum(self.used.values()), 0)
        asked = sum(job.gpus for job in served)
        spare = max(gone - max(asked - free, 0), 0)  # What leaves beyond the need of the served gangs is for others.
        return max(min(fitting - spare, over + (free if over else 0) - max(gone, asked)), 0)

    def _fitting(self, path: str, room: int, served: Iterable[TraceJob]) -> int:
        """GPUs of the gangs waiting in a queue that are no larger than so much and not served."""
        fitting = sum(size * count for size, count in self.waiting[path].items() if size <= room)
        return fitting - sum(job.gpus for job in served if job.queue == path and job.gpus <= room)


def _whole(sizes: Mapping[int, int], over: int) -> int:
    """The most that jobs of these sizes give as long as their queue is above its min, by so much at first."""
    total = sum(size * count for size, count in sizes.items())
    return min(total, over - 1 + max(sizes)) if total else 0


class _Bounded:
    """A queue with the leaves below it and its max."""

    def __init__(self, path: str, cluster: TraceCluster) -> None:
        queue = cluster.queues[path]
        self.limit = queue.max.get(GPU)
        self.leaves = tuple(node.path for node in queue.walk() if node.path in cluster.leaves)


def _most(path: str, cluster: TraceCluster) -> int:
    """GPUs of the largest gang that the limits of a queue, of those above it, and the cluster allow."""
    limits = [
        queue.max[GPU] for at, queue in cluster.queues.items() if GPU in queue.max and f"{path}/".startswith(f"{at}/")
    ]
    return min((*limits, cluster.capacity.get(GPU, 0)))


class _Heads:
    """The first job of a queue, and how long each was first: by priority, then by arrival."""

    def __init__(self, guaranteed: int, most: int) -> None:
        self.guaranteed = guaranteed
        self.most = most
        """GPUs of the largest gang that could ever be admitted."""
        self.longest = 0
        self._heap: list[tuple[int, int, int, str]] = []
        self._waiting: dict[str, int] = {}
        """job -> GPUs"""
        self._stood: dict[str, int] = {}
        self._head = ""
        self._head_gpus = 0
        self._since = 0

    def add(self, at: int, job: TraceJob, order: int) -> None:
        self._waiting[job.id] = job.gpus
        heappush(self._heap, (-job.priority, job.submit, order, job.id))
        self._update(at)

    def has(self, uid: str) -> bool:
        """Whether a job waits."""
        return uid in self._waiting

    def remove(self, at: int, job: TraceJob) -> None:
        self._waiting.pop(job.id, None)
        self._update(at)

    def _update(self, at: int) -> None:
        while self._heap and self._heap[0][3] not in self._waiting:
            heappop(self._heap)
        head = self._heap[0][3] if self._heap else ""
        if head != self._head:
            self.settle(at)
            self._head, self._head_gpus, self._since = head, self._waiting.get(head, 0), at

    def settle(self, at: int) -> None:
        """Count the time since the head is first, if it could ever be admitted."""
        if self._head and self._head_gpus <= self.most:
            waited = self._stood[self._head] = self._stood.get(self._head, 0) + at - self._since
            self.longest = max(self.longest, waited)
        self._since = at


def waits(past: JobHistory, job: TraceJob) -> float | None:
    """Seconds a finished job waited in all, after a stop included; None when it has not finished."""
    if past.end < 0 or job.duration is None:
        return None
    return (past.end - past.submit - job.duration) / 1000
