"""Whether the figures of a trace hold for traces like it: the mean and the range of jittered copies of each.

A copy: each job comes up to ten minutes later and runs for nine to eleven tenths of its time, both drawn by the copy's
number. MUSTER_TEST_TRACES names the traces' folder.

Run: python tests/perf/bench_copies.py [--copies 8] [--processes 2] [--only TRACE ...]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

from bench_placement import traces
from bench_quality import CHANGES, FILES, HALF, RECLAIMING, of_64_gpus, simulated, two_weeks
from figures import Grid, Progress
from msgspec.structs import replace

from muster.tracesim.metrics import SimulationMetrics
from muster.tracesim.model import Trace
from muster.tracesim.runner import MUSTER
from muster.tracesim.stops import COSTLY, Stops

COPIES = 8
LATER_S = 600.0
LENGTHS = (0.9, 1.1)
PHILLY = "Philly"

COLUMNS = (
    "Trace and policy",
    "mean completion, s",
    "lowest",
    "highest",
    "GPU-hours lost",
    "lowest",
    "highest",
    "most evictions of one job",
    "guarantee unserved, GPU-h",
    "Jain",
)


class Ruled(NamedTuple):
    """How Muster runs it, beside the default."""

    name: str
    rules: dict[str, str]
    stops: Stops = COSTLY


DEFAULT = Ruled("default", {})
OPTIONS = (
    Ruled("order share", {"order": "share"}),
    Ruled("least attained, half save", {"least-attained": "4h,32h"}, HALF),
)


def jittered(trace: Trace, number: int) -> Trace:
    """The copy of that number; in whole seconds."""
    rng = Random(number)
    drawn = []
    for job in trace.jobs:
        submit = job.submit / 1000 + rng.uniform(0, LATER_S)
        lasts = rng.uniform(*LENGTHS)
        duration = None if job.duration is None else max(1, round(job.duration / 1000 * lasts)) * 1000
        drawn.append((submit, replace(job, submit=round(submit) * 1000, duration=duration)))
    drawn.sort(key=lambda pair: pair[0])
    return Trace(trace.cluster, tuple(job for _, job in drawn))


def varied(name: str, folder: Path, number: int) -> Trace:
    """A copy of the trace of that name."""
    if name in FILES:
        return jittered(of_64_gpus(folder, name), number)
    copy = jittered(two_weeks(folder), number)
    return CHANGES[name](copy) if name in CHANGES else copy


TRACES = (PHILLY, *CHANGES, *FILES)


class Row(NamedTuple):
    """What is simulated, for each copy."""

    trace: str
    policy: str
    ruled: Ruled

    @property
    def name(self) -> str:
        return f"{self.trace}: {f'muster, {self.ruled.name}' if self.policy == MUSTER else self.policy}"


def rows(names: Iterable[str]) -> Iterator[Row]:
    for trace in names:
        yield Row(trace, MUSTER, DEFAULT)
        for policy in RECLAIMING:
            yield Row(trace, policy, DEFAULT)
        if trace == PHILLY:
            yield from (Row(trace, MUSTER, ruled) for ruled in OPTIONS)
            yield Row(trace, "kueue-like", Ruled("half save", {}, HALF))


def one(row: Row, folder: Path, number: int) -> SimulationMetrics:
    return simulated(varied(row.trace, folder, number), row.policy, row.ruled.rules, row.ruled.stops)


def figures(found: list[SimulationMetrics]) -> list[float]:
    """Those of a row, of all its copies."""
    took = [each.jct_mean_s or 0 for each in found]
    lost = [each.wasted_gpu_s / 3600 for each in found]
    return [
        *(mean(took), min(took), max(took)),
        *(mean(lost), min(lost), max(lost)),
        max(each.max_evictions_per_job for each in found),
        max(each.guarantee_violation_gpu_s for each in found) / 3600,
        mean(each.fairness_jain or 0 for each in found),
    ]


def measure(folder: Path, names: Iterable[str], copies: int, processes: int, say: Progress) -> Grid:
    """Exact: equal inputs give equal figures, in however many processes."""
    cells: dict[str, list[float]] = {}
    numbers = range(1, copies + 1)
    with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool:
        under_way = {row: [pool.submit(one, row, folder, number) for number in numbers] for row in rows(names)}
        for row, drawn in under_way.items():
            cells[row.name] = figures([each.result() for each in drawn])
            say(f"copies: {row.name}: {cells[row.name][0]:,.0f} s, {cells[row.name][3]:,.0f} GPU-h")
    about = (
        f"{copies} copies of each trace: every job comes up to ten minutes later, and runs for nine to eleven tenths "
        "of its time. Mean of the copies, with the lowest and the highest; evictions and what is unserved of "
        "guarantees: the worst copy. Stopped jobs begin again from nothing, and stop at once. `half save`: half of the "
        "jobs note a checkpoint every 1,800 s, and all take 60 s to work again. The traces are those of the section on "
        "other traces."
    )
    return Grid("Jittered copies", about, COLUMNS, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", choices=TRACES, default=TRACES)
    options = parser.parse_args()
    folder = traces()
    if folder is None:
        sys.exit("MUSTER_TEST_TRACES names no folder of public traces")
    table = measure(folder, options.only, options.copies, options.processes, Progress())
    print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
