"""Two runs of one past side by side: which jobs are admitted earlier, later or not at all, and how the queues fare."""

from __future__ import annotations

from msgspec import Struct

from muster.tracesim.metrics import mean
from muster.tracesim.runner import Result


class Shift(Struct):
    """A job with another first start; ms of the trace, -1 for never."""

    job: str
    before: int
    after: int


class EvictionChange(Struct):
    """A job evicted more or less often."""

    job: str
    before: int
    after: int


class QueueShift(Struct):
    """One queue, before and after: mean seconds from submission to the first start, never-started, evictions."""

    queue: str
    jobs: int
    wait_before_s: float | None
    wait_after_s: float | None
    never_before: int
    never_after: int
    evictions_before: int
    evictions_after: int


class Contrast(Struct):
    """What a change makes different, the largest difference first."""

    earlier: list[Shift]
    later: list[Shift]
    gained: list[Shift]
    """Started only with the change."""
    lost: list[Shift]
    """Started only without it."""
    same: int
    queues: list[QueueShift]
    evicted: list[EvictionChange]
    """Evicted more or less often than without the change, the largest difference first."""


def contrast(before: Result, after: Result, names: dict[str, str]) -> Contrast:
    """Compare two runs; ``names``: job id -> name for people."""
    result = Contrast([], [], [], [], 0, [], [])
    for job in before.trace.jobs:
        one, other = _start(before, job.id), _start(after, job.id)
        shift = Shift(names.get(job.id, job.id), one, other)
        if one == other:
            result.same += 1
        elif one < 0:
            result.gained.append(shift)
        elif other < 0:
            result.lost.append(shift)
        else:
            (result.earlier if other < one else result.later).append(shift)
        stops = EvictionChange(shift.job, _stops(before, job.id), _stops(after, job.id))
        if stops.before != stops.after:
            result.evicted.append(stops)
    result.evicted.sort(key=lambda shift: (-abs(shift.after - shift.before), shift.job))
    for shifts in (result.earlier, result.later):
        shifts.sort(key=lambda shift: (-abs(shift.after - shift.before), shift.job))
    paths = dict.fromkeys([*before.trace.cluster.leaves, *after.trace.cluster.leaves])
    result.queues = [row for path in paths if (row := _queue(before, after, path)).jobs]
    return result


def _start(result: Result, job: str) -> int:
    past = result.history.jobs.get(job)
    return -1 if past is None else past.first_start


def _stops(result: Result, job: str) -> int:
    past = result.history.jobs.get(job)
    return 0 if past is None else past.evictions


def _queue(before: Result, after: Result, path: str) -> QueueShift:
    figures = []
    counts = []
    for result in (before, after):
        jobs = [result.history.jobs[job.id] for job in result.trace.jobs if job.queue == path]
        waits = [(job.first_start - job.submit) / 1000 for job in jobs if job.first_start >= 0]
        counts.append(len(jobs))
        figures.append((mean(waits), len(jobs) - len(waits), sum(job.evictions for job in jobs)))
    (one, never, stopped), (other, never_now, stopped_now) = figures
    return QueueShift(path, max(counts), one, other, never, never_now, stopped, stopped_now)
