"""Bursts of work that is owed, where evicted jobs take long to leave: when all of it starts, and what that costs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.traces import run, starts, trace
from muster.events.system import PlacementMode
from muster.tracesim.model import Trace
from muster.tracesim.stops import Stops

BEGIN_S = 600
SHARED = {"nodes": [{"count": 8, "gpus": 8}], "queues": {"a": {"min": 0, "max": 64}, "b": {"min": 64, "max": 64}}}


def lent_to_wide_jobs(folder: Path, burst: list[str], placement: PlacementMode = "off") -> Trace:
    """Queue ``a`` has borrowed all of ``b`` for jobs of eight GPUs when ``b`` wants it back."""
    wide = [f"wide-{number},a,8,{number},100000" for number in range(8)]
    made = trace(folder, SHARED, "\n".join([*wide, *burst]))
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


@pytest.mark.parametrize("placement", ["off", "pack"])
def test_no_more_leave_than_the_burst_needs(tmp_path, placement):
    burst = [f"one-{number:02},b,1,{BEGIN_S + number},3600" for number in range(20)]
    found = run(lent_to_wide_jobs(tmp_path, burst, placement), stops=Stops(stopping=300_000))
    assert found.metrics.evictions == 3
    waited = {job.id: job.first_start - job.submit for job in found.history.jobs.values() if job.queue == "root/b"}
    assert max(waited.values()) <= 1.2 * 300_000


def test_what_is_leaving_is_for_those_who_asked_first(tmp_path):
    burst = [f"one-{number},b,1,{BEGIN_S},3600" for number in range(4)] + [f"half,b,4,{BEGIN_S + 1},3600"]
    late = [f"late-{number},b,4,{BEGIN_S + 2},3600" for number in range(2)]
    found = run(lent_to_wide_jobs(tmp_path, [*burst, *late]), stops=Stops(stopping=300_000))
    assert found.metrics.evictions == 2
    assert max(at for job, at in starts(found.history).items() if job.startswith(("one", "half"))) == BEGIN_S + 300
    assert {at for job, at in starts(found.history).items() if job.startswith("late")} == {BEGIN_S + 302}
