"""What a simulation leaves behind: jobs.csv and summary.json beside the log."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from muster.tracesim.model import WHOLE
from muster.tracesim.runner import Result
from muster.tracesim.stops import ALL_OF_THEM

EVENTS = "events.jsonl"
JOBS = "jobs.csv"
SUMMARY = "summary.json"
REPORT = "report.html"
COLUMNS = ("job_id", "queue", "gpus", "submit_s", "first_start_s", "end_s", "evictions", "last_reason")


def write_jobs(path: Path, result: Result) -> None:
    """One line per submitted job, in the order of arrival; a cell is empty where it did not happen."""
    queues = result.trace.cluster.queues
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for job in result.trace.jobs:
            past = result.history.jobs.get(job.id)
            if past is None:
                continue
            writer.writerow(
                (
                    job.id,
                    queues[job.queue].name,
                    gpus(job.gpus),
                    seconds(past.submit),
                    seconds(past.first_start),
                    seconds(past.end),
                    past.evictions,
                    result.history.reason_of(past),
                )
            )


def seconds(ms: int) -> str:
    """``12.500``; empty for a moment that never came."""
    return f"{ms // 1000}.{ms % 1000:03d}" if ms >= 0 else ""


def gpus(amount: int) -> str:
    """``8``, or ``0.46`` for a share of one."""
    return f"{amount / WHOLE:g}" if amount % WHOLE else str(amount // WHOLE)


def summary(result: Result) -> dict[str, Any]:
    """The figures of one policy, as summary.json holds them."""
    options = result.options
    return {
        "policy": result.policy,
        "seed": options.seed,
        "jobs": structs.asdict(result.jobs),
        "metrics": structs.asdict(result.metrics),
        "simulated_s": result.history.end / 1000,
        "commits": result.history.commits,
        "checkpoint_s": None if result.stops.checkpoint is None else result.stops.checkpoint / 1000,
        "checkpointing_share": result.stops.checkpointing / ALL_OF_THEM,
        "stopping_s": result.stops.stopping / 1000,
        "restart_s": result.stops.restart / 1000,
        "until_s": None if options.until is None else options.until / 1000,
        "faults": len(options.faults.rows),
        "interruptions": sum(run.outcome == "lost" for job in result.history.jobs.values() for run in job.runs),
    }


def write_summary(path: Path, result: Result) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summary(result)), indent=2) + b"\n")
