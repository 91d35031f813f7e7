"""Workers that KubeRay was asked to delete and does not: they are deleted by uid, no more of them and no others."""

from __future__ import annotations

import json

import pytest

from kit.contention import contended, grown, names, owed
from kit.disorder import Disorder
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster
from kit.rayscaler import RayScaler
from muster.core.autoscaling.giveback import LATE_MS
from muster.events.decisions import EvictionOrdered
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet, WorkersKept, WorkersRemoved
from muster.model import api

LATE = LATE_MS // 5_000
"""Ticks."""


def removed(play: ElasticPlay) -> list[str]:
    """Names of the pods that we have deleted, one for each time."""
    return [event.ref.name for event in play.told(EffectApplied) if event.action == "remove_worker"]


def taken_for(play: ElasticPlay) -> int:
    """How many workers were ordered to go."""
    return sum(sum(part.taken.values()) for order in play.told(EvictionOrdered) for part in order.partial)


def lost(play: ElasticPlay) -> None:
    play.cluster.driver.down.append(play.cluster.operator)


def asked_for(play: ElasticPlay) -> RayScaler:
    """Two of eight workers are asked to go; their operator is lost and their autoscaler stopped."""
    scaler = grown(play, 8)
    lost(play)
    scaler.stopped = True
    owed(play)
    play.tick(6)
    return scaler


def back(play: ElasticPlay) -> None:
    """The operator is there again, and has had time to do what it finds."""
    play.cluster.driver.down.clear()
    play.tick(6)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)


def test_an_operator_that_is_lost_holds_up_no_reclaim() -> None:
    play = contended()
    asked_for(play)
    before, head = names(play.pods()), names(play.pods("auto", "head"))
    [gate] = [event for event in play.told(GateSet) if event.workers]
    chosen = {pod.name for pods in gate.workers.values() for pod in pods}
    assert len(before) == 8, "they are asked to go first"
    play.tick(LATE)
    assert names(play.pods()) == before - chosen
    assert sorted(removed(play)) == sorted(chosen) and len(chosen) == taken_for(play) == 2
    assert head and names(play.pods("auto", "head")) == head
    assert play.cpu() == HEAD_CPU + 6 * CORE, "free once they are gone"
    back(play)
    assert len(removed(play)) == 2 and len(play.told(WorkersRemoved)) == 1
    play.clean()


def test_an_autoscaler_that_takes_the_names_away_saves_no_worker() -> None:
    """Ray 2.60 replaces all of scaleStrategy; an operator that was late sees nothing of what was asked."""
    play = contended()
    asked_for(play)
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/scaleStrategy", "value": {"workersToDelete": []}}])
    play.cluster.driver.down.clear()
    play.tick(3)
    assert len(play.pods("auto")) == 8
    play.tick(LATE + 4)
    assert (len(play.pods("auto")), len(play.pods("owed")), len(removed(play))) == (6, 3, 2)
    play.clean()


def test_one_that_goes_by_itself_meanwhile_is_not_deleted() -> None:
    play = contended()
    asked_for(play)
    play.cluster.driver.down.clear()
    play.tick(LATE + 4)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    assert not removed(play) and not play.told(WorkersRemoved)
    play.clean()


def test_a_pod_that_took_the_name_is_left_alone() -> None:
    """The same name, and another uid: nobody chose that one."""
    play = contended()
    asked_for(play)
    [gate] = [event for event in play.told(GateSet) if event.workers]
    first = gate.workers["small"][0]
    play.cell.advance(LATE_MS - 20_000)
    play.cell.disorder = Disorder(unseen=1.0)
    pod = play.call("GET", api.PODS, first.namespace, first.name)
    play.call("DELETE", api.PODS, first.namespace, first.name)
    play.cluster.step()
    again = {key: value for key, value in pod["metadata"].items() if key in ("name", "labels", "ownerReferences")}
    answer = play.cluster.server.handle(
        "POST", api.PODS.path(first.namespace), body=json.dumps({"metadata": again, "spec": pod["spec"]}).encode()
    )
    play.cell.heal()
    play.tick(LATE)
    if answer.ok:
        assert first.name in names(play.pods()) and first.name not in removed(play)
    play.clean()


def test_the_api_takes_no_deletion_for_a_while() -> None:
    play = contended()
    asked_for(play)
    play.cell.disorder = Disorder(outage=1.0)
    play.tick(LATE + 6)
    assert len(play.pods("auto")) == 8
    play.cell.heal()
    back(play)
    assert len(removed(play)) + len([e for e in play.told(EffectFailed) if e.action == "remove_worker"]) <= 2
    play.clean()


def test_workers_that_end_slowly_have_been_deleted_already() -> None:
    """Their node is lost, or they may take minutes to end: their operator has done what it was asked."""
    play = contended()
    grown(play, 8)
    play.cluster.driver.down.append(play.cluster.kubelet)
    owed(play)
    play.tick(8)
    going = [pod for pod in play.pods("auto") if pod["metadata"].get("deletionTimestamp")]
    assert (len(play.pods("auto")), len(going)) == (8, 2)
    play.tick(3 * LATE)
    assert not play.told(WorkersRemoved) and not removed(play)
    assert play.cpu() == HEAD_CPU + 8 * CORE, "charged until they are gone"
    back(play)
    play.clean()


def unused(play: ElasticPlay) -> RayScaler:
    """A cluster with two workers, one of which was named to an operator that is lost since nothing uses it."""
    scaler = play.create(raycluster())
    for number in range(2):
        scaler.start(f"actor-{number}")
    play.tick(5)
    assert len(play.pods()) == 2
    lost(play)
    scaler.stopped = True
    scaler.end("actor-1")
    while not (gates := [event for event in play.told(GateSet) if event.workers]):
        play.tick(1)
    assert [gate.claimant for gate in gates] == [None]
    return scaler


def test_one_that_is_used_again_meanwhile_stays_as_long_as_nobody_is_owed_it() -> None:
    """Its container has started anew, say, and its head knows of no drain."""
    play = ElasticPlay()
    scaler = unused(play)
    scaler.start("back")
    play.tick(3 * LATE)
    assert not scaler.waiting and len(play.pods()) == 2
    assert not play.told(WorkersRemoved)
    scaler.end("back")
    play.tick(2)
    assert len(play.pods()) == len(removed(play)) == 1, "it has nothing to do any more"
    play.tick(2)
    assert play.cpu() == HEAD_CPU + CORE
    play.clean()


NAMES = "/spec/workerGroupSpecs/0/scaleStrategy"


def test_what_was_to_go_and_is_used_again_is_taken_back_once_nobody_deletes_it() -> None:
    """Ray 2.60 replaces all of scaleStrategy; else the cluster could never grow while it uses that worker."""
    play = ElasticPlay()
    scaler = unused(play)
    scaler.start("back")
    play.tick(1)
    play.edit([{"op": "replace", "path": NAMES, "value": {"workersToDelete": []}}])
    play.cluster.driver.down.clear()
    play.tick(LATE + 4)
    assert len(play.pods()) == play.group()["maxReplicas"] == 2, "what it uses is granted"
    assert [event.reason for event in play.told(WorkersKept)] == ["in_use"]
    assert play.cpu() == HEAD_CPU + 2 * CORE and not play.over()
    scaler.stopped = False
    for name in ("one", "two", "three"):
        scaler.start(name)
    play.tick(6)
    assert not scaler.waiting and len(play.pods()) == play.group()["maxReplicas"] == 5
    for name in list(scaler.actors):
        scaler.end(name)
    play.tick(12)
    assert not play.pods() and play.cpu() == HEAD_CPU
    assert not play.told(WorkersRemoved)
    play.clean()


def test_what_is_still_named_to_its_operator_is_not_taken_back() -> None:
    """It would be deleted at any moment."""
    play = ElasticPlay()
    scaler = unused(play)
    scaler.start("back")
    play.tick(3 * LATE)
    assert not play.told(WorkersKept)
    play.cluster.driver.down.clear()
    play.tick(4)
    assert len(play.pods()) == 1
    scaler.stopped = False
    play.tick(6)
    assert not scaler.waiting and len(play.pods()) == 2
    play.clean()


def test_what_another_queue_is_owed_meanwhile_goes_all_the_same() -> None:
    play = contended()
    scaler = grown(play, 8)
    lost(play)
    scaler.stopped = True
    scaler.end("actor-7")
    while not [event for event in play.told(GateSet) if event.workers]:
        play.tick(1)
    scaler.start("back")
    play.tick(1)
    owed(play)
    play.tick(2)
    play.edit([{"op": "replace", "path": NAMES, "value": {"workersToDelete": []}}])
    play.cluster.driver.down.clear()
    play.tick(2 * LATE + 6)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    play.clean()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_taken_back_a_worker_in_use_stays_and_the_cluster_goes_on_growing(seed: int) -> None:
    play = ElasticPlay(seed=seed)
    scaler = unused(play)
    play.cell.disorder = Disorder(late=0.3, crash=0.05, unseen=0.3, repeat=0.1, lost_answer=0.3, outage=0.2)
    scaler.start("back")
    play.tick(1 + seed)
    play.edit([{"op": "replace", "path": NAMES, "value": {"workersToDelete": []}}])
    play.cluster.driver.down.clear()
    play.tick(LATE + seed)
    play.cell.heal()
    scaler.stopped = False
    for number in range(3):
        scaler.start(f"more-{number}")
    play.tick(LATE + 8)
    assert not scaler.waiting and len(play.pods()) == play.group()["maxReplicas"] == 5
    assert play.cpu() == HEAD_CPU + 5 * CORE and not play.over()
    play.clean()


def test_an_unused_one_goes_in_the_end() -> None:
    play = ElasticPlay()
    unused(play)
    play.tick(LATE + 2)
    assert len(play.pods()) == len(removed(play)) == 1
    play.clean()


def test_none_is_deleted_of_a_cluster_that_has_a_fixed_size_by_then() -> None:
    """Its operator would make them again, and nobody would get anything: it leaves as a whole."""
    play = contended()
    asked_for(play)
    assert [event for event in play.told(GateSet) if event.workers]
    manifest = raycluster("auto", "other", replicas=8)
    manifest["spec"]["enableInTreeAutoscaling"] = False
    play.apply(manifest)
    play.tick(2 * LATE)
    play.cluster.driver.down.clear()
    play.tick(6)
    assert [victim.ref.name for victim in play.told(EvictionOrdered)[-1].victims] == ["auto"]
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (0, 3) and not removed(play)
    play.clean()


def test_those_that_were_named_before_go_first() -> None:
    """A cluster that had a fixed size for a moment is asked anew for what it owes; no others go beside the first."""
    play = contended()
    scaler = grown(play, 8)
    for name in ("actor-6", "actor-7"):
        scaler.end(name)
    play.tick(1)
    lost(play)
    scaler.stopped = True
    owed(play)
    play.tick(6)
    [first] = [event for event in play.told(GateSet) if event.workers]
    play.edit([{"op": "replace", "path": "/spec/enableInTreeAutoscaling", "value": False}])
    play.tick(1)
    for name in ("actor-6", "actor-7"):
        scaler.start(name)
    play.tick(1)
    for name in ("actor-0", "actor-1"):
        scaler.end(name)
    play.edit([{"op": "replace", "path": "/spec/enableInTreeAutoscaling", "value": True}])
    play.tick(5)
    gates = [event.workers for event in play.told(GateSet) if event.workers]
    assert gates == [first.workers, first.workers]
    play.cluster.driver.down.clear()
    play.tick(LATE)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    play.clean()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_lost_no_more_go_than_are_owed(seed: int) -> None:
    disorder = Disorder(late=0.2, crash=0.05, unseen=0.2, repeat=0.1, lost_answer=0.2, outage=0.2)
    play = contended(seed=seed)
    scaler = grown(play, 8)
    play.cell.disorder = disorder
    lost(play)
    scaler.stopped = seed % 2 == 0
    owed(play)
    play.tick(10 + LATE)
    play.cell.heal()
    play.tick(LATE + 6)
    assert len(play.pods("auto")) == 6
    play.cluster.driver.down.clear()
    scaler.stopped = False
    play.tick(10)
    assert len(play.pods("owed")) == 3
    assert len(play.pods("auto")) >= 6, "taken / needed is 1"
    assert len({*removed(play)}) == len(removed(play)) <= 2, "none is deleted twice"
    play.clean()
