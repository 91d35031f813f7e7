"""Writes to Ray clusters that scale themselves, and what comes between a decision and its write."""

from __future__ import annotations

from typing import Any

import pytest

from kit.disorder import Disorder
from kit.elastic import HEAD_CPU, ElasticPlay, raycluster, rayjob
from kit.raylaws import within_quota
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GateSet, WorkersChosen
from muster.model import api

CORE = 1_000
AT = "/spec/workerGroupSpecs/0"


def contended(**given: Any) -> ElasticPlay:
    """Ten cores, of which ``ns`` is guaranteed three and ``other`` two."""
    return ElasticPlay(("ns", "3", "100"), ("other", "2", "100"), total="10", **given)


def owed(play: ElasticPlay, cores: int) -> None:
    """Somebody in ``ns`` who is guaranteed so many cores."""
    made = raycluster("owed", "ns", replicas=cores, minReplicas=cores, maxReplicas=cores)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create_raw(made)


def suspend(play: ElasticPlay, value: bool, make: Any) -> None:
    resource = api.RAYJOBS if make is rayjob else api.RAYCLUSTERS
    body, kind = {"spec": {"suspend": value}}, "application/merge-patch+json"
    play.call("PATCH", resource, "ns", "auto", body, kind)


@pytest.mark.parametrize("make", [raycluster, rayjob])
def test_a_write_that_is_under_way_when_its_cluster_stops_holds_up_nothing_later(make: Any) -> None:
    """The API server takes no patch while a grant is to be written; its owner suspends the job, and it runs again."""
    play = ElasticPlay()
    scaler = play.create(make("auto", "ns"))
    scaler.start("early")
    play.cell.disorder = Disorder(outage=1.0)
    play.tick(2)
    assert play.told(GateSet) and play.group()["maxReplicas"] == 0
    suspend(play, True, make)
    play.tick(3)
    play.cell.heal()
    play.tick(6)
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert not bridge.gates, "nobody answers it any more"
    play.scalers.clear()
    [name] = [each["metadata"]["name"] for each in play.clusters()]
    assert play.raycluster(name)["spec"].get("suspend", False) is False, "it was let in again"
    play.scalers[name] = scaler
    play.tick(6)
    assert (play.group()["maxReplicas"], len(play.pods()), scaler.waiting) == (1, 1, [])
    play.clean()


def test_what_is_launched_before_workers_are_given_back_is_not_stopped_on_its_way() -> None:
    """It has three cores granted that it does not use, and uses them while the write that takes them is held up.

    ``maxReplicas`` below what is launched would have Ray stop workers at once, or fail at every tick.
    """
    play = contended()
    scaler = play.create(raycluster("auto", "other", maxReplicas=30))
    scaler.idle_ms = 10**9
    for number in range(9):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert (play.group("auto")["maxReplicas"], len(play.pods("auto"))) == (9, 9)
    scaler.stopped = True
    play.edit([{"op": "replace", "path": f"{AT}/replicas", "value": 6}], "auto")
    for pod in play.pods("auto")[:3]:
        play.call("DELETE", api.PODS, "other", pod["metadata"]["name"])
    play.cell.advance(2_000)
    assert len(play.pods("auto")) == 6
    owed(play, 3)
    while not play.told(EvictionOrdered):
        play.cell.advance(500)
    play.cell.disorder = Disorder(outage=1.0)
    while not [gate for gate in play.told(GateSet) if gate.claimant is not None]:
        play.cell.advance(500)
    play.edit([{"op": "replace", "path": f"{AT}/replicas", "value": 9}], "auto")
    play.cell.advance(3_000)
    assert len(play.pods("auto")) == 9
    before = {pod["metadata"]["uid"] for pod in play.pods("auto")}
    play.cell.heal()
    scaler.stopped = False
    play.tick(12)
    gone = before - {pod["metadata"]["uid"] for pod in play.pods("auto")}
    chosen = {worker.ref.uid for each in play.told(WorkersChosen) for worker in each.workers}
    assert gone <= chosen, "all that went were chosen, and could finish what they did"
    assert (len(play.pods("owed")), len(play.pods("auto"))) == (3, 6)
    assert play.cpu("auto") == HEAD_CPU + 6 * CORE
    within_quota(play.cell.log)
    play.clean()


def test_what_was_asked_for_and_never_came_comes_no_more_once_it_is_given_back() -> None:
    """KubeRay is away, so that no worker comes; three of them are given back, and somebody raises ``maxReplicas``."""
    play = contended()
    scaler = play.create(raycluster("auto", "other", maxReplicas=30))
    play.cluster.driver.down.append(play.cluster.operator)
    for number in range(9):
        scaler.start(f"actor-{number}")
    play.tick(3)
    assert (play.group("auto")["replicas"], len(play.pods("auto"))) == (9, 0)
    scaler.stopped = True
    owed(play, 3)
    play.tick(5)
    group = play.group("auto")
    assert group["maxReplicas"] == group["replicas"] == 6
    play.cluster.driver.down.clear()
    play.cell.advance(3_000)
    play.edit([{"op": "replace", "path": f"{AT}/maxReplicas", "value": 30}], "auto")
    play.cell.advance(3_000)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    assert not play.over("auto")
    within_quota(play.cell.log)
    play.clean()
