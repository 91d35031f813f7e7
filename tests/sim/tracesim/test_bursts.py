"""Bursts of work that is owed, where evicted jobs take long to leave: when all of it starts, and what that costs."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.traces import run, starts, trace
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered
from muster.events.envelope import Stored
from muster.events.system import PlacementMode
from muster.tracesim.model import Trace
from muster.tracesim.runner import Options, simulate
from muster.tracesim.stops import Stops

BEGIN_S = 600
HOUR_MS = 3_600_000
OWNED = {"min": 32, "max": 64}
TWO = {"nodes": [{"count": 8, "gpus": 8}], "queues": {"a": {"min": 0, "max": 64}, "b": OWNED, "c": OWNED}}
SHARED = {"nodes": [{"count": 8, "gpus": 8}], "queues": {"a": {"min": 0, "max": 64}, "b": {"min": 64, "max": 64}}}


def lent_to_wide_jobs(
    folder: Path, burst: list[str], placement: PlacementMode = "off", cluster: dict[str, object] = SHARED
) -> Trace:
    """Queue ``a`` has borrowed all of ``b`` for jobs of eight GPUs when ``b`` wants it back."""
    wide = [f"wide-{number},a,8,{number},100000" for number in range(8)]
    made = trace(folder, cluster, "\n".join([*wide, *burst]))
    return Trace(replace(made.cluster, placement=placement), made.jobs)


@pytest.mark.parametrize("placement", ["off", "pack"])
@pytest.mark.parametrize("stopping_s", [30, 300])
def test_all_that_fit_into_what_is_leaving_start_with_it(tmp_path, stopping_s, placement):
    burst = [f"one-{number:02},b,1,{BEGIN_S},3600" for number in range(64)]
    found = run(lent_to_wide_jobs(tmp_path, burst, placement), stops=Stops(stopping=stopping_s * 1000))
    started = {job: at for job, at in starts(found.history).items() if job.startswith("one")}
    assert len(started) == 64
    assert max(started.values()) <= BEGIN_S + 1.2 * stopping_s
    assert found.metrics.evictions == 8


@pytest.mark.parametrize("owners", ["b", "bc"])
@pytest.mark.parametrize("placement", ["off", "pack"])
def test_no_more_leave_than_the_burst_needs(tmp_path, placement, owners):
    """With two owners the place of one job leaves for a job of the other, and no place of a job is another's."""
    burst = [f"one-{number:02},{owners[number % len(owners)]},1,{BEGIN_S + number},3600" for number in range(20)]
    made = lent_to_wide_jobs(tmp_path, burst, placement, SHARED if owners == "b" else TWO)
    found = run(made, stops=Stops(stopping=300_000))
    assert found.metrics.evictions == 3
    waited = {job.id: job.first_start - job.submit for job in found.history.jobs.values() if job.queue != "root/a"}
    assert max(waited.values()) <= 1.2 * 300_000


def test_what_is_leaving_is_for_those_who_asked_first(tmp_path):
    burst = [f"one-{number},b,1,{BEGIN_S},3600" for number in range(4)] + [f"half,b,4,{BEGIN_S + 1},3600"]
    late = [f"late-{number},b,4,{BEGIN_S + 2},3600" for number in range(2)]
    found = run(lent_to_wide_jobs(tmp_path, [*burst, *late]), stops=Stops(stopping=300_000))
    assert found.metrics.evictions == 2
    assert max(at for job, at in starts(found.history).items() if job.startswith(("one", "half"))) == BEGIN_S + 300
    assert {at for job, at in starts(found.history).items() if job.startswith("late")} == {BEGIN_S + 302}


def departments(folder: Path, seed: int, placement: PlacementMode) -> Trace:
    """Of 64 GPUs each of two departments is guaranteed half, its two teams 4 each: jobs of hours use all of it for one
    department when 360 small jobs of the other come within half an hour.
    """
    rng, rows = random.Random(seed), list[tuple[int, str]]()
    for index in range(80):
        at, gpus = rng.randint(0, 500), rng.choice((1, 1, 2, 4, 8))
        rows.append((at, f"long{index:03},y{rng.randint(1, 2)},{gpus},{at},{rng.randint(3600, 8 * 3600)}"))
    for index in range(360):
        at, gpus = 1200 + rng.randint(0, 1800), rng.choice((1, 1, 1, 2))
        rows.append((at, f"burst{index:03},x{rng.randint(1, 2)},{gpus},{at},{rng.randint(60, 900)}"))
    queues = {
        each: {"min": 32, "max": 64, "children": {f"{each}{team}": {"min": 4, "max": 64} for team in (1, 2)}}
        for each in "xy"
    }
    cluster = {"nodes": [{"count": 8, "gpus": 8}], "queues": queues}
    made = trace(folder, cluster, "\n".join(row for _, row in sorted(rows)))
    return Trace(replace(made.cluster, placement=placement), made.jobs)


@pytest.mark.parametrize(("seed", "placement"), [(8, "off"), (3, "off"), (1, "pack"), (10, "pack")])
def test_a_burst_that_a_department_is_guaranteed_and_its_teams_are_not(tmp_path, seed, placement):
    """No job is evicted three times in an hour, no more leave than claim it, and nothing owed is unserved."""
    claimants, evicted = set[str](), defaultdict[str, list[int]](list)

    def hears(stored: Stored) -> None:
        for event in stored.commit.events:
            if isinstance(event, EvictionOrdered):
                for victim in event.gives:
                    evicted[victim.ref.name].append(stored.commit.at)
            if isinstance(event, EvictionOrdered | ClaimOpened) and event.kind == "guarantee":
                claimants.add(event.ref.name)

    found = simulate(
        departments(tmp_path, seed, placement), "muster", Options(stops=Stops(stopping=300_000)), hears=hears
    )
    assert evicted
    assert all(third - first > HOUR_MS for at in evicted.values() for first, third in zip(at, at[2:], strict=False))
    assert sum(map(len, evicted.values())) <= 1.1 * len(claimants)
    assert found.metrics.guarantee_violation_gpu_s == 0
    assert found.jobs.finished == 440


def test_a_job_that_never_ends_does_not_keep_a_simulation_going_for_ever(tmp_path):
    """Claims for age come and go for ever where two others wait for more than it leaves."""
    shared = {"nodes": [{"count": 1, "gpus": 8}], "queues": {"a": {"min": 8, "max": 8}}}
    made = trace(tmp_path, shared, "\n".join(["long,a,5,0,60", "wide,a,8,1,60", "less,a,6,2,60"]))
    endless = Trace(made.cluster, (replace(made.jobs[0], duration=None), *made.jobs[1:]))
    found = run(endless)
    assert set(starts(found.history)) == {"long"}
