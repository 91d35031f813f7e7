"""The reference engine: policies to compare with, on the same jobs, the same cluster and the same kind of log.

The engine shares no code with the stages: a policy looks at waiting jobs, running jobs and free amounts, and names the
jobs to start and to stop. Decisions are written in the words of the log, for the same metrics.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

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
    began: int = -1
    """When it began to run, -1 while it does not."""
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
        """Whether one more such jobwas within the min of its queue."""
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
        self.usage = Usage(trace)
        self.running: dict[str, Task] = {}
        """In the order of their start."""
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
        """Whether there is room for it right now."""
        return self.pool.fits(task.job.request)

    def start(self, task: Task) -> None:
        """The whole gang starts."""
        job = task.job
        left = None if job.duration is None else job.duration - task.done
        task.idle = self._stops.restart if task.stopped else 0
        if self._stopping_for is task:
            # Those that it takes the place of need their time: it holds the room and cannot use it yet.
            task.idle += self._stops.stopping
            self._stopping_for = None
        began = self.machines.start(job.id, job.request, self.now, left, task.idle)
        assert began, f"job {job.id} does not fit"
        self.usage.add(job, 1)
        self.running[job.id] = task
        task.began = self.now
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
        task.workload, seen = self._facts.running(task.workload)
        self._put(1, WATCHER, *seen)

    def stop(self, task: Task, by: Task | None = None) -> None:
        """The job stops for another one, and waits again."""
        self.machines.stop(task.job.id)
        self._wait_again(task)
        self._stopping_for = by
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
        del self.running[task.job.id]
        self.usage.add(task.job, -1)
        task.done += self._stops.kept(task.job.id, self.now - task.began, task.idle)
        task.began, task.stopped, task.waits_since = -1, True, self.now
        self._waiting += 1

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
            task = self.running.pop(uid)
            self.usage.add(task.job, -1)
            _, seen = self._facts.finished(task.workload)
            self._stage("end", 1)
            self._put(0, WATCHER, *seen)
            self.ended += 1
        self._change_nodes()
        for job in arrivals:
            task = Task(job, self._order, self._facts.submitted(job), waits_since=self.now)
            self._order += 1
            self._waiting += 1
            self._stage("arrive", 2)
            self._put(0, WATCHER, WorkloadObserved(workload=task.workload))
            self._put(1, self.policy.name, self._queued(task))
            self.policy.add(task)
        self.policy.schedule(self)
        self._write()

    def next_deadline(self) -> int | None:
        return self.policy.next_deadline()

    def deadline(self) -> None:
        self.policy.schedule(self)
        self._write()

    def unfinished(self) -> bool:
        return self._waiting > 0

    def _change_nodes(self) -> None:
        """The present effect of a fault; jobs on a lost node wait again."""
        change = self.machines.change(self.now)
        if change is None:
            return
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
