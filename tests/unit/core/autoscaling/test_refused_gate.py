"""A write to a Ray cluster that is refused is tried again five seconds later, not before and not later; at once where
another writer was faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from kit.rayscenes import RayScene
from muster.core.actuation.orders import said as answered
from muster.events.base import Cause, Event
from muster.events.effects import EffectFailed, FailureReason
from muster.events.elastic import GateSet
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape


def asked(scene: RayScene) -> GateSet:
    """The write that follows from an actor that waits."""
    decided = scene.demands(RayDemand(joined={"small": 1}, pending=(RayShape({"CPU": RAY_UNIT}),)))
    [gate] = gates(decided)
    return gate


def gates(decided: Iterable[Event]) -> list[GateSet]:
    return [event for event in decided if isinstance(event, GateSet)]


def fails(scene: RayScene, gate: GateSet, reason: FailureReason) -> None:
    stored = next(each for each in reversed(scene.bench.log) if gate in each.commit.events)
    cause = Cause(stored.seq, stored.commit.events.index(gate))
    failed = EffectFailed(cause=cause, ref=gate.ref, attempt=1, reason=reason, problem=answered("no"), action="gate")
    scene.bench.append("actuator", "input", [failed])


def test_a_refused_write_is_tried_again_after_five_seconds() -> None:
    scene = RayScene()
    gate = asked(scene)
    fails(scene, gate, "refused")
    assert not gates([*scene.settle(), *scene.bench.pass_time(4_999)])
    assert [event.ref for event in gates(scene.bench.pass_time(1))] == [gate.ref]


def test_a_write_that_came_too_late_is_decided_again_at_once() -> None:
    """A manifest is applied again and again: between two of its writes there is not much time."""
    scene = RayScene()
    gate = asked(scene)
    scene.group["maxReplicas"] = 9
    scene.seen()
    fails(scene, gate, "spec_changed")
    assert [event.most for event in gates(scene.settle())] == [gate.most]


def test_what_another_writes_ends_the_pause() -> None:
    scene = RayScene()
    gate = asked(scene)
    fails(scene, gate, "spec_changed")
    assert not gates(scene.settle())
    scene.group["maxReplicas"] = 9
    before = scene.bench.seq
    scene.seen()
    later = [event for stored in scene.bench.log[before:] for event in stored.commit.events]
    assert [event.most for event in gates(later)] == [gate.most]
