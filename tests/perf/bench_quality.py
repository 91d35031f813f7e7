"""What the rules decide on public traces, beside other policies; MUSTER_TEST_TRACES names the traces' folder.

Run: python tests/perf/bench_quality.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from figures import Grid, Progress, Table
from msgspec.structs import replace

from kit.doubles.covering import Coverage
from kit.traces import muri, philly
from muster.events.envelope import Stored
from muster.tracesim import transforms
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.metrics import SimulationMetrics
from muster.tracesim.model import GPU, Trace
from muster.tracesim.runner import MUSTER, Options, simulate
from muster.tracesim.stops import COSTLY, Stops

TITLE = "Deciding on two weeks of the Philly trace"
REFERENCES = ("fifo", "best-effort-fifo", "static-quota", "kueue-like", "kai-like", "volcano-like", "sjf", "srtf")
UNBOUND = ("fifo", "best-effort-fifo", "sjf", "srtf")
"""Policies that know no quota."""
RECLAIMING = ("kueue-like", "kai-like")
SHARE = {"order": "share"}
WEEK_MS = 7 * 24 * 3_600_000
GRACES = ("0s", "60s", "5m", "15m", "1h")
HALF = Stops(checkpoint=1_800_000, checkpointing=500, restart=60_000)
"""Half of the jobs save their work every half hour, and take a minute to work again."""

CHANGES: Mapping[str, Callable[[Trace], Trace]] = {
    "arrivals x 1.3": lambda trace: transforms.closer(trace, Fraction(13, 10)),
    "sizes x 2": lambda trace: transforms.larger(trace, Fraction(2)),
    "one queue": transforms.merged,
    "backwards": transforms.backwards,
    "15 % x 4": lambda trace: transforms.wider(trace, Fraction(4)),
}
"""The two weeks otherwise."""
FILES = {"64 GPUs": "muri_testbed_64gpu.csv", "gang-heavy": "muri_trace1_gang.csv"}
"""Traces of 64 GPUs in one queue."""

Case = tuple[str, Trace, str, dict[str, str], Stops]
"""(name, trace, policy, rules of the tree, what a stop costs)"""

OURS = (("order share", SHARE), ("default", {}))

FIGURES: Mapping[str, Callable[[SimulationMetrics, int], float]] = {
    "mean completion, s": lambda found, _: found.jct_mean_s or 0,
    "GPU-hours lost": lambda found, _: found.wasted_gpu_s / 3600,
    "evictions per job": lambda found, jobs: found.evictions / jobs,
    "most evictions of one job": lambda found, _: found.max_evictions_per_job,
    "guarantee unserved, GPU-h": lambda found, _: found.guarantee_violation_gpu_s / 3600,
    "quota violation, GPU-h": lambda found, _: found.quota_violation_gpu_s / 3600,
    "Jain": lambda found, _: found.fairness_jain or 0,
}


def measure(traces: Path, say: Progress) -> list[Table | Grid]:
    """One round of everything: it is exact, equal inputs give equal figures."""
    grids = (options, graces, nodes, others)
    return [measure_policies(traces, say), *(grid(traces, say) for grid in grids)]


def two_weeks(traces: Path) -> Trace:
    with tempfile.TemporaryDirectory() as name:
        return read_trace(*philly(traces, Path(name)))


def of_64_gpus(traces: Path, named: str) -> Trace:
    """One of FILES."""
    with tempfile.TemporaryDirectory() as name:
        return read_trace(*muri(traces / FILES[named], Path(name)))


def measure_policies(traces: Path, say: Progress) -> Table:
    trace = two_weeks(traces)
    found: dict[str, float] = {}
    for policy in REFERENCES:
        _run(found, say, policy, trace, policy, {})
    _run(found, say, "muster, order share", trace, MUSTER, SHARE)
    coverage = Coverage()
    _run(found, say, "muster, default", trace, MUSTER, {}, hears=coverage.fold)
    for week, named in enumerate(("first", "second")):
        kept = coverage.percent(week * WEEK_MS, (week + 1) * WEEK_MS)
        assert kept is not None, named
        found[f"muster, default: promised starts kept in the {named} week, %"] = kept
    _run(found, say, "muster, default, no guarantees", transforms.without_guarantees(trace), MUSTER, {})
    about = (
        "26,936 jobs on 448 GPUs, eleven queues with guarantees that add up to all of it. Stopped jobs begin again "
        "from nothing, and stop at once. Mean completion time, GPU-hours of work thrown away, and the most evictions "
        "of one job. No run of Muster exceeds a quota. Promised starts: of the jobs that waited a minute or longer, "
        "how many started within the bound that was promised to 90 of 100."
    )
    return Table(TITLE, about, [found])


def options(traces: Path, say: Progress) -> Grid:
    about = (
        "The same two weeks without a reclaim grace. Aims: mean completion of 22,500 s and no more lost than by "
        "kueue-like; where half of the jobs save their work, 17,000 s and a quarter of what kueue-like loses. `half "
        "save`: half of the jobs note a checkpoint every 1,800 s, and all take 60 s to work again. `least attained`: "
        "`muster.dev/least-attained: 4h,32h`."
    )
    return _grid("Options of a tree on the Philly trace", about, opted(traces), say)


def opted(traces: Path) -> Iterator[Case]:
    trace = two_weeks(traces)
    served = ("least attained", {"least-attained": "4h,32h"})
    for saving, stops, ours in (("", COSTLY, OURS), (", half save", HALF, (*OURS[1:], served))):
        for named, rules in ours:
            yield f"muster, {named}{saving}", trace, MUSTER, rules, stops
        for policy in RECLAIMING:
            yield f"{policy}{saving}", trace, policy, {}, stops


def graces(traces: Path, say: Progress) -> Grid:
    about = (
        "The same two weeks. `grace`: how long who is owed waits before others are evicted for it, "
        "`muster.dev/reclaim-grace`. What is unserved of a guarantee within "
        "the grace counts as unserved too. The other policies know no grace: their rows are those of the section above."
    )
    return _grid("The Philly trace by reclaim grace", about, graced(traces), say)


def graced(traces: Path) -> Iterator[Case]:
    trace = two_weeks(traces)
    for grace in GRACES:
        rules = {"reclaim-grace": grace}
        for named, ours in OURS[1:]:
            yield f"grace {grace}: muster, {named}", trace, MUSTER, ours | rules, COSTLY


def nodes(traces: Path, say: Progress) -> Grid:
    about = (
        "The same two weeks without a reclaim grace on 56 nodes of 8 GPUs (`pack`), and where only quota counts; a job "
        "of 16 GPUs is a gang of two pods. Aims: no more than 0.1 GPU-hours of a guarantee unserved, and a mean "
        "completion within a tenth of that without nodes. What is lost beyond that without nodes is lost by jobs that "
        "are evicted, or moved to other nodes, for jobs that take whole nodes."
    )
    return _grid("The Philly trace with nodes", about, on_nodes(traces), say)


def on_nodes(traces: Path) -> Iterator[Case]:
    trace = two_weeks(traces)
    [node] = trace.cluster.groups
    jobs = tuple(replace(job, members=max(1, job.gpus // node.capacity[GPU])) for job in trace.jobs)
    for named, mode in (("without nodes", "off"), ("with nodes", "pack")):
        placed = Trace(replace(trace.cluster, placement=mode), jobs)
        for order, rules in OURS[1:]:
            yield f"{named}: muster, {order}", placed, MUSTER, rules, COSTLY


def others(traces: Path, say: Progress) -> Grid:
    about = (
        "Rules that were tuned on one trace are not done: the two weeks with arrivals 1.3 times as dense, with jobs "
        "twice as large, with all jobs in one queue, backwards (the last job comes first), and with the first three of "
        "every twenty jobs four times as large; and two traces of 64 GPUs in one queue, Muri's testbed (400 jobs) and "
        "one of which a third are gangs of 8 GPUs or more (1,494 jobs)."
    )
    return _grid("Deciding on other traces", about, transformed(traces), say)


def transformed(traces: Path) -> Iterator[Case]:
    trace = two_weeks(traces)
    cases = {named: change(trace) for named, change in CHANGES.items()}
    cases |= {named: of_64_gpus(traces, named) for named in FILES}
    for named, other in cases.items():
        for order, rules in OURS if len(other.cluster.leaves) > 1 else OURS[:2]:
            yield f"{named}: muster, {order}", other, MUSTER, rules, COSTLY
        for policy in ("best-effort-fifo", *RECLAIMING):
            yield f"{named}: {policy}", other, policy, {}, COSTLY


def _grid(title: str, about: str, cases: Iterator[Case], say: Progress) -> Grid:
    cells = {}
    for name, trace, policy, rules, stops in cases:
        say(f"quality: {name}")
        cells[name] = row(simulated(trace, policy, rules, stops), len(trace.jobs))
    return Grid(title, about, ("Policy", *FIGURES), cells)


def row(metrics: SimulationMetrics, jobs: int) -> list[float]:
    return [figure(metrics, jobs) for figure in FIGURES.values()]


def simulated(
    trace: Trace,
    policy: str,
    rules: dict[str, str],
    stops: Stops,
    hears: Callable[[Stored], None] | None = None,
) -> SimulationMetrics:
    """What came of a policy; none that knows quotas exceeds one."""
    ruled = Trace(replace(trace.cluster, rules={**trace.cluster.rules, **rules}), trace.jobs)
    metrics = simulate(ruled, policy, Options(stops=stops), alone={}, hears=hears).metrics
    assert metrics.quota_violation_gpu_s == 0 or policy in UNBOUND, policy
    return metrics


def _run(
    found: dict[str, float],
    say: Progress,
    name: str,
    trace: Trace,
    policy: str,
    rules: dict[str, str],
    hears: Callable[[Stored], None] | None = None,
) -> None:
    say(f"quality: {name}")
    metrics = simulated(trace, policy, rules, COSTLY, hears)
    assert metrics.jct_mean_s is not None, name
    found[f"{name}: mean completion, s"] = metrics.jct_mean_s
    found[f"{name}: GPU-hours lost"] = metrics.wasted_gpu_s / 3600
    found[f"{name}: most evictions of one job"] = metrics.max_evictions_per_job


def main() -> None:
    from bench_placement import traces

    folder = traces()
    if folder is None:
        sys.exit("MUSTER_TEST_TRACES names no folder of public traces")
    for table in measure(folder, Progress()):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
