"""Every figure against one that was worked out by hand, on schedules small enough for that."""

import pytest

from kit.traces import run, trace
from muster.tracesim.bounds import Work, jct_bound, makespan_bound
from muster.tracesim.history import History, JobHistory, JobRun
from muster.tracesim.metrics import measure, percentile
from muster.tracesim.model import GPU
from muster.tracesim.shares import GpuShares, filled
from muster.tracesim.stops import Stops

ONE = {"nodes": [{"count": 1, "gpus": 4}]}
TWO = {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"min": 2}, "b": {"min": 2}}}


def history(capacity: int, *jobs: JobHistory) -> History:
    found = History()
    found.capacity = [(0, capacity * 1000)]
    found.jobs = {job.id: job for job in jobs}
    found.end = max(max((job.end, *(run.end for run in job.runs))) for job in jobs)
    return found


def lived(name: str, queue: str, gpus: int, submit: int, *runs: tuple[int, int, str]) -> JobHistory:
    """A job whose runs are (start s, end s, outcome); it is over with a run that finished."""
    made = [JobRun(start * 1000, start * 1000, start * 1000, end * 1000, outcome) for start, end, outcome in runs]
    last = next((run.end for run in made if run.outcome == "finished"), -1)
    return JobHistory(name, name, f"root/{queue}", {GPU: gpus * 1000}, submit * 1000, runs=made, end=last)


def test_delays_completion_and_slowdown(tmp_path):
    # 4 GPUs, in order: x runs 0-100; y (4 GPUs) waits for it, 100-110; z waits for y, 110-410.
    made = trace(tmp_path, ONE, "x,q,4,0,100\ny,q,4,20,10\nz,q,1,30,300")
    found = run(made, "fifo").metrics
    assert found.queue_delay_mean_s == pytest.approx((0 + 80 + 80) / 3)
    assert found.queue_delay_max_s == 80
    assert found.queue_delay_p95_s == 80
    assert found.jct_mean_s == pytest.approx((100 + 90 + 380) / 3)
    assert found.bounded_slowdown_mean == pytest.approx((100 / 100 + 90 / 60 + 380 / 300) / 3)
    assert found.makespan_s == 410
    # After x arrives: 400 + 40 + 300 GPU-s on 4 GPUs from 0: 185 s; z alone ends at 330 at the earliest.
    assert found.makespan_lower_bound_s == 330


def test_goodput_counts_the_time_in_which_more_is_asked_for_than_there_is(tmp_path):
    # 0-10: asked 8 of 4, x uses 3 of 4 (y needs 4 and waits); 10-20: y uses all 4 and asks for all; then nothing.
    made = trace(tmp_path, ONE, "x,q,3,0,10\ny,q,4,0,10\nz,q,1,0,10")
    found = run(made, "fifo").metrics
    assert found.goodput_utilisation == pytest.approx((3 * 10 + 4 * 10) / (4 * 20))


def test_nothing_is_contended_and_there_is_no_goodput(tmp_path):
    found = run(trace(tmp_path, ONE, "x,q,1,0,10"), "fifo").metrics
    assert found.goodput_utilisation is None


def test_lower_bounds():
    # Shortest work first on one server of speed 2: works 2, 4 at 0 -> ends at 1 and 3, mean 2; alone: mean 1.5.
    assert jct_bound([Work(0, 1, 2), Work(0, 2, 2)], 2) == 2
    assert jct_bound([Work(0, 10, 1), Work(0, 20, 1)], 100) == 15
    # The first is stopped at 1 by a shorter one: 0-1, then 1-1.5 for the other, then 1.5-4.5: (4.5 + 0.5) / 2.
    assert jct_bound([Work(0, 4, 2), Work(1, 0.5, 2)], 2) == pytest.approx(2.5)
    assert makespan_bound([Work(0, 10, 4), Work(5, 10, 4)], 4) == 20
    assert makespan_bound([Work(0, 10, 1), Work(100, 1, 1)], 4) == 101
    assert jct_bound([], 4) == 0


def test_an_eviction_throws_work_away_up_to_the_last_checkpoint(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,100\ny,b,2,30,10")
    past = history(
        4,
        lived("x", "a", 4, 0, (0, 30, "evicted"), (40, 140, "finished")),
        lived("y", "b", 2, 30, (30, 40, "finished")),
    )
    assert measure(made, past).wasted_gpu_s == 4 * 30
    assert measure(made, past, stops=Stops(20_000)).wasted_gpu_s == 4 * 10
    assert measure(made, past, stops=Stops(0)).wasted_gpu_s == 0
    found = measure(made, past)
    assert (found.evictions, found.max_evictions_per_job, found.reversed_admissions) == (1, 1, 1)


def test_work_that_is_thrown_away_is_no_goodput(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,100\ny,b,4,0,10")
    past = history(
        4, lived("x", "a", 4, 0, (0, 30, "evicted"), (40, 140, "finished")), lived("y", "b", 4, 0, (30, 40, "finished"))
    )
    # Contended from 0 to 140 (x asks for all 4): useful are y's 40 and x's last 400 GPU-s.
    assert measure(made, past).goodput_utilisation == pytest.approx((40 + 400) / (4 * 140))
    assert measure(made, past, stops=Stops(10_000)).goodput_utilisation == pytest.approx((120 + 40 + 400) / (4 * 140))


def test_a_queue_over_its_max_violates_its_quota(tmp_path):
    cluster = {"nodes": [{"gpus": 8}], "queues": {"t": {"max": 5, "children": {"a": {"max": 4}, "b": {}}}}}
    made = trace(tmp_path, cluster, "x,a,6,0,10\ny,b,1,0,20")
    past = history(8, lived("x", "t/a", 6, 0, (0, 10, "finished")), lived("y", "t/b", 1, 0, (0, 20, "finished")))
    # a uses 6 of 4, t uses 7 of 5, for 10 s.
    assert measure(made, past).quota_violation_gpu_s == 20 + 20


def test_a_guarantee_is_violated_while_others_hold_what_a_waiting_gang_is_owed(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,100\ny,b,1,10,10\nz,b,3,10,10")
    past = history(
        4,
        lived("x", "a", 4, 0, (0, 100, "finished")),
        lived("y", "b", 1, 10, (100, 110, "finished")),
        lived("z", "b", 3, 10, (100, 110, "finished")),
    )
    # b is owed 2, but only y fits into that: 1 GPU for 90 s. x gives it as a whole, for a is above its min before.
    assert measure(made, past).guarantee_violation_gpu_s == 90


def test_a_job_that_straddles_the_min_of_its_queue_keeps_another_from_all_that_it_is_owed(tmp_path):
    """3 of 4 for a queue of 2: one GPU is above and one is free, and both are owed to the other queue."""
    made = trace(tmp_path, TWO, "w,a,3,0,100\nz,b,2,10,10")
    past = history(4, lived("w", "a", 3, 0, (0, 100, "finished")), lived("z", "b", 2, 10, (100, 110, "finished")))
    assert measure(made, past).guarantee_violation_gpu_s == 180


def test_a_gang_whose_victims_leave_is_served_and_others_are_not(tmp_path):
    """4 of 6 free and owed to z: it waits for one victim, and v beside it is not served."""
    cluster = {"nodes": [{"count": 1, "gpus": 8}], "queues": {"a": {"min": 1}, "b": {"min": 7}}}
    made = trace(tmp_path, cluster, "x,a,2,0,100\nw,a,2,0,100\nz,b,6,10,10\nv,b,1,20,10")
    evicted = lived("x", "a", 2, 0, (0, 40, "evicted"), (100, 200, "finished"))
    evicted.runs[0].ordered, evicted.runs[0].claimant = 10_000, "z"
    others = lived("w", "a", 2, 0, (0, 100, "finished")), lived("z", "b", 6, 10, (40, 50, "finished"))
    past = history(8, evicted, *others, lived("v", "b", 1, 20, (40, 50, "finished")))
    assert measure(made, past).guarantee_violation_gpu_s == 20


def test_what_cannot_be_taken_back_violates_no_guarantee(tmp_path):
    header = "job_id,queue,gpus,submit_s,duration_s,preemptible"
    made = trace(tmp_path, TWO, "x,a,4,0,100,no\ny,b,1,10,10,yes", header=header)
    past = history(4, lived("x", "a", 4, 0, (0, 100, "finished")), lived("y", "b", 1, 10, (100, 110, "finished")))
    assert measure(made, past).guarantee_violation_gpu_s == 0


def test_fairness_is_what_queues_got_of_what_they_deserved(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,100\ny,b,4,0,100")
    past = history(4, lived("x", "a", 4, 0, (0, 100, "finished")), lived("y", "b", 4, 0, (100, 200, "finished")))
    # 0-100 each deserves 2: a gets 2 of 2, b 0 of 2; 100-200 b alone deserves 4 and gets it: a 1, b 400/600.
    found = measure(made, past)
    got = (1.0, 400 / 600)
    assert found.fairness_jain == pytest.approx(sum(got) ** 2 / (2 * sum(x * x for x in got)))
    assert found.fairness_min == pytest.approx(400 / 600)


def test_starvation_is_the_longest_time_at_the_head_of_a_queue_that_could_run_it(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,100\nbig,b,3,5,10\ny,b,2,10,10")
    past = history(
        4,
        lived("x", "a", 4, 0, (0, 100, "finished")),
        lived("big", "b", 3, 5, (40, 50, "finished")),
        lived("y", "b", 2, 10, (100, 110, "finished")),
    )
    # big is ahead until 40 but never fits b's min; then y stands first until 100.
    assert measure(made, past).starvation_max_s == 60


def test_quota_that_is_reserved_without_being_admitted_is_held(tmp_path):
    made = trace(tmp_path, TWO, "x,a,2,0,10")
    job = lived("x", "a", 2, 0, (7, 17, "finished"))
    job.runs[0].reserved, job.runs[0].admitted = 2000, 6000
    assert measure(made, history(4, job)).partial_hold_gpu_s == 2 * 4


def test_jobs_that_make_way_for_each_other_are_a_pair(tmp_path):
    made = trace(tmp_path, TWO, "x,a,2,0,10\ny,b,2,0,10\nz,b,2,0,10")
    x, y, z = (lived(name, queue, 2, 0, (0, 10, "finished")) for name, queue in (("x", "a"), ("y", "b"), ("z", "b")))
    x.evicted_by, y.evicted_by, z.evicted_by = ["y", "z", "y"], ["x"], []
    assert measure(made, history(4, x, y, z)).pingpong_pairs == 1


def test_sharing_incentive_compares_with_a_cluster_of_its_own(tmp_path):
    # On 2 GPUs of its own b runs at once; here it waits 50 s behind a, a second one counts as a second at least.
    made = trace(tmp_path, TWO, "x,a,4,0,50\ny,b,2,0,10")
    found = run(made, "fifo").metrics
    assert found.sharing_incentive_max == 50


def test_what_has_not_ended_is_counted_and_not_averaged(tmp_path):
    made = trace(tmp_path, ONE, "x,q,4,0,10\ny,q,4,0,1000\nz,q,1,5000,1")
    found = run(made, "fifo", until=500_000)
    assert (found.jobs.submitted, found.jobs.finished, found.jobs.unfinished) == (2, 1, 1)
    assert found.metrics.jct_mean_s == 10
    assert found.history.end == 500_000


def test_percentiles_lie_between_values():
    assert percentile([1, 2, 3, 4, 5], 50) == 3
    assert percentile([0, 100], 95) == 95
    assert percentile([], 95) is None


def test_deserved_shares_give_the_min_first_and_the_rest_by_weight(tmp_path):
    cluster = {
        "nodes": [{"gpus": 100}],
        "queues": {"a": {"min": 10, "weight": 1}, "b": {"min": 20, "weight": 3}, "c": {"min": 30, "max": 35}},
    }
    shares = GpuShares(trace(tmp_path, cluster, "1,a,1,0,1").cluster.root)
    thousand = dict.fromkeys(("root/a", "root/b", "root/c"), 100_000)
    # 60 by right; 40 more by weights 1:3:30: c stops at its max (5), then 35 as 1:3.
    assert shares.of(100_000, thousand) == pytest.approx({"root/a": 18_750, "root/b": 46_250, "root/c": 35_000})
    asked = {"root/a": 5_000, "root/b": 100_000, "root/c": 0}
    assert shares.of(100_000, asked) == pytest.approx({"root/a": 5_000, "root/b": 95_000, "root/c": 0})
    # With half of the cluster lost the guarantees shrink in proportion.
    assert shares.of(30_000, thousand) == pytest.approx({"root/a": 5_000, "root/b": 10_000, "root/c": 15_000})


def test_pouring_respects_caps_and_weights():
    assert filled(10, [3, 100], [1, 1]) == [3, 7]
    assert filled(10, [100, 100], [1, 4]) == [2, 8]
    assert filled(10, [1, 1], [1, 1]) == [1, 1]
    assert filled(10, [5, 5], [1, 0]) == [5, 5]
