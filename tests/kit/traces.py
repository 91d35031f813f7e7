"""Job traces for tests: built in a few words, small samples in files, and the whole ones where they are at hand."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.tracesim.history import History
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.metrics import SimulationMetrics
from muster.tracesim.model import Trace
from muster.tracesim.runner import Options, Result, simulate

SAMPLES = Path(__file__).parent / "tracefiles"
"""The first jobs of public traces, see README.md there."""

VARIABLE = "MUSTER_TEST_TRACES"
PHILLY_GPUS = 448

HEADER = "job_id,queue,gpus,submit_s,duration_s"


def trace(folder: Path, cluster: dict[str, Any], jobs: str, header: str = HEADER) -> Trace:
    """A trace from a cluster and lines of jobs, through files as users write them."""
    return read_trace(*files(folder, cluster, jobs, header))


def files(folder: Path, cluster: dict[str, Any], jobs: str, header: str = HEADER) -> tuple[Path, Path]:
    """(CLUSTER.json, JOBS.csv)"""
    lines = [line.strip() for line in jobs.strip().splitlines()]
    (folder / "cluster.json").write_text(json.dumps(cluster, indent=2))
    (folder / "jobs.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder / "cluster.json", folder / "jobs.csv"


def run(made: Trace, policy: str = "muster", **options: Any) -> Result:
    return simulate(made, policy, Options(**options))


def starts(history: History) -> dict[str, float]:
    """Job -> seconds at which it first started."""
    return {job.id: job.first_start / 1000 for job in history.jobs.values() if job.first_start >= 0}


def ends(history: History) -> dict[str, float]:
    return {job.id: job.end / 1000 for job in history.jobs.values() if job.end >= 0}


def figure(metrics: SimulationMetrics, name: str) -> Any:
    return getattr(metrics, name)


def philly(traces: Path, folder: Path) -> tuple[Path, Path]:
    """(CLUSTER.json, JOBS.csv) of two weeks of the Philly trace; the first is written to a folder."""
    with (traces / "philly_2w_quota.csv").open() as file:
        queues = {row["vc"]: {"min": int(row["nominal_gpus"]), "max": PHILLY_GPUS} for row in csv.DictReader(file)}
    path = folder / "cluster.json"
    path.write_text(json.dumps({"nodes": [{"count": PHILLY_GPUS // 8, "gpus": 8}], "queues": queues}))
    return path, traces / "philly_2w_dev.csv"


def muri(source: Path, folder: Path) -> tuple[Path, Path]:
    """(CLUSTER.json, JOBS.csv) of a trace of eight nodes of eight GPUs without queues: one queue has all there is."""
    with source.open() as file:
        rows = [{"queue": "all"} | row for row in csv.DictReader(file)]
    with (folder / source.name).open("w") as file:
        out = csv.DictWriter(file, ["job_id", "queue", "gpus", "submit_s", "duration_s"])
        out.writeheader()
        out.writerows(rows)
    path = folder / "cluster.json"
    path.write_text(json.dumps({"nodes": [{"count": 8, "gpus": 8}], "queues": {"all": {"min": 64, "max": 64}}}))
    return path, folder / source.name


def full_traces() -> Path:
    """The directory with the whole traces; skips, saying how to have them, where there is none."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        pytest.skip(f"NOT RUN: set {VARIABLE} to the directory of the whole traces (philly_2w_dev.csv, ...) to run it")
    found = Path(named)
    assert found.is_dir(), f"{VARIABLE} names {found}, which is no directory"
    return found
