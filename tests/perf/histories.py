"""Recorded pasts for the benches: RayJobs that live a whole life, facts and all, as a cluster would report it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kit import facts
from kit.bench import Bench
from muster.core.workloads.registry import KINDS
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished, WorkloadStarted
from muster.model.workload import Workload

LEAVES = 10
PODS = 3
BATCH = 50

assert "RayJob" in KINDS


class Counted(list[Stored]):
    """A log nobody reads again: only its length is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def append(self, _stored: Stored) -> None:
        self._count += 1

    def __len__(self) -> int:
        return self._count


def leaf_tree(cpu: int) -> Event:
    """Ten leaves of ``cpu`` cores each, which may lend and borrow as much again."""
    leaves = tuple(facts.node(f"leaf-{i}", {"cpu": cpu}, {"cpu": 2 * cpu}, (f"ns-{i}",)) for i in range(LEAVES))
    whole = {"cpu": cpu * LEAVES}
    return facts.tree(facts.node("root", whole, whole, children=leaves))


def submitted(index: int) -> Workload:
    return facts.job(f"job-{index:06}", f"ns-{index % LEAVES}", cpu=1 + index % 8)


def started(job: Workload, cause: Cause, attempt: int) -> tuple[list[Event], list[Event]]:
    """What the actuator and the watcher say of a job that was admitted, until it runs."""
    rv, now = facts.next_rv(), job
    effect = EffectApplied(cause=cause, ref=job.ref, attempt=attempt, rv=rv)
    now = msgspec.structs.replace(now, rv=rv, suspended=False, phase="starting", settled=False, generation=2)
    name, space = job.ref.name, job.ref.namespace
    pods = [facts.pod(name, number, space, running=running) for running in (False, True) for number in range(PODS)]
    runs = msgspec.structs.replace(now, rv=facts.next_rv(), phase="running", detail="Running")
    seen: list[Event] = [facts.seen(now), facts.cluster(name, space), *pods]
    return [effect], [*seen, facts.seen(runs), WorkloadStarted(ref=job.ref, detail="Running")]


def ended(job: Workload) -> list[Event]:
    """What the watcher says of a job that is over, until it is deleted."""
    name, space = job.ref.name, job.ref.namespace
    over = msgspec.structs.replace(
        job, rv=facts.next_rv(), suspended=False, phase="finished", outcome="succeeded", generation=2
    )
    pods = [facts.pod_gone(name, number, space) for number in range(PODS)]
    finished = WorkloadFinished(ref=job.ref, outcome="succeeded", detail="Complete")
    return [facts.seen(over), finished, facts.cluster_gone(name, space), *pods, facts.gone(name, space)]


class Lives:
    """A bench on which jobs come, wait, start, run and end."""

    def __init__(self, bench: Bench, cpu: int = 40) -> None:
        self.bench = bench
        self.jobs: dict[str, Workload] = {}
        self.running: list[Workload] = []
        bench.facts(leaf_tree(cpu))
        bench.synced()

    def come(self, indices: Sequence[int], *, ending: Sequence[Workload] = ()) -> None:
        """Jobs appear, others end; whoever is admitted starts."""
        new = [submitted(index) for index in indices]
        self.jobs.update((job.ref.uid, job) for job in new)
        self.bench.facts(*(facts.seen(job) for job in new))
        for job in ending:
            self.bench.facts(*ended(job))
            del self.jobs[job.ref.uid]
        if ending:
            gone = {job.ref.uid for job in ending}
            self.running = [job for job in self.running if job.ref.uid not in gone]
        for job, cause, attempt in list(self._admitted()):
            effects, seen = started(job, cause, attempt)
            self.bench.append("actuator", "input", effects)
            self.bench.facts(*seen)
            self.running.append(job)
        self.bench.settle()

    def _admitted(self) -> Iterator[tuple[Workload, Cause, int]]:
        for event in self.bench.settle():
            if isinstance(event, GangAdmitted):
                yield self.jobs[event.ref.uid], event.cause, event.attempt


def whole_lives(jobs: int) -> list[Stored]:
    """Jobs come fifty at a time; what runs ends when the next fifty come."""
    bench = Bench(check=False)
    lives = Lives(bench)
    for first in range(0, jobs, BATCH):
        lives.come(range(first, min(first + BATCH, jobs)), ending=list(lives.running))
    return bench.log
