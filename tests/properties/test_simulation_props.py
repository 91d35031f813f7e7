"""What must hold of every schedule of every policy, on traces drawn at random."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.traces import run
from muster.tracesim.model import GPU, NodeGroup, Trace, TraceCluster, TraceJob, TraceQueue
from muster.tracesim.policies import POLICIES
from muster.tracesim.runner import ALL
from muster.tracesim.stops import Stops
from muster.tracesim.sweep import Moment, Sweep

GPUS = 8


def cluster(mins: tuple[int, ...], limits: tuple[int | None, ...]) -> TraceCluster:
    capacity = {GPU: GPUS * 1000}
    queues = tuple(
        TraceQueue(
            name=f"q{index}",
            path=f"root/q{index}",
            min={GPU: low * 1000},
            max={} if limit is None else {GPU: max(limit, low) * 1000},
        )
        for index, (low, limit) in enumerate(zip(mins, limits, strict=True))
    )
    return TraceCluster(
        (NodeGroup(2, {GPU: 4000}),), TraceQueue(name="root", path="root", min=capacity, max=capacity, children=queues)
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    mins = draw(st.sampled_from([(8,), (4, 4), (2, 6), (0, 3), (2, 2, 4)]))
    limits = tuple(draw(st.sampled_from([None, None, 8, 5])) for _ in mins)
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(mins) - 1),
                st.sampled_from([1, 1, 2, 4, 5, 8]),
                st.integers(0, 60),
                st.integers(0, 40),
                st.sampled_from([0, 0, 1]),
                st.booleans(),
            ),
            min_size=1,
            max_size=25,
        )
    )
    jobs = [
        TraceJob(
            id=f"j{index}",
            queue=f"root/q{queue}",
            request={GPU: gpus * 1000},
            submit=submit * 1000,
            duration=duration * 1000,
            priority=priority,
            preemptible=preemptible,
        )
        for index, (queue, gpus, submit, duration, priority, preemptible) in enumerate(rows)
    ]
    return Trace(cluster(mins, limits), tuple(sorted(jobs, key=lambda job: job.submit)))


@settings(max_examples=60)
@given(traces(), st.sampled_from(ALL), st.sampled_from([None, 0, 7000]))
def test_every_schedule_is_a_schedule(made, policy, checkpoint):
    found = run(made, policy, stops=Stops(checkpoint))
    kept = found.stops
    for job in made.jobs:
        past = found.history.jobs[job.id]
        assert past.submit == job.submit
        last = job.submit
        done = 0
        for span in (each for each in past.runs if each.start >= 0):
            assert last <= span.start <= span.end
            last = span.end
            ran = span.end - span.start
            if span.outcome == "finished":
                assert ran + done == job.duration
                assert past.end == span.end
            else:
                assert span.outcome == "evicted"
                assert job.preemptible
                done += 0 if kept is None else ran if kept == 0 else ran // kept * kept
    capacity = []

    def watch(moment: Moment) -> None:
        capacity.append(moment.capacity)
        assert sum(moment.used.values()) <= moment.capacity
        assert all(moment.used[path] <= moment.asked[path] for path in moment.used)
        assert sum(moment.deserved.values()) <= moment.capacity + 1e-6

    Sweep(made, found.history, kept).run(watch)
    assert set(capacity) <= {GPUS * 1000}
    metrics = found.metrics
    if metrics.makespan_s is not None:
        assert metrics.makespan_s >= metrics.makespan_lower_bound_s - 1e-6
        assert metrics.jct_mean_s >= metrics.jct_lower_bound_s - 1e-6
        assert metrics.queue_delay_mean_s >= 0
        assert metrics.bounded_slowdown_mean >= 1
    assert metrics.goodput_utilisation is None or 0 <= metrics.goodput_utilisation <= 1 + 1e-9
    assert metrics.partial_hold_gpu_s == 0
    if policy not in ("fifo", "best-effort-fifo", "sjf", "srtf"):
        assert metrics.quota_violation_gpu_s == 0


@settings(max_examples=40)
@given(traces(), st.sampled_from(ALL))
def test_whoever_can_run_at_all_ends(made, policy):
    found = run(made, policy)
    for job in made.jobs:
        queue = made.cluster.queues[job.queue]
        limit = {"static-quota": queue.min[GPU]}.get(policy, queue.max.get(GPU, GPUS * 1000))
        if policy in ("best-effort-fifo", "sjf", "srtf"):
            limit = GPUS * 1000
        if policy == "fifo" or not job.preemptible:
            continue
        assert (found.history.jobs[job.id].end >= 0) == (job.gpus <= limit)


@settings(max_examples=60)
@given(traces())
def test_where_every_job_takes_one_gpu_least_work_left_beats_arrival(made):
    jobs = tuple(
        TraceJob(id=job.id, queue=job.queue, request={GPU: 1000}, submit=job.submit, duration=job.duration)
        for job in made.jobs
    )
    one = NodeGroup(1, {GPU: 1000})
    capacity = {GPU: 1000}
    leaf = TraceQueue(name="q", path="root/q", min=capacity)
    alone = TraceCluster((one,), TraceQueue(name="root", path="root", min=capacity, max=capacity, children=(leaf,)))
    jobs = tuple(
        TraceJob(id=j.id, queue="root/q", request=j.request, submit=j.submit, duration=j.duration) for j in jobs
    )
    single = Trace(alone, jobs)
    best = run(single, "srtf").metrics.jct_mean_s
    for policy in POLICIES:
        assert best <= run(single, policy).metrics.jct_mean_s + 1e-6
