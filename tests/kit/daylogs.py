"""Logs of whole days for judges: the demo by the hour, and drawn days."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from muster.events.envelope import Stored
from muster.tracesim.days import DayWish, draw
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.model import Trace
from muster.tracesim.runner import MUSTER, Options, simulate
from muster_cli.local.living import endless

GPU = "nvidia.com/gpu"
TEAMS = {
    "research": {
        "min": 24,
        "max": 32,
        "children": {
            "vision": {"min": 8, "max": 24},
            "language": {"min": 12, "max": 32},
            "interns": {"min": 0, "max": 16},
        },
    },
    "products": {"min": 8, "max": 16, "children": {"search": {"min": 8, "max": 16}}},
}


def played(trace: Trace) -> list[Stored]:
    log: list[Stored] = []
    simulate(trace, MUSTER, Options(), alone={}, hears=log.append)
    return log


def demo(folder: Path, seed: int, hours: float) -> Trace:
    """The jobs of the demo that go on coming: more than four teams can run, so waits grow."""
    at, rows = 0.0, []
    for turn in endless(seed, calm_s=0):
        at += turn.wait_s
        if at > hours * 3600:
            break
        if turn.body["kind"] != "RayJob":
            continue
        group, meta = turn.body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0], turn.body["metadata"]
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        runtime = int(meta["annotations"]["sim.muster.dev/runtime"].removesuffix("s"))
        rows.append((meta["name"], meta["namespace"], int(limits[GPU]) * group["replicas"], at, runtime))
    with (folder / "jobs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("job_id", "queue", "gpus", "submit_s", "duration_s"), *rows])
    cluster = {"nodes": [{"count": 4, "gpus": 8}], "queues": TEAMS}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    return read_trace(folder / "cluster.json", folder / "jobs.csv")


def day(family: str, seed: int) -> list[Stored]:
    """A day of 1,500 jobs for 16 nodes."""
    return played(draw(DayWish(family=family, seed=seed, jobs=1500, nodes=16)).trace)
