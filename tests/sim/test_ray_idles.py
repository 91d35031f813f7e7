"""A Ray cluster that nothing uses is stopped or deleted by its own autoscaler: its quota is free, nobody fights it."""

from __future__ import annotations

from typing import Any

import pytest

from kit.elastic import HEAD_CPU, ElasticPlay, raycluster, rayjob
from kit.words import in_words
from muster.events.decisions import QuotaReleased, QuotaReserved, WorkloadQueued, WorkloadRefused
from muster.events.effects import EffectApplied
from muster.model import api

CORE = 1_000


def started(*, policy: str = "Suspend", **group: Any) -> ElasticPlay:
    """One that has grown to two workers, and stops itself when nothing has run for 30 s."""
    play = ElasticPlay(("ns", "3500m", "3500m"))
    made = raycluster(**group)
    made["spec"]["idleTerminationOptions"] = {"timeoutSeconds": 30, "policy": policy}
    scaler = play.create(made)
    scaler.start("actor-0")
    scaler.start("actor-1")
    play.tick(4)
    assert len(play.pods()) == 2
    return play


def stop_using(play: ElasticPlay) -> None:
    scaler = play.scalers["auto"]
    for name in list(scaler.actors):
        scaler.end(name)


def test_what_its_autoscaler_stops_is_free_and_stays_stopped() -> None:
    play = started()
    play.create_raw(raycluster("later", replicas=3, minReplicas=3))
    play.tick(2)
    assert not play.pods("later", "head"), "the quota is in use"
    stop_using(play)
    play.tick(12)
    spec = play.raycluster()["spec"]
    assert (spec["idleSuspend"], spec["suspend"]) == (True, False), "what its autoscaler wrote, and nothing of ours"
    assert not play.pods() and not play.pods("auto", "head")
    assert [event.reason for event in play.told(QuotaReleased)] == ["suspended_outside"]
    assert len(play.pods("later", "head")) == 1, "who waited for the quota has it"
    [refused] = [event for event in play.told(WorkloadRefused) if event.ref.name == "auto"]
    assert "set spec.idleSuspend to false and spec.suspend to true" in in_words(refused.refusal.problem)
    before = len(play.cell.log)
    play.tick(12)
    assert len(play.cell.log) - before <= 1, "nobody does anything about it"
    assert play.raycluster()["spec"]["idleSuspend"] is True
    play.clean()


def test_a_cluster_that_is_wanted_again_is_a_new_request() -> None:
    play = started()
    stop_using(play)
    play.tick(12)
    play.create(raycluster("other", replicas=3, minReplicas=3))
    ops = [{"op": "add", "path": f"/spec/{key}", "value": key == "suspend"} for key in ("idleSuspend", "suspend")]
    play.edit(ops)
    play.tick(3)
    assert not play.pods("auto", "head"), "the other one has the quota"
    meta = play.raycluster("other")["metadata"]
    play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], meta["name"])
    play.scalers.pop("other")
    play.scalers["auto"].start("actor-2")
    play.tick(6)
    assert len(play.pods("auto", "head")) == 1
    assert [event.attempt for event in play.told(WorkloadQueued) if event.ref.name == "auto"] == [1, 2]
    assert [event.attempt for event in play.told(QuotaReserved) if event.ref.name == "auto"] == [1, 2]
    assert play.raycluster()["spec"]["idleSuspend"] is False
    assert (play.group()["maxReplicas"], play.cpu()) == (1, HEAD_CPU + CORE), "it grows by grants again"
    assert play.raycluster()["metadata"]["annotations"]["muster.dev/max-replicas"] == "small=10"
    play.clean()


def test_what_its_autoscaler_deletes_is_gone_and_free() -> None:
    play = started(policy="Delete")
    stop_using(play)
    play.tick(12)
    assert not play.clusters()
    play.scalers.clear()
    play.cell.advance(60_000)
    assert not play.cell.seats["quota_accountant"].state.ledger.charges
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert not (bridge.clusters or bridge.grants or bridge.workers or bridge.gates)
    play.clean()


def of_a_job(*, runtime: str) -> ElasticPlay:
    """A RayJob whose cluster stays for two hours after its end, unless nothing uses it."""
    play = ElasticPlay(("ns", "3500m", "3500m"))
    made = rayjob()
    made["metadata"]["annotations"]["sim.muster.dev/runtime"] = runtime
    made["spec"]["ttlSecondsAfterFinished"] = 7_200
    made["spec"]["rayClusterSpec"]["idleTerminationOptions"] = {"timeoutSeconds": 30, "policy": "Suspend"}
    scaler = play.create(made)
    scaler.start("actor-0")
    scaler.start("actor-1")
    play.tick(6)
    assert len(play.pods()) == 2
    return play


def rest(play: ElasticPlay) -> None:
    for scaler in play.scalers.values():
        for name in list(scaler.actors):
            scaler.end(name)
    play.tick(14)
    assert play.raycluster()["spec"]["idleSuspend"] is True
    assert not play.pods() and not play.pods("auto", "head")


def charges(play: ElasticPlay) -> list[str]:
    state = play.cell.seats["quota_accountant"].state
    return [state.entries[uid].ref.kind for uid in state.ledger.charges]


def test_a_job_that_has_ended_is_not_charged_for_a_cluster_that_its_autoscaler_stopped() -> None:
    play = of_a_job(runtime="60s")
    play.tick(20)
    play.create_raw(raycluster("later", replicas=3, minReplicas=3))
    play.tick(2)
    assert charges(play) == ["RayJob"], "its cluster stays, and is in use"
    rest(play)
    assert [event.reason for event in play.told(QuotaReleased)] == ["finished"]
    assert charges(play) == ["RayCluster"] and len(play.pods("later", "head")) == 1
    play.merge("auto", {"spec": {"idleSuspend": False}})
    play.tick(2)
    assert sorted(charges(play)) == ["RayCluster", "RayJob"], "what runs again is charged again"
    play.cell.advance(7_300_000)
    assert charges(play) == ["RayCluster"]
    play.clean()


def test_a_job_that_has_not_ended_stays_charged() -> None:
    """Its pods come back without asking: KubeRay can suspend no RayJob that waits, and Muster starts nothing there."""
    play = of_a_job(runtime="99h")
    rest(play)
    assert charges(play) == ["RayJob"] and not play.told(QuotaReleased)
    play.merge("auto", {"spec": {"idleSuspend": False}})
    play.tick(2)
    assert len(play.pods("auto", "head")) == 1 and not play.over()
    play.clean()


@pytest.mark.parametrize("seed", range(8))
def test_stopped_and_wanted_again_and_again(seed: int) -> None:
    """In whatever order writes and news arrive: nothing runs uncharged, nothing that rests is charged for good."""
    play = started()
    scaler = play.scalers["auto"]
    for turn in range(6):
        if (turn + seed) % 2:
            stop_using(play)
        else:
            scaler.start(f"turn-{turn}")
        play.tick(1 + (seed + 3 * turn) % 9)
        if turn % 3 == 2 and play.raycluster()["spec"].get("idleSuspend"):
            values = {"idleSuspend": False, "suspend": True}
            play.edit([{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in values.items()])
    stop_using(play)
    play.tick(16)
    assert play.raycluster()["spec"].get("idleSuspend") is True
    assert not play.cell.seats["quota_accountant"].state.ledger.charges
    assert not [each for each in play.told(EffectApplied) if each.action == "suspend"], "nobody suspends it for us"
    play.clean()
