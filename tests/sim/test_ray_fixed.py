"""Ray clusters of a fixed size are watched: a lost head and one that never comes are said once, nothing is taken."""

from __future__ import annotations

import pytest

from kit.elastic import ElasticPlay, raycluster, rayjob
from muster.core.autoscaling.bridgestate import heads
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.elastic import GateSet, GrowthRequested
from muster.model import api
from muster.told.wording.raywords import alarm

MINUTE = 12
"""Ticks."""


def fixed(play: ElasticPlay, kind: str = "RayCluster") -> None:
    made = rayjob(replicas=2) if kind == "RayJob" else raycluster(replicas=2)
    spec = made["spec"]["rayClusterSpec"] if kind == "RayJob" else made["spec"]
    spec["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    play.tick(2)
    assert len(play.pods()) == 2


def reasons(play: ElasticPlay) -> list[str]:
    return [event.reason if isinstance(event, AlarmRaised) else "" for event in play.told(AlarmRaised, AlarmCleared)]


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_a_head_that_is_lost_is_said_once_and_until_there_is_one(kind: str) -> None:
    play = ElasticPlay(("ns", "8", "8"))
    fixed(play, kind)
    play.tick(2 * MINUTE)
    assert not play.told(AlarmRaised), "all is well"
    before = play.charged(play.clusters()[0]["metadata"]["name"] if kind == "RayCluster" else "auto")
    play.cluster.driver.down.append(play.cluster.operator)
    head = play.pods("auto", "head")[0]["metadata"]
    play.call("DELETE", api.PODS, head["namespace"], head["name"])
    play.tick(3 * MINUTE)
    assert reasons(play) == ["no_head"]
    assert "granted" not in alarm(play.told(AlarmRaised)[0]), "nothing is taken from it"
    assert play.charged("auto") == before
    play.cluster.driver.down.clear()
    play.tick(MINUTE)
    assert reasons(play) == ["no_head", ""]
    assert not play.told(GateSet, GrowthRequested)
    assert not heads(play.cell.seats["autoscaler_bridge"].state), "nobody reads its head"
    play.clean()


def test_one_that_never_becomes_ready() -> None:
    play = ElasticPlay(("ns", "8", "8"), nodes={"node-0": {"cpu": "1", "memory": "64Gi"}})
    made = raycluster(replicas=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(made).stopped = True
    play.tick(9 * MINUTE)
    assert not play.told(AlarmRaised)
    play.tick(2 * MINUTE)
    assert reasons(play) == ["not_ready"]
    meta = play.raycluster()["metadata"]
    play.scalers.clear()
    play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], meta["name"])
    play.cell.advance(60_000)
    assert reasons(play) == ["not_ready", ""] or not play.cell.seats["autoscaler_bridge"].state.alarms
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert not (bridge.clusters or bridge.watched or bridge.heads)
    assert not any(each.starting for each in bridge.jobs.values())
    play.clean()


def test_suspending_one_is_no_lost_head() -> None:
    play = ElasticPlay(("ns", "8", "8"))
    fixed(play)
    play.edit([{"op": "replace", "path": "/spec/suspend", "value": True}])
    play.edit([{"op": "add", "path": "/metadata/annotations/muster.dev~1hold", "value": "true"}])
    play.tick(3 * MINUTE)
    assert not play.told(AlarmRaised)
    play.clean()
