"""Which workers of a cluster go when it gives some back, and how long they may finish what they do."""

from __future__ import annotations

from typing import Any

import pytest

from kit.rayscenes import RayScene
from muster.core.autoscaling.bridgestate import closely
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GateSet, WorkersChosen
from muster.model.keys import Ref
from muster.model.raydemand import RAY_UNIT, RayDemand, RayIdle, RayShape
from muster.model.victims import PartialVictim

ONE = Ref("RayCluster", "a", "one", "one-uid")
WORKERS = ("first", "second", "third")


def giving(left: int, *demands: RayDemand, **notes: str) -> tuple[RayScene, list[Event]]:
    """Three workers run, are idle and then say this; the cluster is to be left with so many of them."""
    scene = RayScene()
    scene.notes = notes
    asked = scene.demands(RayDemand(joined={"small": 1}, pending=(RayShape({"CPU": RAY_UNIT}, 2),)))
    scene.group["replicas"] = 3
    scene.gated(next(each for each in asked if isinstance(each, GateSet)))
    for name in WORKERS:
        scene.pod(name)
    scene.bench.pass_time(1_000)
    scene.demands(busy(idle=tuple(RayIdle(each, "small", scene.bench.now) for each in WORKERS)))
    for demand in demands[:-1]:
        scene.bench.pass_time(1_000)
        scene.demands(demand)
    scene.bench.pass_time(2_000)
    part = PartialVictim(ONE, 1, "root/a", {"cpu": 1000 * (3 - left)}, {"small": 3 - left}, {"small": left}, 3 - left)
    owed = Ref("RayJob", "b", "owed", "owed-uid")
    order = EvictionOrdered(cause=Cause(1, 0), ref=owed, attempt=1, queue="root/b", request={}, partial=(part,))
    scene.bench.append("quota_accountant", "decision", [order])
    scene.settle()
    assert closely(scene.bench.states["autoscaler_bridge"], ONE)
    return scene, [*scene.demands(demands[-1]), *scene.bench.pass_time(4_000)]


def chosen(decided: list[Event]) -> WorkersChosen:
    [found] = [each for each in decided if isinstance(each, WorkersChosen)]
    return found


def names(decided: list[Event]) -> list[str]:
    return [each.ref.name for each in chosen(decided).workers]


def busy(**more: Any) -> RayDemand:
    return RayDemand(joined={"small": 3}, **more)


def test_what_holds_the_only_copy_of_an_object_stays_while_another_one_can_go() -> None:
    _, decided = giving(1, busy(holding=("second",)))
    assert "second" not in names(decided)
    _, decided = giving(1, busy(holding=("second",), pinned=("first",)))
    assert names(decided) == ["third", "second"], "an actor is lost with all it knows, an object can be made again"
    _, decided = giving(2, busy(holding=("first", "third"), pinned=("first", "second")))
    assert names(decided) == ["third"]


def test_of_busy_workers_that_goes_which_began_last() -> None:
    _, decided = giving(2, busy(idle=(RayIdle("second", "small", 1),)))
    assert names(decided) == ["second"], "an idle one is the first of all"
    for last in WORKERS:
        _, decided = giving(2, busy(idle=(RayIdle(last, "small", 1_001_000),)), busy())
        assert names(decided) == [last]


@pytest.mark.parametrize(("said", "waits"), [("", 15_000), ("2m", 120_000), ("0", 0), ("soon", 15_000)])
def test_how_long_they_may_finish_is_a_setting_of_the_cluster(said: str, waits: int) -> None:
    scene, decided = giving(2, busy(), **({"muster.dev/drain": said} if said else {}))
    found = chosen(decided)
    at = next(each for each in scene.bench.log if found in each.commit.events).commit.at
    assert found.until - at == waits


def test_workers_that_are_empty_go_at_once() -> None:
    scene, decided = giving(1, busy())
    one, two = names(decided)
    assert not [each for each in decided if isinstance(each, GateSet)]
    half = scene.demands(RayDemand(joined={"small": 1}, left=(RayIdle(one, "small", 5),)))
    assert not [each for each in half if isinstance(each, GateSet)]
    scene.bench.pass_time(1_000)
    both = scene.demands(RayDemand(joined={"small": 1}, left=(RayIdle(one, "small", 5), RayIdle(two, "small", 6))))
    [gate] = [each for each in both if isinstance(each, GateSet)]
    assert {each.name for each in gate.workers["small"]} == {one, two}
    assert scene.bench.now < chosen(decided).until - 8_000, "long before the deadline"
