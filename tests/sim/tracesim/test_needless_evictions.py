"""Days on which an attack from outside saw jobs evicted for room that was there, or that nobody could ever take."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from kit.traces import run, starts, trace
from muster.tracesim.faults import Fault, FaultSchedule
from muster.tracesim.model import Trace
from muster.tracesim.stops import Stops

HEADER = "job_id,queue,gpus,submit_s,duration_s,priority"


def test_no_plan_of_a_borrower_takes_free_room_from_an_owed_job_that_is_being_answered(tmp_path: Path) -> None:
    """As `waits` ends, `owed` asks for one of the two free GPUs, and `gang` could have `low` evicted for three GPUs."""
    queues = {"a": {"min": 2, "preempt_lower_priority": True}, "b": {"min": 2}}
    jobs = ["gang,a,3,0,300,1", "owed,b,1,0,20000,0", "high,a,1,0,20000,10", "waits,b,2,0,5642,0", "low,a,1,0,20000,0"]
    made = trace(tmp_path, {"nodes": [{"count": 2, "gpus": 2}], "queues": queues}, "\n".join(jobs), HEADER)
    found = run(Trace(replace(made.cluster, placement="pack"), made.jobs))
    assert starts(found.history)["owed"] <= 5642
    assert sum(job.evictions for job in found.history.jobs.values()) <= 1  # At the beginning.


def test_a_job_that_never_fits_takes_no_room_of_the_jobs_behind_it(tmp_path: Path) -> None:
    """`never` asks for more than the max of its queue. `owed` behind it starts before the borrower `some`."""
    inner = {"min": 4, "children": {"b": {"min": 1, "max": 7}, "c": {"min": 0}, "d": {"min": 0, "max": 2}}}
    queues = {"a": {"min": 2, "max": 2}, "x": inner}
    never = ["never,a,4,0,20000,0", "first,a,1,0,1,0", "owed,a,1,0,1800,0"]
    others = ["some,d,1,0,1,0", "wide,c,4,0,1800,0", "beside,c,1,0,757,0", "own,b,1,0,1,0"]
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": queues}
    made = trace(tmp_path, cluster, "\n".join([*never, *others]), HEADER)
    found = run(Trace(replace(made.cluster, placement="pack"), made.jobs))
    assert sum(job.evictions for job in found.history.jobs.values()) == 0
    assert starts(found.history)["owed"] <= 1


def test_a_victim_whose_node_is_lost_as_it_stops_does_not_run_to_its_end(tmp_path: Path) -> None:
    queues = {"x": {"min": 0, "children": {"a": {"min": 0}}}, "b": {"min": 2}}
    cluster = {"nodes": [{"count": 3, "gpus": 2}], "queues": queues}
    made = trace(tmp_path, cluster, "victim,a,5,0,1800,0\nowed,b,2,10,3600,0", HEADER)
    lost = Fault("node_loss", 31_000, 4_031_000, ("node-0000",))
    assert starts(run(made, faults=FaultSchedule((lost,)), stops=Stops(stopping=30_000)).history)["owed"] <= 10 + 60
