"""A write to a Ray cluster that is refused is tried again five seconds later, not before and not later."""

from __future__ import annotations

from kit.rayscenes import RayScene
from muster.core.actuation.answers import said as answered
from muster.events.base import Cause
from muster.events.effects import EffectFailed
from muster.events.elastic import GateSet
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape


def test_a_refused_write_is_tried_again_after_five_seconds() -> None:
    scene = RayScene()
    decided = scene.demands(RayDemand(joined={"small": 1}, pending=(RayShape({"CPU": RAY_UNIT}),)))
    [gate] = [event for event in decided if isinstance(event, GateSet)]
    stored = next(each for each in reversed(scene.bench.log) if gate in each.commit.events)
    cause = Cause(stored.seq, stored.commit.events.index(gate))
    failed = EffectFailed(cause=cause, ref=gate.ref, attempt=1, reason="refused", problem=answered("no"), action="gate")
    scene.bench.append("actuator", "input", [failed])
    again = [*scene.settle(), *scene.bench.pass_time(4_999)]
    assert not [event for event in again if isinstance(event, GateSet)]
    again = scene.bench.pass_time(1)
    assert [event.ref for event in again if isinstance(event, GateSet)] == [gate.ref]
