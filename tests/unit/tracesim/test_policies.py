"""What each policy does with a handful of jobs, start by start."""

import pytest

from kit.traces import ends, run, starts, trace
from muster.tracesim.stops import Stops

FOUR = {"nodes": [{"count": 1, "gpus": 4}]}
TWO = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 4}, "b": {"min": 4}}}


def test_fifo_lets_nobody_past_the_head(tmp_path):
    made = trace(tmp_path, FOUR, "x,q,3,0,10\ny,q,4,1,10\nz,q,1,2,5")
    assert starts(run(made, "fifo").history) == {"x": 0, "y": 10, "z": 20}


def test_best_effort_fifo_starts_whoever_fits(tmp_path):
    made = trace(tmp_path, FOUR, "x,q,3,0,10\ny,q,4,1,10\nz,q,1,2,5")
    assert starts(run(made, "best-effort-fifo").history) == {"x": 0, "y": 10, "z": 2}


def test_a_priority_goes_first(tmp_path):
    header = "job_id,queue,gpus,submit_s,duration_s,priority"
    made = trace(tmp_path, FOUR, "x,q,4,0,10,0\ny,q,4,1,10,0\nz,q,4,2,10,5", header=header)
    assert starts(run(made, "fifo").history) == {"x": 0, "z": 10, "y": 20}


def test_shortest_job_first(tmp_path):
    made = trace(tmp_path, FOUR, "x,q,4,0,10\ny,q,4,1,30\nz,q,4,2,20")
    assert starts(run(made, "sjf").history) == {"x": 0, "z": 10, "y": 30}


def test_least_work_left_first_stops_longer_ones_without_loss(tmp_path):
    made = trace(tmp_path, FOUR, "x,q,4,0,100\ny,q,4,10,20")
    found = run(made, "srtf")
    assert ends(found.history) == {"y": 30, "x": 120}
    assert (found.metrics.evictions, found.metrics.wasted_gpu_s) == (1, 0)


def test_least_work_left_first_counts_what_is_left_and_not_the_whole(tmp_path):
    made = trace(tmp_path, FOUR, "x,q,4,0,100\ny,q,4,90,20")
    assert ends(run(made, "srtf").history) == {"x": 100, "y": 120}


def test_static_quota_neither_borrows_nor_blocks_what_fits(tmp_path):
    made = trace(tmp_path, TWO, "x,a,3,0,10\ny,a,2,1,10\nz,a,1,2,10")
    assert starts(run(made, "static-quota").history) == {"x": 0, "y": 10, "z": 2}


@pytest.mark.parametrize("policy", ["muster", "kueue-like", "kai-like", "volcano-like"])
def test_queues_borrow_and_give_back_starting_again_from_nothing(tmp_path, policy):
    made = trace(tmp_path, TWO, "x,a,4,0,100\nold,a,2,10,100\nyoung,a,2,20,100\ny,b,2,50,10")
    found = run(made, policy)
    assert starts(found.history)["y"] == 50
    assert [(job.id, job.evictions) for job in found.history.jobs.values()] == [
        ("x", 0), ("old", 0), ("young", 1), ("y", 0)
    ]  # fmt: skip
    assert found.history.jobs["young"].evicted_by == ["y"]
    assert found.metrics.wasted_gpu_s == 2 * 30
    assert ends(found.history)["young"] == 160
    assert found.metrics.guarantee_violation_gpu_s == 0


@pytest.mark.parametrize("policy", ["muster", "kueue-like", "kai-like", "volcano-like"])
def test_what_an_eviction_frees_beyond_one_claimant_goes_to_the_next_that_is_owed(tmp_path, policy):
    cluster = {"nodes": [{"count": 1, "gpus": 8}], "queues": {"a": {"min": 0, "max": 8}, "b": {"min": 8}}}
    made = trace(tmp_path, cluster, "x,a,8,0,100\nearly,a,4,10,100\nb1,b,4,50,100\nb2,b,4,50,100")
    found = run(made, policy)
    assert {name: at for name, at in starts(found.history).items() if name in ("b1", "b2")} == {"b1": 50, "b2": 50}
    assert found.metrics.evictions == 1


@pytest.mark.parametrize("policy", ["muster", "kueue-like"])
def test_checkpoints_keep_what_was_done(tmp_path, policy):
    made = trace(tmp_path, TWO, "x,a,4,0,100\nyoung,a,4,20,100\ny,b,4,50,10")
    assert ends(run(made, policy).history)["young"] == 160
    assert ends(run(made, policy, stops=Stops(20_000)).history)["young"] == 60 + 80


@pytest.mark.parametrize("policy", ["kueue-like", "volcano-like"])
def test_what_is_not_preemptible_is_left_alone(tmp_path, policy):
    header = "job_id,queue,gpus,submit_s,duration_s,preemptible"
    made = trace(tmp_path, TWO, "x,a,4,0,100,no\nyoung,a,4,20,100,no\ny,b,4,50,10,yes", header=header)
    found = run(made, policy)
    assert found.metrics.evictions == 0
    assert starts(found.history)["y"] == 100


@pytest.mark.parametrize("policy", ["kueue-like", "kai-like", "volcano-like"])
def test_nobody_borrows_over_a_max(tmp_path, policy):
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 3, "max": 4}, "b": {"min": 4}}}
    made = trace(tmp_path, cluster, "x,a,3,0,10\ny,a,2,0,10")
    found = run(made, policy)
    assert starts(found.history) == {"x": 0, "y": 10}
    assert found.metrics.quota_violation_gpu_s == 0


def test_the_queue_with_the_least_of_its_share_goes_first(tmp_path):
    cluster = {"nodes": [{"count": 1, "gpus": 8}], "queues": {"a": {"min": 2}, "b": {"min": 2}, "c": {"min": 4}}}
    made = trace(tmp_path, cluster, "x,c,8,0,10\na1,a,4,1,10\na2,a,4,2,10\nb1,b,4,3,10")
    assert starts(run(made, "kai-like").history) == {"x": 0, "a1": 10, "b1": 10, "a2": 20}
    assert starts(run(made, "best-effort-fifo").history) == {"x": 0, "a1": 10, "a2": 10, "b1": 20}


def test_deserved_shares_follow_the_weights(tmp_path):
    cluster = {
        "nodes": [{"count": 1, "gpus": 8}],
        "queues": {"a": {"weight": 1}, "b": {"weight": 3}},
    }
    lines = [f"a{index},a,1,0,100" for index in range(8)] + [f"b{index},b,1,0,100" for index in range(8)]
    found = run(trace(tmp_path, cluster, "\n".join(lines)), "volcano-like").history
    first = [job.queue for job in found.jobs.values() if job.first_start == 0]
    assert (first.count("root/a"), first.count("root/b")) in {(2, 6), (3, 5)}
