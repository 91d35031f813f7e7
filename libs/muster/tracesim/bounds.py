"""What no policy can beat: lower bounds of the mean job completion time and of the makespan."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Work(NamedTuple):
    """A job: arrival, run time, GPUs (s, s, GPUs)."""

    submit: float
    duration: float
    gpus: float


def jct_bound(jobs: Sequence[Work], capacity: float) -> float:
    """Mean completion time no schedule beats: each job alone, and all as fluid on one server, shortest work first."""
    if not jobs:
        return 0.0
    alone = sum(job.duration for job in jobs) / len(jobs)
    return max(alone, _fluid(jobs, capacity))


def _fluid(jobs: Sequence[Work], capacity: float) -> float:
    """Mean completion time of preemptive shortest-remaining-work on one server of speed ``capacity``."""
    if capacity <= 0:
        return 0.0
    arrivals = sorted((job.submit, job.gpus * job.duration) for job in jobs)
    heap: list[tuple[float, float]] = []
    total, now, index = 0.0, 0.0, 0
    while index < len(arrivals) or heap:
        if not heap:
            now = max(now, arrivals[index][0])
        while index < len(arrivals) and arrivals[index][0] <= now:
            heappush(heap, (arrivals[index][1], arrivals[index][0]))
            index += 1
        work, submit = heappop(heap)
        end = now + work / capacity
        if index < len(arrivals) and arrivals[index][0] < end:
            heappush(heap, (work - (arrivals[index][0] - now) * capacity, submit))
            now = arrivals[index][0]
        else:
            total += end - submit
            now = end
    return total / len(jobs)


def makespan_bound(jobs: Sequence[Work], capacity: float) -> float:
    """End of the last job no schedule beats: the longest chain of one job, and all work from any moment on."""
    if not jobs:
        return 0.0
    latest = max(job.submit + job.duration for job in jobs)
    if capacity <= 0:
        return latest
    left = 0.0
    for job in sorted(jobs, key=lambda job: -job.submit):
        left += job.gpus * job.duration
        latest = max(latest, job.submit + left / capacity)
    return latest
