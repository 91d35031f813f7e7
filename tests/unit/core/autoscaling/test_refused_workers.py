"""Workers that the API server refuses: their grant is released after a minute, and asked for again in time."""

from __future__ import annotations

from typing import Any

from test_nodeless import gone, happened, scene, since, sizes, waits

from kit.rayscenes import RayScene
from muster.core.autoscaling.gate import REFUSED_MS
from muster.events.base import Cause, Event
from muster.events.decisions import PodsAwaited, SuspensionOrdered
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested, GrowthWithdrawn
from muster.model.problem import problem

STEP_MS = 5_000


def passes(found: RayScene, seconds: int, *, refused: bool = True) -> list[Event]:
    """Time passes; each look for a refusal finds one, or none."""
    words, began = problem("", "pods_refused", said="exceeded quota") if refused else None, len(found.bench.log)
    for _ in range(seconds * 1000 // STEP_MS):
        before = len(found.bench.log)
        found.bench.pass_time(STEP_MS)
        for stored in found.bench.log[before:]:
            for item, event in enumerate(stored.commit.events):
                if isinstance(event, PodsAwaited):
                    effect: dict[str, Any] = {"cause": Cause(stored.seq, item), "action": "read_refusal"}
                    answer = EffectApplied(ref=event.ref, attempt=event.attempt, problem=words, **effect)
                    found.bench.append("actuator", "input", [answer])
        found.settle()
    return since(found, began)


def asked() -> RayScene:
    """Two workers are granted and asked for, and none is made."""
    found = scene("g")
    found.pod("head", "head")
    decided = found.demands(waits(2))
    sizes(found, g=2)
    found.gated(happened(decided, GateSet)[0])
    return found


def waited(found: RayScene, kind: type[Event]) -> tuple[int, Any]:
    """Seconds until such an event, and the event."""
    for steps in range(1, 60):
        events = happened(passes(found, STEP_MS // 1000), kind)
        if events:
            return steps * STEP_MS // 1000, events[0]
    raise AssertionError(f"no {kind.__name__}")


def test_the_grant_of_refused_workers_is_released_and_asked_for_again() -> None:
    found = asked()
    for pause_s in (60, 120):
        seconds, gate = waited(found, GateSet)
        assert REFUSED_MS // 1000 <= seconds <= REFUSED_MS // 1000 + 30, "a refusal may pass"
        assert (gate.most, gate.granted, gate.replicas) == ({"g": 0}, {"g": 0}, {"g": 0})
        assert [event.removed for event in happened(gone(found, gate), GrowthWithdrawn)] == [{"g": 2}]
        seconds, grown = waited(found, GrowthGranted)
        assert pause_s - 5 <= seconds <= pause_s + 5 and grown.added == {"g": 2}
        sizes(found, g=2)
        found.gated(happened(since(found, 0), GateSet)[-1])
    assert not happened(since(found, 0), SuspensionOrdered), "the head works on"
    found.bench.sound()


def test_workers_that_come_at_last_stay() -> None:
    found = asked()
    passes(found, 40)
    for number in range(2):
        found.pod(f"g-{number}", group="g")
    assert not happened(passes(found, 300), GateSet)


def test_slow_workers_that_nobody_refuses_keep_their_grant() -> None:
    found = asked()
    events = passes(found, 900, refused=False)
    assert not happened(events, GateSet) and not happened(events, GrowthRequested)
