"""Ray clusters without an autoscaler whose ``replicas`` Muster writes, by what waits there: drive-replicas."""

from __future__ import annotations

from typing import Any

from kit.elastic import CORE, ElasticPlay, raycluster
from kit.rayscaler import RayScaler
from muster.events.alarms import AlarmRaised
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.model import api


def driven(name: str = "auto", namespace: str = "ns", **group: Any) -> dict[str, Any]:
    made = raycluster(name, namespace, **group)
    made["metadata"]["annotations"] = {"muster.dev/drive-replicas": "true"}
    made["spec"] |= {"enableInTreeAutoscaling": False, "autoscalerOptions": {"idleTimeoutSeconds": 10}}
    return made


def start(play: ElasticPlay, made: dict[str, Any]) -> RayScaler:
    """The head places what it can; nobody scales the cluster."""
    play.create_raw(made)
    play.cell.advance(3_000)
    scaler = play.scalers[made["metadata"]["name"]] = RayScaler()
    scaler.stopped = True
    play.tick(2)
    return scaler


def test_it_grows_as_far_as_it_is_granted() -> None:
    play = ElasticPlay(("ns", "3", "3"))
    scaler = start(play, driven())
    assert (play.sizes(), len(play.pods("auto", "head"))) == ((0, 0, 0), 1)
    for number in range(5):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert (play.sizes(), len(scaler.waiting), play.cpu()) == ((3, 3, 3), 2, 3 * CORE)
    tree = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    tree["spec"]["root"]["children"][0]["max"]["cpu"] = "20"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", tree)
    play.tick(3)
    assert (play.sizes(), scaler.waiting) == ((5, 5, 5), [])
    assert not play.told(AlarmRaised)
    play.clean()


def test_idle_workers_go_by_name_and_busy_ones_stay() -> None:
    play = ElasticPlay()
    scaler = start(play, driven())
    for number in range(4):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (4, 4, 4)
    kept = {scaler.actors[name].on for name in ("actor-1", "actor-3")}
    scaler.end("actor-0")
    scaler.end("actor-2")
    play.tick(12)
    assert {pod["metadata"]["name"] for pod in play.pods()} == kept
    assert (play.sizes(), play.cpu()) == ((2, 2, 2), 2 * CORE)
    scaler.end("actor-1")
    scaler.end("actor-3")
    play.tick(12)
    assert (play.sizes(), play.cpu()) == ((0, 0, 0), 0)
    assert sum(sum(event.removed.values()) for event in play.told(GrowthWithdrawn)) == 4
    scaler.start("actor-4")
    play.tick(3)
    assert play.sizes() == (1, 1, 1)
    assert not play.told(AlarmRaised)
    before = len(play.cell.log)
    play.tick(10)
    assert len(play.cell.log) - before <= 1, "nothing changes any more"
    play.clean()


def test_never_below_its_minimum_and_hosts_go_together() -> None:
    play = ElasticPlay()
    scaler = start(play, driven(minReplicas=1, numOfHosts=2))
    assert play.sizes() == (0, 1, 2)
    for number in range(4):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert len(play.pods()) == 4
    for number in range(4):
        scaler.end(f"actor-{number}")
    play.tick(12)
    assert len(play.pods()) == 2
    assert play.cpu() == 2 * CORE
    play.clean()


def test_what_another_queue_is_owed_is_given_back() -> None:
    play = ElasticPlay(("ns", "2", "6"), ("other", "4", "6"), total="6")
    scaler = start(play, driven())
    for number in range(6):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (6, 6, 6)
    play.other_claims(2)
    play.tick(12)
    assert len(play.pods("claims")) == 2
    assert play.sizes() == (4, 4, 4)
    assert play.cpu("auto") + play.cpu("claims") == 6 * CORE
    play.clean()


def test_without_the_annotation_it_is_left_alone() -> None:
    play = ElasticPlay()
    made = driven(replicas=1)
    del made["metadata"]["annotations"]
    scaler = start(play, made)
    scaler.start("actor-0")
    scaler.start("actor-1")
    play.tick(20)
    assert play.sizes() == (1, 10, 1)
    assert not play.told(GrowthGranted)
    play.clean()
