"""The history of every job in the log: submitted, admitted, started, stopped, and the reasons for waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

from muster.events.base import Event
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
    WorkloadQueued,
)
from muster.events.envelope import Stored
from muster.events.facts import (
    NodeGone,
    NodeObserved,
    WorkloadFinished,
    WorkloadGone,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.events.system import Genesis
from muster.model.resources import Vector
from muster.tracesim.model import GPU

RunEnd = str
"""How a run ended; empty while it goes on:

finished  the job is done
evicted   it was stopped for another job
lost      its nodes went away
gone      it never started, or nothing is left of it
"""


class JobRun(Struct):
    """One admission of a job. Times are ms since the beginning of the log, -1 where it did not happen."""

    reserved: int = -1
    admitted: int = -1
    start: int = -1
    end: int = -1
    outcome: RunEnd = ""
    ordered: int = -1
    """When its eviction was ordered."""
    claimant: str = ""
    """For which job."""


class JobHistory(Struct):
    """One job."""

    id: str
    key: str
    """``namespace/name``"""
    queue: str
    request: Vector
    submit: int
    priority: int = 0
    runs: list[JobRun] = field(default_factory=list)
    end: int = -1
    adopted: bool = False
    """It ran without an admission when it was first seen."""
    evicted_by: list[str] = field(default_factory=list)
    """Ids of the jobs it made way for, one per eviction that names one."""
    reason: str = ""
    """The last reason it was given for waiting or stopping."""

    @property
    def first_start(self) -> int:
        return next((run.start for run in self.runs if run.start >= 0), -1)

    @property
    def evictions(self) -> int:
        return sum(run.outcome == "evicted" for run in self.runs)

    @property
    def gpus(self) -> int:
        return self.request.get(GPU, 0)

    def open_run(self) -> JobRun | None:
        """The run that goes on, if it has been admitted."""
        return self.runs[-1] if self.runs and not self.runs[-1].outcome else None


class History:
    """Folds a log into the results of its jobs, and the capacity of the cluster over time."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobHistory] = {}
        self.commits = 0
        self.end = 0
        """Log time of the last commit, ms since the first."""
        self.capacity: list[tuple[int, int]] = []
        """(since when, GPUs of all ready nodes in base units)"""
        self.denials: dict[tuple[str, str], str] = {}
        """(queue, request as text) -> the newest refusal: it holds for every job of that shape"""
        self._zero = 0
        self._nodes: dict[str, int] = {}
        self._arms: dict[type[Event], Callable[[int, Any], None]] = {
            WorkloadObserved: self._observed,
            WorkloadQueued: self._queued,
            WorkloadAdopted: self._adopted,
            QuotaReserved: self._reserved,
            QuotaDenied: self._denied,
            QuotaReleased: self._released,
            EvictionOrdered: self._evicted,
            GangAdmitted: self._admitted,
            WorkloadStarted: self._started,
            WorkloadFinished: self._finished,
            WorkloadGone: self._gone,
            NodeObserved: self._node,
            NodeGone: self._node_gone,
        }

    def fold(self, stored: Stored) -> None:
        """Take in one commit."""
        commit = stored.commit
        if commit.events and isinstance(commit.events[0], Genesis):
            self._zero = commit.at
        self.commits += 1
        now = max(commit.at - self._zero, self.end)
        self.end = now
        arms = self._arms
        for event in commit.events:
            arm = arms.get(type(event))
            if arm is not None:
                arm(now, event)

    # --- jobs -------------------------------------------------------------------------------------------------

    def _observed(self, now: int, event: WorkloadObserved) -> None:
        workload = event.workload
        job = self.jobs.get(workload.ref.uid)
        if job is None:
            submit = max(min(workload.created - self._zero, now), 0)
            job = JobHistory(workload.ref.uid, workload.ref.key, "", workload.need.get("ack", {}), submit)
            job.priority = workload.priority or 0
            self.jobs[job.id] = job
        run = job.open_run()
        if run is None or run.start < 0 or workload.phase in ("running", "suspending", "finished"):
            return
        run.end = now
        run.outcome = "evicted" if workload.suspended else "lost"
        if run.outcome == "lost":
            job.reason = "node_lost"
            job.runs.append(JobRun(run.reserved, run.admitted))

    def _queued(self, _now: int, event: WorkloadQueued) -> None:
        job = self.jobs.get(event.ref.uid)
        if job is not None:
            job.queue, job.request, job.priority = event.queue, event.request, event.priority

    def _adopted(self, now: int, event: WorkloadAdopted) -> None:
        """The job runs without an admission, and is charged. A job running at first sight ran since its creation."""
        job = self.jobs.get(event.ref.uid)
        if job is None:
            return
        job.queue, job.request = event.queue, event.request
        job.adopted = event.reason == "already_running" and not job.runs
        if job.open_run() is None:
            began = job.submit if job.adopted else now
            job.runs.append(JobRun(began, began, began))

    def _reserved(self, now: int, event: QuotaReserved) -> None:
        job = self.jobs.get(event.ref.uid)
        if job is not None:
            job.runs.append(JobRun(reserved=now))

    def _admitted(self, now: int, event: GangAdmitted) -> None:
        job = self.jobs.get(event.ref.uid)
        if job is None:
            return
        run = job.open_run()
        if run is None or run.admitted >= 0:
            run = JobRun(reserved=now)
            job.runs.append(run)
        run.admitted = now

    def _denied(self, _now: int, event: QuotaDenied) -> None:
        job = self.jobs.get(event.ref.uid)
        if job is not None and event.reason != "stale":
            job.reason = event.reason
            self.denials[shape_of(event.queue, event.request)] = event.reason

    def _released(self, now: int, event: QuotaReleased) -> None:
        """A reservation that is released before it became an admission, or before the job started."""
        job = self.jobs.get(event.ref.uid)
        run = job.open_run() if job is not None else None
        if run is not None and run.start < 0:
            run.end, run.outcome = now, "gone"

    def _evicted(self, now: int, event: EvictionOrdered) -> None:
        for victim in event.suspended:
            job = self.jobs.get(victim.ref.uid)
            if job is not None:
                job.evicted_by.append(event.ref.uid)
                run = job.open_run()
                if run is not None:
                    run.ordered, run.claimant = now, event.ref.uid
                job.reason = "evicted"

    def _started(self, now: int, event: WorkloadStarted) -> None:
        job = self.jobs.get(event.ref.uid)
        run = job.open_run() if job is not None else None
        if run is not None and run.start < 0:
            run.start = now

    def _finished(self, now: int, event: WorkloadFinished) -> None:
        self._over(now, event.ref.uid, "finished")

    def _gone(self, now: int, event: WorkloadGone) -> None:
        self._over(now, event.ref.uid, "gone")

    def _over(self, now: int, uid: str, outcome: RunEnd) -> None:
        job = self.jobs.get(uid)
        if job is None or job.end >= 0:
            return
        if outcome == "finished":
            job.end = now
        run = job.open_run()
        if run is not None:
            run.end, run.outcome = now, outcome

    # --- the cluster ------------------------------------------------------------------------------------------

    def _node(self, now: int, event: NodeObserved) -> None:
        node = event.node
        usable = node.ready and node.schedulable
        self._nodes[node.ref.uid] = node.allocatable.get(GPU, 0) if usable else 0
        self._count(now)

    def _node_gone(self, now: int, event: NodeGone) -> None:
        self._nodes.pop(event.ref.uid, None)
        self._count(now)

    def _count(self, now: int) -> None:
        if self.capacity and self.capacity[-1][0] == now:
            self.capacity.pop()
        self.capacity.append((now, sum(self._nodes.values())))

    def reason_of(self, job: JobHistory) -> str:
        """The last reason for waiting or stopping: the job's own reason, else the reason of its shape."""
        if job.reason or job.runs:
            return job.reason
        return self.denials.get(shape_of(job.queue, job.request), "")


def shape_of(queue: str, request: Vector) -> tuple[str, str]:
    """What one refusal speaks for: the same queue and the same request."""
    return queue, ",".join(f"{name}={amount}" for name, amount in sorted(request.items()))


def history_of(commits: Iterable[Stored]) -> History:
    """The history a log tells."""
    history = History()
    for stored in commits:
        history.fold(stored)
    return history
