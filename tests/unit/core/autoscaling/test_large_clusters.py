"""A Ray cluster of a thousand workers: each step is one decision, and then there is silence."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from kit.rayscenes import RayScene
from muster.events.base import Event
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape

THOUSAND = 1_000


def kinds(decided: list[Event]) -> list[type[Event]]:
    return [type(event) for event in decided]


def test_a_thousand_workers() -> None:
    scene = RayScene(cores=THOUSAND + 10, most=2 * THOUSAND)
    scene.pod("one-head", "head")
    waits = (RayShape({"CPU": RAY_UNIT}, THOUSAND),)
    decided = scene.demands(RayDemand(pending=waits))
    assert kinds(decided) == [GrowthRequested, GrowthGranted, GateSet]
    gate = decided[-1]
    assert isinstance(gate, GateSet) and gate.most == {"small": THOUSAND}
    scene.gated(gate)
    scene.group["replicas"] = THOUSAND
    scene.seen()
    for number in range(THOUSAND):
        scene.pod(f"worker-{number}")
    scene.bench.pass_time(2_000)
    names = tuple(sorted(f"worker-{number}" for number in range(THOUSAND)))
    quiet = RayDemand(joined={"small": THOUSAND}, pinned=names)
    assert scene.demands(quiet) == []
    before = len(scene.bench.log)
    scene.bench.pass_time(600_000)
    assert len(scene.bench.log) == before


def test_a_worker_more_costs_the_same_in_a_small_and_in_a_large_cluster() -> None:
    """Calls of functions of the bridge, for five pods that come last."""
    assert _calls(20) == _calls(120)


def _calls(workers: int) -> int:
    scene, calls = RayScene(cores=200, most=200), 0
    scene.pod("one-head", "head")
    decided = scene.demands(RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, workers),)))
    gate = decided[-1]
    assert isinstance(gate, GateSet)
    scene.gated(gate)
    scene.group["replicas"] = workers
    scene.seen()
    for number in range(workers - 10):
        scene.pod(f"worker-{number}")

    def count(frame: FrameType, what: str, _: Any) -> None:
        nonlocal calls
        calls += what == "call" and "/core/autoscaling/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        for number in range(5):
            scene.pod(f"last-{number}")
    finally:
        sys.setprofile(None)
    return calls
