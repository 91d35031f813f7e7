"""Promises that readers see at random moments: nine of ten are kept, however long and large the wait."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kit.keptjudge import holds, judged
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
    for turn in endless(seed):
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


def test_the_interval_of_a_bucket_holds_its_share() -> None:
    assert holds(45, 50, 0.9)
    assert holds(40, 50, 0.9)
    assert not holds(35, 50, 0.9)
    assert not holds(200, 200, 0.9)


def test_starts_of_large_jobs_shown_while_the_load_grows_are_kept_as_those_of_small_jobs(tmp_path: Path) -> None:
    """Read like waits of small jobs, 55 of 100 were kept."""
    judge = judged(played(demo(tmp_path, 11, 1.5)), seed=3, moments=150, jobs=6)
    large = [case.kept for case in judge.cases if case.gpus == 8]
    assert len(large) > 50, judge.reasons
    assert sum(large) >= 0.8 * len(large)
    assert judge.percent() > 80


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [2, 3])
def test_the_demo_of_six_hours_is_calibrated_at_every_age_and_size(tmp_path: Path, seed: int) -> None:
    judge = judged(played(demo(tmp_path, seed, 6)), seed=1, moments=500, jobs=15)
    assert 86 <= judge.percent() <= 94
    assert len(judge.missed()) <= 2, judge.missed()


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["helios", "seren"])
def test_days_promise_little_and_keep_it(family: str) -> None:
    log = played(draw(DayWish(family=family, seed=1, jobs=1500, nodes=16)).trace)
    judge = judged(log, seed=1, moments=300, jobs=10)
    assert judge.reasons["few_waits"] > len(judge.cases)
    assert judge.percent() >= 80
