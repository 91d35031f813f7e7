"""The quality of a schedule: the figures of summary.json, all from the log and its trace.

docs/reference/simulation.md has the meaning of each figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from muster.tracesim.bounds import Work, jct_bound, makespan_bound
from muster.tracesim.history import History, JobHistory
from muster.tracesim.model import WHOLE, Trace, TraceJob
from muster.tracesim.stops import COSTLY, Stops
from muster.tracesim.sweep import Integrals, Moment, Sweep, kept, waits

SHORTEST_S = 60.0
"""A job shorter than this counts as this long in its slowdown."""

REVERSAL_MS = 60_000
"""An admission that is taken back within this time was a wrong one."""


class SimulationMetrics(Struct, kw_only=True):
    """null where there is nothing to measure."""

    goodput_utilisation: float | None
    queue_delay_mean_s: float | None
    queue_delay_p95_s: float | None
    queue_delay_max_s: float | None
    bounded_slowdown_mean: float | None
    jct_mean_s: float | None
    jct_lower_bound_s: float | None
    makespan_s: float | None
    makespan_lower_bound_s: float | None
    wasted_gpu_s: float
    evictions: int
    max_evictions_per_job: int
    fairness_jain: float | None
    fairness_min: float | None
    quota_violation_gpu_s: float
    guarantee_violation_gpu_s: float
    partial_hold_gpu_s: float
    starvation_max_s: float
    sharing_incentive_max: float | None
    reversed_admissions: int
    pingpong_pairs: int


class JobCounts(Struct):
    """How many jobs came, and how many are done."""

    submitted: int
    finished: int
    unfinished: int


Pair = tuple[TraceJob, JobHistory]


def counts(history: History) -> JobCounts:
    finished = sum(job.end >= 0 for job in history.jobs.values())
    return JobCounts(len(history.jobs), finished, len(history.jobs) - finished)


def measure(
    trace: Trace,
    history: History,
    *,
    stops: Stops = COSTLY,
    alone: dict[str, float] | None = None,
    watch: Callable[[Moment], None] | None = None,
) -> SimulationMetrics:
    """The metrics of a schedule. ``alone``: queue -> mean delay of its jobs on a cluster of its own (see incentive).
    ``watch`` is shown every span between two changes.
    """
    pairs = [(job, history.jobs[job.id]) for job in trace.jobs if job.id in history.jobs]
    done = [(job, past) for job, past in pairs if past.end >= 0 and job.duration is not None]
    sums = Sweep(trace, history, stops).run(watch)
    capacity = max((amount for _, amount in history.capacity), default=0) / WHOLE
    works = [_work(job) for job, _ in done]
    delays = [wait for job, past in done if (wait := waits(past, job)) is not None]
    completion = [(past.end - past.submit) / 1000 for _, past in done]
    slowdowns = [max(1.0, took / max(work.duration, SHORTEST_S)) for took, work in zip(completion, works, strict=True)]
    evictions = [past.evictions for _, past in pairs]
    jain, worst = _fairness(sums)
    return _rounded(
        SimulationMetrics(
            goodput_utilisation=_ratio(sums.contended_useful, sums.contended_capacity),
            queue_delay_mean_s=mean(delays),
            queue_delay_p95_s=percentile(delays, 95),
            queue_delay_max_s=max(delays, default=None),
            bounded_slowdown_mean=mean(slowdowns),
            jct_mean_s=mean(completion),
            jct_lower_bound_s=jct_bound(works, capacity) if works else None,
            makespan_s=max((past.end for _, past in done), default=0) / 1000 if done else None,
            makespan_lower_bound_s=makespan_bound(works, capacity) if works else None,
            wasted_gpu_s=sum(_wasted(pair, stops) for pair in pairs),
            evictions=sum(evictions),
            max_evictions_per_job=max(evictions, default=0),
            fairness_jain=jain,
            fairness_min=worst,
            quota_violation_gpu_s=sums.over_max,
            guarantee_violation_gpu_s=sums.under_guarantee,
            partial_hold_gpu_s=sum(_held(pair, history.end) for pair in pairs),
            starvation_max_s=sums.longest_head_s,
            sharing_incentive_max=incentive(trace, history, alone or {}),
            reversed_admissions=sum(_reversals(past) for _, past in pairs),
            pingpong_pairs=_pingpong(pairs),
        )
    )


def _work(job: TraceJob) -> Work:
    return Work(job.submit / 1000, (job.duration or 0) / 1000, job.gpus / WHOLE)


def _wasted(pair: Pair, stops: Stops) -> float:
    """GPU-seconds of a job's runs that evictions threw away; its restarts and the times of stopping included.

    The peers of a simulation stop a job in a moment; the time of stopping counts as with Muster.
    """
    job, past = pair
    lost, again = 0, False
    for run in past.runs:
        if run.outcome == "evicted":
            stopped = max(run.end, run.ordered + stops.stopping) if run.ordered >= 0 <= run.start else run.end
            lost += stopped - run.start - kept(job.id, run, stops, again=again)
        elif again and run.end >= 0 <= run.start:
            lost += min(stops.restart, run.end - run.start)
        again = again or run.outcome == "evicted"
    return lost / 1000 * job.gpus / WHOLE


def _held(pair: Pair, last: int) -> float:
    """GPU-seconds between a reservation and the admission of the whole gang."""
    job, past = pair
    held = 0
    for run in past.runs:
        if run.reserved >= 0:
            held += next(at for at in (run.admitted, run.end, last) if at >= 0) - run.reserved
    return held / 1000 * job.gpus / WHOLE


def _reversals(past: JobHistory) -> int:
    return sum(run.outcome == "evicted" and run.end - run.admitted <= REVERSAL_MS for run in past.runs)


def _pingpong(pairs: Sequence[Pair]) -> int:
    """How many pairs of jobs have made way for each other."""
    ways = {(past.id, by) for _, past in pairs for by in past.evicted_by}
    return sum((by, victim) in ways for victim, by in ways if victim < by)


def _fairness(sums: Integrals) -> tuple[float | None, float | None]:
    """(Jain's index, the smallest) of the parts that queues got of their deserved and requested shares."""
    got = [sums.used_of_share[path] / asked for path, asked in sums.asked_of_share.items() if asked > 0]
    square = sum(x * x for x in got)
    if not got or square <= 0:
        return None, min(got, default=None)
    return sum(got) ** 2 / (len(got) * square), min(got)


def incentive(trace: Trace, history: History, alone: dict[str, float]) -> float | None:
    """The worst ratio of a queue's mean delay here to the queue's mean delay alone on a cluster of its min.

    Only jobs that fit the min count, in both. A delay under a second counts as a second.
    """
    ratios = []
    for path, delay in alone.items():
        shared = mean([wait for job in alone_jobs(trace, path) if (wait := _wait(history, job)) is not None])
        if shared is not None:
            ratios.append(max(shared, 1.0) / max(delay, 1.0))
    return max(ratios, default=None)


def alone_jobs(trace: Trace, path: str) -> list[TraceJob]:
    """The jobs of a queue that its min could run."""
    low = trace.cluster.queues[path].min
    return [
        job
        for job in trace.jobs
        if job.queue == path and all(amount <= low[name] for name, amount in job.request.items() if name in low)
    ]


def _wait(history: History, job: TraceJob) -> float | None:
    past = history.jobs.get(job.id)
    return waits(past, job) if past is not None else None


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The percentile with linear interpolation between the two nearest values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _rounded(metrics: SimulationMetrics) -> SimulationMetrics:
    """Six digits after the point: what is beyond is the noise of summing up."""
    changes = {name: round(value, 6) for name, value in structs.asdict(metrics).items() if isinstance(value, float)}
    return structs.replace(metrics, **changes)
