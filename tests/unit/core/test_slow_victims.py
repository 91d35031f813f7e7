"""Victims that do not leave: nobody waits for them for ever, others are asked for instead, and once they go they go."""

from __future__ import annotations

from kit import facts
from kit.scenes import Scene
from muster.core.audit import audit
from muster.events.base import Cause
from muster.events.claims import ClaimEnded, VictimStays
from muster.events.decisions import EvictionOrdered, QuotaReserved
from muster.events.effects import EffectApplied
from muster.runtime.replay import replay

HOUR_S = 3_600


def borrowed(jobs: int = 4, cpu: int = 2) -> Scene:
    """Eight cores, all of them borrowed by jobs of b that run; a/owed claims four of them."""
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0), age_limit="0")
    scene.lines("synced")
    for index in range(jobs):
        scene.lines(f"job b/x{index} cpu={cpu}")
        scene.runs(f"b/x{index}")
    scene.lines("job a/owed cpu=4")
    return scene


def happened(scene: Scene, kind: type) -> list[object]:
    return [event for stored in scene.bench.log for event in stored.commit.events if isinstance(event, kind)]


def orders(scene: Scene) -> list[list[str]]:
    return [[victim.ref.name for victim in each.victims] for each in happened(scene, EvictionOrdered)]


def told(scene: Scene, name: str) -> None:
    """The actuator has suspended it, and its controller never gets it done."""
    order = next(
        stored.seq for stored in scene.bench.log if any(isinstance(e, EvictionOrdered) for e in stored.commit.events)
    )
    job, rv = scene.jobs[name], facts.next_rv()
    effect = EffectApplied(cause=Cause(order, 0), ref=job.ref, attempt=1, rv=rv, action="suspend")
    scene.bench.append("actuator", "input", [effect])
    scene.change(name, rv=rv, suspended=True, phase="suspending", settled=False, generation=job.generation + 1)


def sound(scene: Scene) -> None:
    assert audit(scene.bench.log).broken == {}
    assert not replay(scene.bench.log, silences=False).divergences


def test_a_victim_that_never_stops_is_replaced_after_an_hour_and_what_was_freed_stays_held() -> None:
    scene = borrowed()
    assert orders(scene) == [["x0", "x1"]]
    told(scene, "b/x0")
    scene.suspended("b/x1")
    scene.lines(f"time +{HOUR_S - 60}s")
    assert orders(scene) == [["x0", "x1"]]
    scene.lines("time +120s")
    assert [(each.ref.name, each.reason) for each in happened(scene, VictimStays)] == [("x0", "overdue")]
    assert orders(scene)[1:] == [["x2"]], "one more, and not the one that does not stop"
    scene.lines("job b/greedy cpu=2")
    scene.suspended("b/x2")
    assert [each.ref.name for each in happened(scene, QuotaReserved)][-1] == "owed"
    scene.lines("settles b/x0")
    assert [each.ref.name for each in happened(scene, QuotaReserved)][-1] == "x0", "it leaves, and is first in line"
    assert not happened(scene, ClaimEnded)
    sound(scene)


def test_nobody_else_is_asked_for_while_the_actuator_is_down() -> None:
    scene = borrowed()
    scene.lines(f"time +{9 * HOUR_S}s")
    assert orders(scene) == [["x0", "x1"]]
    assert not happened(scene, VictimStays)
    told(scene, "b/x0")
    told(scene, "b/x1")
    scene.lines("time +60s", "settles b/x0", "settles b/x1")
    assert [each.ref.name for each in happened(scene, QuotaReserved)][-1] == "owed"
    sound(scene)


def test_a_victim_that_somebody_starts_again_is_waited_for_no_longer() -> None:
    """Its manifest is applied again, and it says that it runs: another job gives way, and it is left alone for now."""
    scene = borrowed()
    told(scene, "b/x0")
    scene.suspended("b/x1")
    scene.change("b/x0", suspended=False, phase="running", generation=9)
    assert [(each.ref.name, each.reason) for each in happened(scene, VictimStays)] == [("x0", "runs_again")]
    assert orders(scene)[1:] == [["x2"]]
    scene.suspended("b/x2")
    assert [each.ref.name for each in happened(scene, QuotaReserved)][-1] == "owed"
    scene.lines("time +700s", "job a/more cpu=2")
    assert orders(scene)[2:] == [["x0"]], "after ten minutes it may be asked again"
    sound(scene)
