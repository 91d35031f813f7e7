"""The reference engine: policies to compare with, on the same jobs, the same cluster and the same kind of log.

The engine shares no code with the stages: a policy looks at waiting jobs, running jobs and free amounts, and names the
jobs to start and to stop. Decisions are written in the words of the log, for the same metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from muster.core.cell.seats import AnySeat, InMemoryCell
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, WorkloadQueued
from muster.events.envelope import MAX_EVENTS, CommitKind, Stored
from muster.events.facts import WorkloadObserved
from muster.model.victims import Victim
from muster.model.workload import Workload
from muster.tracesim.facts import EPOCH_MS, Facts
from muster.tracesim.faults import NO_FAULTS, FaultSchedule
from muster.tracesim.machines import Machines, VirtualTime, node_capacities
from muster.tracesim.model import GPU, Trace, TraceJob
from muster.tracesim.places import Amounts, Places
from muster.tracesim.stops import COSTLY, FREE, Stops

WATCHER = "watcher"
Sink = Callable[[Stored], None]


class Task(Struct, eq=False):
    """A job that has been submitted and has not ended."""

    job: TraceJob
    order: int
    """Its place among all jobs, by arrival."""
    workload: Workload
    done: int = 0
    """Work that is saved, ms."""
    stopped: bool = False
    """It has been stopped, once at least."""
    waits_since: int = 0
    """When it came, or was stopped last."""
    admitted: int = -1
    """When the job was admitted, -1 while the job waits."""
    began: int = -1
    """When it began to run, -1 while it does not."""
    need: Amounts = ()
    """The request of each pod, where nodes count."""
    count: int = 0
    """The number of pods."""
    nodes: list[str] = field(default_factory=list)
    """The nodes of the pods."""
    idle: int = 0
    """How long it does no work at first: it was stopped before, or waits until others have stopped; ms."""

    def remaining(self, now: int) -> int | None:
        """Work left in ms; None when it never ends."""
        if self.job.duration is None:
            return None
        ran = max(now - self.began - self.idle, 0) if self.began >= 0 else 0
        return self.job.duration - self.done - ran


class Usage:
    """The use of the queues at every level, and their limits."""

    def __init__(self, trace: Trace) -> None:
        queues = trace.cluster.queues
        self.used: dict[str, dict[str, int]] = {path: {} for path in queues}
        self.min = {path: queue.min for path, queue in queues.items()}
        self.max = {path: queue.max for path, queue in queues.items()}
        self.chain = {path: _chain(path) for path in trace.cluster.leaves}

    def add(self, job: TraceJob, times: int) -> None:
        for path in self.chain[job.queue]:
            used = self.used[path]
            for name, amount in job.request.items():
                used[name] = used.get(name, 0) + amount * times

    def within_max(self, job: TraceJob) -> bool:
        """Whether one more such job stays within the max of its queue and of every queue above."""
        return all(self._within(path, self.max[path], job) for path in self.chain[job.queue])

    def within_min(self, job: TraceJob) -> bool:
        """Whether one more such job is within the min of its queue."""
        low = self.min[job.queue]
        return all(
            self.used[job.queue].get(name, 0) + amount <= low.get(name, 0)
            for name, amount in job.request.items()
            if name in low or name == GPU
        )

    def over_min(self, path: str) -> int:
        """GPUs a queue uses above its min."""
        return self.used[path].get(GPU, 0) - self.min[path].get(GPU, 0)

    def gpus(self, path: str) -> int:
        return self.used[path].get(GPU, 0)

    def _within(self, path: str, limit: dict[str, int], job: TraceJob) -> bool:
        used = self.used[path]
        return all(used.get(name, 0) + amount <= limit[name] for name, amount in job.request.items() if name in limit)


def _chain(path: str) -> tuple[str, ...]:
    parts = path.split("/")
    return tuple("/".join(parts[:size]) for size in range(len(parts), 0, -1))


class Policy:
    """The jobs to start and to stop. A policy keeps its own books of waiting jobs."""

    name = ""
    gangs = True
    """Where nodes count: whether a job has places for all pods before the admission. Else quota alone admits, each pod
    looks for a node alone and holds the node, and the job runs when all pods have nodes.
    """
    ideal = False
    """Whether it stops jobs without loss, whatever the simulation says."""

    def begin(self, engine: Engine) -> None:
        """The simulation begins."""

    def add(self, task: Task) -> None:
        """A job waits: it was submitted, or stopped."""
        raise NotImplementedError

    def schedule(self, engine: Engine) -> None:
        """Start and stop what should be; called whenever something has come, ended or changed."""
        raise NotImplementedError

    def next_deadline(self) -> int | None:
        """When there is something to schedule though nothing happens, ms."""
        return None


class Engine(VirtualTime):
    """Runs a policy over a trace; ``sink`` gets every commit."""

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        sink: Sink,
        *,
        seed: int = 0,
        stops: Stops = COSTLY,
        faults: FaultSchedule = NO_FAULTS,
    ) -> None:
        super().__init__(trace, Machines(trace, node_capacities(trace), faults, seed), faults)
        self.policy = policy
        self.pool = self.machines.pool
        self.places: Places | None = None
        """The nodes, where nodes count."""
        if trace.cluster.placement != "off":
            self.places = Places(node_capacities(trace), spread=trace.cluster.placement == "spread")
        self.usage = Usage(trace)
        self.running: dict[str, Task] = {}
        """The admitted jobs, in the order of admission."""
        self._homeless: list[Task] = []
        """The admitted jobs with pods without a node."""
        self._stopped_at = -1
        """When a job was stopped last."""
        self._waiting = 0
        self._stops = FREE if policy.ideal else stops
        self._stopping_for: Task | None = None
        """The job that others are stopping for at this moment."""
        self._facts = Facts(trace.cluster)
        self._log: InMemoryCell[AnySeat] = InMemoryCell({}, sink, origin=EPOCH_MS)
        self._order = 0
        self._batch: list[tuple[str, list[Event]]] = []
        """What is not in the log yet: (stage, events), in the order in which it must come there"""
        self._what = ""
        self._attempts: dict[str, int] = {}
        self._log.begin(f"simulation-{policy.name}-{seed}", "simulation", (WATCHER, policy.name))
        self._stage("begin", 1)
        self._put(0, WATCHER, *self._facts.beginning())
        self._write()
        policy.begin(self)

    # --- what policies say ------------------------------------------------------------------------------------

    def fits(self, task: Task) -> bool:
        """Whether there is room right now: on nodes, too, where the policy places gangs."""
        if not self.pool.fits(task.job.request):
            return False
        return self.places is None or not self.policy.gangs or self.places.fits(task.need, task.count)

    def start(self, task: Task, nodes: Sequence[str] = (), *, moved: bool = False) -> None:
        """The job is admitted. The whole gang starts, on the nodes given or by best fit; or the pods look for nodes.

        ``moved``: the job was stopped just now, to start elsewhere.
        """
        job = task.job
        held = self.machines.hold(job.id, job.request, self.now)
        assert held, f"job {job.id} does not fit"
        self.usage.add(job, 1)
        self.running[job.id] = task
        task.admitted = self.now
        self._waiting -= 1
        admitted = GangAdmitted(
            cause=Cause(max(self._log.seq, 1), 0),
            ref=task.workload.ref,
            attempt=self._attempts[job.id],
            queue=job.queue,
        )
        self._stage("start", 2)
        self._put(0, self.policy.name, admitted)
        task.workload = self._facts.starting(task.workload, "", 0)
        # Those that it takes the place of need their time: it holds the room and cannot use it yet.
        behind = moved or self._stopping_for is task
        if self._stopping_for is task:
            self._stopping_for = None
        if self.places is not None and not self.policy.gangs:
            self._homeless.append(task)
            return
        if self.places is not None:
            if nodes:
                self.places.take(task.need, nodes)
            taken = nodes or self.places.gang(task.need, task.count)
            assert taken is not None, f"job {job.id} finds no nodes"
            task.nodes = list(taken)
        self._begin(task, behind=behind)

    def _begin(self, task: Task, *, behind: bool) -> None:
        """All pods run. ``behind``: once the victims have stopped."""
        job = task.job
        task.idle = (self._stops.restart if task.stopped else 0) + (self._stops.stopping if behind else 0)
        self.machines.begin(job.id, self.now, None if job.duration is None else job.duration - task.done, task.idle)
        task.began = self.now
        task.workload, seen = self._facts.running(task.workload)
        self._put(1, WATCHER, *seen)

    def _bind(self) -> None:
        """Pods without a node look for a node, as with kube-scheduler: by priority, then by admission."""
        if self.places is None or not self._homeless:
            return
        self._stage("start", 2)
        self._homeless.sort(key=lambda task: -task.job.priority)
        for task in self._homeless:
            while len(task.nodes) < task.count and (node := self.places.pod(task.need)) is not None:
                task.nodes.append(node)
            if len(task.nodes) == task.count:
                self._begin(task, behind=self._stopped_at == self.now)
        self._homeless = [task for task in self._homeless if task.began < 0]

    def stop(self, task: Task, by: Task | None = None) -> None:
        """The job stops for another one, and waits again."""
        self.machines.stop(task.job.id)
        self._wait_again(task)
        self._stopping_for, self._stopped_at = by, self.now
        self._stage("stop", 3)
        if by is not None:
            self._put(0, self.policy.name, self._ordered(task, by))
        task.workload = self._facts.suspended(task.workload)
        self._put(1, WATCHER, WorkloadObserved(workload=task.workload))
        self._put(2, self.policy.name, self._queued(task))
        self.policy.add(task)

    def _ordered(self, task: Task, by: Task) -> EvictionOrdered:
        job, claimant = task.job, by.job
        victim = Victim(task.workload.ref, self._attempts[job.id], job.queue, job.request)
        return EvictionOrdered(
            cause=Cause(max(self._log.seq, 1), 0),
            ref=by.workload.ref,
            attempt=self._attempts[claimant.id],
            queue=claimant.queue,
            request=claimant.request,
            victims=(victim,),
            path=claimant.queue,
        )

    def _wait_again(self, task: Task) -> None:
        self._leave(task)
        if task.began >= 0:
            task.done += self._stops.kept(task.job.id, self.now - task.began, task.idle)
            task.stopped = True
        else:
            self._homeless.remove(task)
        task.began, task.admitted, task.waits_since = -1, -1, self.now
        self._waiting += 1

    def _leave(self, task: Task) -> None:
        """The job's quota and nodes are free."""
        del self.running[task.job.id]
        self.usage.add(task.job, -1)
        if self.places is not None:
            self.places.give(task.need, task.nodes)
            task.nodes = []

    def _queued(self, task: Task) -> WorkloadQueued:
        job = task.job
        attempt = self._attempts[job.id] = self._attempts.get(job.id, 0) + 1
        return WorkloadQueued(
            cause=Cause(max(self._log.seq, 1), 0),
            ref=task.workload.ref,
            attempt=attempt,
            queue=job.queue,
            request=job.request,
            priority=job.priority,
            queued_at=EPOCH_MS + job.submit,
        )

    # --- time -------------------------------------------------------------------------------------------------

    def moment(self, arrivals: list[TraceJob]) -> None:
        for uid in self.machines.ended(self.now):
            task = self.running[uid]
            self._leave(task)
            _, seen = self._facts.finished(task.workload)
            self._stage("end", 1)
            self._put(0, WATCHER, *seen)
            self.ended += 1
        self._change_nodes()
        for job in arrivals:
            task = Task(job, self._order, self._facts.submitted(job), waits_since=self.now)
            if self.places is not None:
                [pods] = self._facts.pods(job)
                task.need, task.count = self.places.amounts(pods.request), pods.count
            self._order += 1
            self._waiting += 1
            self._stage("arrive", 2)
            self._put(0, WATCHER, WorkloadObserved(workload=task.workload))
            self._put(1, self.policy.name, self._queued(task))
            self.policy.add(task)
        self._schedule()

    def _schedule(self) -> None:
        self.policy.schedule(self)
        self._bind()
        self._write()

    def next_deadline(self) -> int | None:
        return self.policy.next_deadline()

    def deadline(self) -> None:
        self._schedule()

    def unfinished(self) -> bool:
        return self._waiting > 0

    def _change_nodes(self) -> None:
        """The present effect of a fault; jobs on a lost node wait again."""
        change = self.machines.change(self.now, self._hit if self.places is not None else None)
        if change is None:
            return
        if self.places is not None:
            for name in change.back:
                self.places.restore(name)
        self._stage("nodes", 2)
        self._put(0, WATCHER, *(self._facts.node(name, ready=False) for name in change.lost))
        self._put(0, WATCHER, *(self._facts.node(name) for name in change.back))
        for uid in change.stopped:
            task = self.running[uid]
            self.machines.forget(uid)
            self._wait_again(task)
            task.workload = self._facts.lost(task.workload)
            self._put(0, WATCHER, WorkloadObserved(workload=task.workload))
            self._put(1, self.policy.name, self._queued(task))
            self.policy.add(task)

    def _hit(self, gone: Sequence[str]) -> set[str]:
        """The nodes are lost; the jobs with pods there."""
        for name in gone:
            assert self.places is not None
            self.places.lose(name)
        return {uid for uid, task in self.running.items() if not set(gone).isdisjoint(task.nodes)}

    # --- the log ----------------------------------------------------------------------------------------------

    def _stage(self, stage: str, parts: int) -> None:
        """The following decisions are of one kind, and are kept together in as few commits as possible."""
        if self._what != stage:
            self._write()
            self._what = stage
            self._batch = [("", []) for _ in range(parts)]

    def _put(self, part: int, stage: str, *events: Event) -> None:
        _, known = self._batch[part]
        known += events
        self._batch[part] = (stage, known)

    def _write(self) -> None:
        """Store what has been collected."""
        for stage, events in self._batch:
            for start in range(0, len(events), MAX_EVENTS):
                kind: CommitKind = "input" if stage == WATCHER else "decision"
                self._log.now = self.now
                self._log.append(stage, kind, events[start : start + MAX_EVENTS])
        self._batch, self._what = [], ""
