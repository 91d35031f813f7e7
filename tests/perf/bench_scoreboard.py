"""Muster beside its peers on days nobody tuned for: eight families of days, each drawn several times, with and without
nodes.

Run: python tests/perf/bench_scoreboard.py [--copies 10] [--jobs 1000] [--processes 1] [--only FAMILY ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import exp, log, sqrt
from statistics import fmean, stdev

from figures import Grid, Progress
from msgspec.structs import replace

from muster.events.system import PlacementMode
from muster.tracesim.days import FAMILIES, DayWish, draw
from muster.tracesim.model import WHOLE, Trace
from muster.tracesim.runner import MUSTER, Options, Result, simulate
from muster.tracesim.stops import Stops
from muster.tracesim.sweep import waits

PEERS = ("kueue-like", "kai-like")
POLICIES = (MUSTER, *PEERS, "best-effort-fifo")
MODES: Sequence[PlacementMode] = ("off", "pack")
NODES = 16
WIDE = 8
STOPS = Stops(stopping=30_000, restart=60_000)


def _mean_wait(result: Result, wanted: Callable[[int], bool]) -> float:
    jobs = [job for job in result.trace.jobs if job.duration is not None and wanted(job.gpus // WHOLE)]
    found = [wait for job in jobs if (wait := waits(result.history.jobs[job.id], job)) is not None]
    return fmean(found) if found else 0.0


FIGURES: Mapping[str, Callable[[Result], float]] = {
    "completion, s": lambda result: result.metrics.jct_mean_s or 0,
    "wait of gangs of 8 and more, s": lambda result: _mean_wait(result, lambda gpus: gpus >= WIDE),
    "wait of smaller jobs, s": lambda result: _mean_wait(result, lambda gpus: gpus < WIDE),
    "longest wait, s": lambda result: result.metrics.queue_delay_max_s or 0,
    "lost GPU-h": lambda result: result.metrics.wasted_gpu_s / 3600,
    "most evictions of one job": lambda result: result.metrics.max_evictions_per_job,
    "unserved GPU-h": lambda result: result.metrics.guarantee_violation_gpu_s / 3600,
}

Row = tuple[str, PlacementMode, str]
"""(family, placement, policy)"""
Copies = dict[Row, list[list[float]]]
"""row -> the figures of each copy, in the order of FIGURES"""


def one(family: str, mode: PlacementMode, policy: str, number: int, jobs: int, nodes: int = NODES) -> list[float]:
    """The figures of a copy; every second copy has run times that depend on owner and size."""
    day = draw(DayWish(family=family, seed=number, jobs=jobs, nodes=nodes, linked=number % 2 == 1))
    trace = Trace(replace(day.trace.cluster, placement=mode), day.trace.jobs)
    result = simulate(trace, policy, Options(stops=STOPS), alone={})
    assert not result.jobs.unfinished, (family, mode, policy, number)
    return [figure(result) for figure in FIGURES.values()]


def run(families: Iterable[str], copies: int, jobs: int, processes: int, say: Progress, nodes: int = NODES) -> Copies:
    """Exact: equal inputs give equal figures, in however many processes."""
    found: Copies = {}
    rows: list[Row] = []
    for family in families:
        rows += [(family, mode, policy) for mode in MODES for policy in POLICIES]
        rows.append((family, "spread", "kueue-like"))
    with ProcessPoolExecutor(processes) as pool:
        pending = {
            row: [pool.submit(one, *row, number, jobs, nodes) for number in range(1, copies + 1)] for row in rows
        }
        for row, drawn in pending.items():
            found[row] = [each.result() for each in drawn]
            say(f"scoreboard: {', '.join(row)}: {fmean(each[0] for each in found[row]):,.0f} s")
    return found


def error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def ratios(copies: Copies, family: str, mode: PlacementMode, against: str = "") -> tuple[float, float, str]:
    """(completion / that of the peer, its standard error over the paired copies, the peer: the better one, or
    ``against``)
    """
    took = {policy: [each[0] for each in copies[family, mode, policy]] for policy in POLICIES}
    peer = against or min(PEERS, key=lambda policy: fmean(took[policy]))
    ratio = fmean(took[MUSTER]) / fmean(took[peer])
    rests = [ours - ratio * theirs for ours, theirs in zip(took[MUSTER], took[peer], strict=True)]
    return ratio, error(rests) / fmean(took[peer]), peer


def geometric_mean(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of ratios with standard errors; the same of the mean."""
    mean = exp(fmean(log(value) for value, _ in values))
    return mean, mean * sqrt(sum((spread / value) ** 2 for value, spread in values)) / len(values)


def about(copies: int, jobs: int) -> str:
    return (
        f"Eight families of days (`muster simulate --day`), {copies} paired copies of {jobs:,} jobs each, every second "
        "copy with run times that depend on owner and size; 16 nodes of 8 GPUs, no setting at all, 30 s to stop, 60 s "
        "to work again, work lost. `off`: nodes count together; `pack`: pods need nodes, with every policy. "
        "`kueue-like` and `kai-like` decide by the products' own rules."
    )


def tables(found: Copies, copies: int, jobs: int) -> list[Grid]:
    """The ratios of completion, and all figures with their standard errors."""
    families = list(dict.fromkeys(family for family, _, _ in found))
    cells: dict[str, list[float]] = {}
    for mode in MODES:
        better = {family: ratios(found, family, mode) for family in families}
        for family, (ratio, spread, peer) in better.items():
            beside = [value for policy in PEERS for value in ratios(found, family, mode, policy)[:2]]
            cells[f"{mode}: {family} ({peer})"] = [ratio, spread, *beside]
        each = [
            geometric_mean([ratios(found, family, mode, policy)[:2] for family in families]) for policy in ("", *PEERS)
        ]
        cells[f"{mode}: geometric mean"] = [value for pair in each for value in pair]
    columns = ["Placement: family (better peer)", "Muster / better peer", "±"]
    for policy in PEERS:
        columns += [f"Muster / {policy}", "±"]
    told = about(copies, jobs)
    shown: dict[str, list[float]] = {}
    for (family, mode, policy), drawn in found.items():
        shown[f"{family}, {mode}: {policy}"] = [
            value for column in zip(*drawn, strict=True) for value in (fmean(column), error(column))
        ]
    named = ["Family, placement: policy"]
    for name in FIGURES:
        named += [name, "±"]
    return [
        Grid("The scoreboard: mean completion", f"{told} ±: the standard error over the copies.", columns, cells),
        Grid(
            "The scoreboard: every figure",
            f"{told} Means over the copies; ±: the standard error. `spread`: "
            "kube-scheduler's default, the emptiest node first, beside Kueue; else the fullest node first.",
            named,
            shown,
        ),
    ]


def measure(families: Iterable[str], copies: int, jobs: int, processes: int, say: Progress) -> list[Grid]:
    return tables(run(families, copies, jobs, processes, say), copies, jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    options = parser.parse_args()
    for table in measure(options.only, options.copies, options.jobs, options.processes, Progress()):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
