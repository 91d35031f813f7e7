"""An idle worker that its head drains is listed as idle no more, and is not taken for a busy one."""

from __future__ import annotations

from kit.rayscenes import alarm
from muster.events.elastic import GateSet, WorkersChosen, WorkersKept
from muster.model.raydemand import RayDemand, RayIdle


def test_an_idle_worker_that_drains_is_named_to_its_operator_at_once() -> None:
    scene, _ = alarm("not_shrinking")
    assert scene.bench.happened(WorkersChosen)
    decided = scene.demands(RayDemand(left=(RayIdle("one-worker", "small", scene.bench.now),)))
    [gate] = [event for event in decided if isinstance(event, GateSet)]
    assert {pod.name for pods in gate.workers.values() for pod in pods} == {"one-worker"}
    assert not scene.bench.happened(WorkersKept)
