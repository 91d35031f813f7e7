"""Big gangs, and guarantees that come and go: what the rules as they are by default do about them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from kit.traces import run, starts, trace
from muster.tracesim.model import Trace

AGE_S = 900
"""The age limit of ten minutes, and half of it for the pods that run to end."""


def stream(queue: str, gpus: int, last: int, percent: int = 117, takes: int = 90) -> str:
    """Jobs of one GPU that ask together for so much of some GPUs, evenly."""
    count = last * gpus * percent // (takes * 100)
    return "\n".join(f"{queue}{index},{queue},1,{index * last // count},{takes}" for index in range(count))


@pytest.mark.parametrize("gpus", [8, 32])
@pytest.mark.parametrize("own", ["q", "gang"])
def test_a_gang_of_three_quarters_gets_in_against_a_stream_of_small_jobs(tmp_path: Path, gpus: int, own: str) -> None:
    """In the queue of the stream that is guaranteed all there is, or in one of its own where nothing is promised."""
    queues = {own: {"min": 0, "max": gpus}, "q": {"min": gpus if own == "q" else 0, "max": gpus}}
    cluster = {"nodes": [{"count": gpus // 8, "gpus": 8}], "queues": queues}
    made = trace(tmp_path, cluster, f"big,{own},{gpus * 3 // 4},300,60\n{stream('q', gpus, 2400)}")
    found = run(Trace(replace(made.cluster, rules={"order": "share"}), made.jobs))
    assert starts(found.history)["big"] <= 300 + AGE_S
    assert found.metrics.quota_violation_gpu_s == 0


def test_a_gang_gets_in_against_siblings_of_one_guarantee(tmp_path: Path) -> None:
    """The guarantee of 4 is for both queues, and the gang has waited longer than the jobs that it would cover."""
    queues = {"x": {"min": 4, "children": {"a": {"min": 0}, "b": {"min": 0}}}}
    lines = stream("b", 8, 3600, takes=300).splitlines()
    jobs = "\n".join(line.replace(",b,", ",a,") if index % 2 else line for index, line in enumerate(lines))
    made = trace(tmp_path, {"nodes": [{"count": 1, "gpus": 8}], "queues": queues}, f"big,a,6,450,60\n{jobs}")
    assert starts(run(made).history)["big"] <= 450 + 8 * 300


def test_a_claim_for_age_holds_up_no_job_that_could_evict_the_claimant(tmp_path: Path) -> None:
    """Nor does the gang start to be evicted at once."""
    cluster = {
        "nodes": [{"count": 1, "gpus": 8}],
        "queues": {"q": {"min": 8, "max": 8, "preempt_lower_priority": True}},
    }
    urgent = "\n".join(f"h{number},q,1,{2300 + 50 * number},300,10" for number in range(6))
    some = "\n".join(f"{line},0" for line in stream("q", 8, 3600, takes=300).splitlines())
    header = "job_id,queue,gpus,submit_s,duration_s,priority"
    found = run(trace(tmp_path, cluster, f"big,q,6,450,300,0\n{urgent}\n{some}", header)).history
    assert max(starts(found)[f"h{number}"] - (2300 + 50 * number) for number in range(6)) == 0
    assert found.jobs["big"].evictions == 0
    assert starts(found)["big"] <= 450 + 10 * 300


def waves(rng: Random, queue: int, last: int) -> str:
    """For some minutes more than the guarantee of four, then nothing for some."""
    lines, at, number = [], rng.randint(0, 600), 0
    while at < last:
        for _ in range(rng.randint(3, 9)):
            number += 1
            lines.append(f"w{queue}x{number},q{queue},{rng.choice((1, 1, 2, 4))},{at},{rng.randint(60, 1500)}")
            at += rng.randint(0, 20)
        at += rng.randint(300, 1800)
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_guarantees_that_come_and_go_in_waves_leave_no_owed_gpu_idle(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    cluster = {
        "nodes": [{"count": 2, "gpus": 8}],
        "queues": {f"q{index}": {"min": 4, "max": 16} for index in range(4)},
    }
    found = run(trace(tmp_path, cluster, "\n".join(waves(rng, index, 20_000) for index in range(4)))).metrics
    assert found.guarantee_violation_gpu_s == 0
    assert found.quota_violation_gpu_s == 0
    assert found.partial_hold_gpu_s == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_mix_heavy_with_gangs_ends_near_the_lower_bound(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    cluster = {"nodes": [{"count": 8, "gpus": 8}], "queues": {"q": {"min": 64}}}
    jobs = "\n".join(
        f"j{index},q,{rng.choice((1, 1, 2, 4, 8, 8, 16, 16, 32))},{rng.randint(0, 20_000)},{rng.randint(60, 3000)}"
        for index in range(400)
    )
    found = run(trace(tmp_path, cluster, jobs)).metrics
    assert found.makespan_s is not None
    assert found.makespan_lower_bound_s is not None
    assert found.makespan_s <= 1.13 * found.makespan_lower_bound_s
