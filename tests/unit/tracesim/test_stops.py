"""What a stop costs: time to stop, work since the last checkpoint, time to work again; and traces told otherwise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kit.traces import run, trace
from muster.events.facts import WorkloadObserved
from muster.runtime.logkeeping.logfile import read_log
from muster.tracesim import transforms
from muster.tracesim.runner import Options, simulate
from muster.tracesim.stops import Stops

CLUSTER = {
    "nodes": [{"count": 1, "gpus": 4}],
    "queues": {"a": {"min": 4, "max": 4}, "b": {"min": 0, "max": 4}},
}
BORROWED = "old,b,4,0,100\nowed,a,4,50,10"
"""A borrower that has to leave at 50 s for 10 s of somebody who is owed."""


def ends(made, **options):
    found = run(made, "muster", **options)
    return {uid: job.end // 1000 for uid, job in found.history.jobs.items()}, found


def test_whoever_is_told_to_stop_holds_what_it_has_until_it_has(tmp_path):
    made = trace(tmp_path, CLUSTER, BORROWED)
    at_once, _ = ends(made)
    late, found = ends(made, stops=Stops(stopping=20_000))
    assert at_once == {"owed": 60, "old": 160}
    assert late == {"owed": 80, "old": 180}
    assert found.metrics.guarantee_violation_gpu_s == 0
    assert found.metrics.wasted_gpu_s == 4 * 70


def test_a_job_that_was_stopped_takes_time_to_work_again(tmp_path):
    made = trace(tmp_path, CLUSTER, BORROWED)
    found, result = ends(made, stops=Stops(restart=7_000))
    assert found == {"owed": 60, "old": 167}
    assert result.metrics.wasted_gpu_s == 4 * (50 + 7)


def test_a_checkpoint_keeps_the_work_and_is_noted_on_the_object(tmp_path):
    made = trace(tmp_path, CLUSTER, BORROWED)
    log = tmp_path / "log.jsonl"
    found = simulate(made, "muster", Options(stops=Stops(checkpoint=20_000)), log=log)
    assert found.history.jobs["old"].end // 1000 == 60 + 60
    noted = [
        event.workload.checkpointed_at % 1_000_000
        for stored in read_log(log)
        for event in stored.commit.events
        if isinstance(event, WorkloadObserved) and event.workload.checkpointed_at
    ]
    assert len(set(noted)) >= 2


def test_only_a_part_of_the_jobs_makes_checkpoints():
    half = Stops(checkpoint=1000, checkpointing=500)
    found = [half.interval(f"job-{number}") for number in range(1000)]
    assert found.count(1000) == pytest.approx(500, abs=60)
    assert found == [half.interval(f"job-{number}") for number in range(1000)]


def test_a_run_that_begins_with_a_restart_keeps_less():
    assert Stops(checkpoint=10_000).kept("a", 25_000) == 20_000
    assert Stops(checkpoint=10_000).kept("a", 25_000, 6_000) == 10_000
    assert Stops().kept("a", 25_000) == 0


@pytest.mark.parametrize("policy", ["muster", "kueue-like"])
def test_a_policy_of_the_engine_pays_as_much_for_a_stop(tmp_path, policy):
    made = trace(tmp_path, CLUSTER, BORROWED)
    found = run(made, policy, stops=Stops(stopping=20_000, restart=7_000))
    assert {uid: job.end // 1000 for uid, job in found.history.jobs.items()} == {"owed": 80, "old": 187}
    assert found.metrics.wasted_gpu_s == 4 * (70 + 7)


def test_the_same_trace_otherwise(tmp_path):
    made = trace(tmp_path, CLUSTER, "x,a,1,0,5\ny,b,3,130,5")
    assert [job.submit for job in transforms.closer(made, Fraction("1.3")).jobs] == [0, 100_000]
    assert [job.gpus for job in transforms.larger(made, Fraction(2)).jobs] == [2000, 4000]
    backwards = transforms.backwards(made).jobs
    assert [(job.id, job.submit) for job in backwards] == [(made.jobs[1].id, 0), (made.jobs[0].id, 130_000)]
    merged = transforms.merged(made)
    assert list(merged.cluster.leaves) == ["root/all"]
    assert {job.queue for job in merged.jobs} == {"root/all"}
    assert all(not queue.min for queue in transforms.without_guarantees(made).cluster.leaves.values())


def test_three_of_every_twenty_jobs_are_wider(tmp_path):
    made = trace(tmp_path, CLUSTER, "\n".join(f"job-{at},a,1,{at},5" for at in range(23)))
    wide = [int(job.id.removeprefix("job-")) for job in transforms.wider(made, Fraction(2)).jobs if job.gpus == 2000]
    assert wide == [0, 1, 2, 20, 21, 22]
