"""Judges of what `muster ask` says: the job is submitted after all, and the stages decide about it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime

import msgspec
from msgspec import Struct

from kit import facts
from kit.bench import Bench
from muster.core.objects.meta import QUOTA_NAME, RUN_TIME
from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.events.facts import WorkloadObserved
from muster.model.resources import scaled, summed
from muster.model.text import span
from muster.model.workload import PodSet, Workload
from muster.serving.asking import RUN_TIMES_MS, ask
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.supposed import AskView
from muster.serving.views import moment_of
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

MINUTE_MS = 60_000


def asked(state: ReadState, workload: Workload, now: int) -> AskView:
    return ask(state, Lens(EVERYTHING, state), moment_of(state, now, live=True), workload, now)


def job(name: str, namespace: str, pods: int, cpu: int) -> Workload:
    """A head of 1 cpu, and so many workers."""
    sets = (
        PodSet("head", 1, facts.vector(cpu=1, memory="1G")),
        PodSet("workers", pods, facts.vector(cpu=cpu, memory="1G")),
    )
    need = summed([scaled(each.request, each.count) for each in sets])
    made = facts.job(name, namespace, pod_sets=sets, need={"ack": need, "full": need})
    return msgspec.structs.replace(made, created=0)


def starts(bench: Bench, workload: Workload) -> bool:
    """Whether the stages let it in at once, in a copy of everything."""
    bench = deepcopy(bench)
    bench.facts(facts.seen(workload))
    bench.settle()
    return workload.ref.uid in bench.states["quota_accountant"].ledger.charges


def advised(found: AskView, pods: int, cpu: int) -> Iterator[tuple[str, Workload]]:
    """Each advice about a :func:`job`, and the job that it advises."""
    namespace, _, name = found.job.partition("/")
    workload = job(name, namespace, pods, cpu)
    for each in found.advice:
        change, _, value = each.change.partition("=")
        if change == "queue":
            yield each.change, _labelled(workload, QUOTA_NAME, value.rpartition("/")[2])
        elif change == "run_time":
            length = next(ms for ms in RUN_TIMES_MS if span(ms) == value)
            yield each.change, _labelled(workload, RUN_TIME, f"{length // 1000}s")
        else:
            yield each.change, job(name, namespace, int(value), cpu)


def _labelled(workload: Workload, name: str, value: str) -> Workload:
    return msgspec.structs.replace(workload, labels={**workload.labels, name: value})


class Answered(Struct):
    """What was said of one job right before it came, and what became of it. Times in ms of the log."""

    at: int
    starts_now: bool
    latest: int
    """0: no start was promised."""
    started: int = -1


class Asking:
    """Hears a log, and asks about every so many-th job right before it comes."""

    def __init__(self, every: int) -> None:
        self.answers: dict[str, Answered] = {}
        self._every = every
        self._jobs = 0
        self._state, self._folder = ReadState(), Folder(ReadModel())

    def hear(self, stored: Stored) -> None:
        state = self._state
        for event in stored.commit.events:
            if isinstance(event, WorkloadObserved) and event.workload.ref.uid not in state.queues.workloads:
                self._jobs += 1
                if self._jobs % self._every == 0:
                    self._ask(event.workload, max(stored.commit.at, state.now))
        self._folder.fold(state, stored)
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted):
                found = self.answers.get(event.ref.uid)
                if found is not None and found.started < 0:
                    found.started = state.now

    def _ask(self, workload: Workload, now: int) -> None:
        found = asked(self._state, workload, now)
        said = found.promise.latest if found.promise is not None else ""
        latest = int(datetime.fromisoformat(said).timestamp()) * 1000 if said else 0
        self.answers.setdefault(workload.ref.uid, Answered(now, found.starts_now, latest))

    @property
    def coverage(self) -> tuple[int, int]:
        """Of the jobs that were promised a start: how many began by then, and of how many that is known."""
        known = [
            each
            for each in self.answers.values()
            if each.latest and (each.started >= 0 or self._state.now > each.latest)
        ]
        return sum(0 <= each.started <= each.latest for each in known), len(known)

    @property
    def at_once(self) -> tuple[int, int]:
        """Of the jobs that were said to start now: how many did so within a minute, and how many there were."""
        said = [each for each in self.answers.values() if each.starts_now]
        return sum(0 <= each.started <= each.at + MINUTE_MS for each in said), len(said)
