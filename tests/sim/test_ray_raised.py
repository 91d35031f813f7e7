"""Muster raises ``replicas`` with each grant where the owner wants that; its autoscaler does everything else."""

from __future__ import annotations

from typing import Any

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, rayjob
from muster.events.alarms import AlarmRaised
from muster.events.elastic import GateSet


def raised(make: Any = raycluster, **group: Any) -> dict[str, Any]:
    made: dict[str, Any] = make(**group)
    made["metadata"].setdefault("annotations", {})["muster.dev/drive-replicas"] = "true"
    return made


def test_its_workers_come_without_a_tick_of_its_autoscaler() -> None:
    for make in (raycluster, rayjob):
        play = ElasticPlay(("ns", "3500m", "3500m"), total="3500m")
        scaler = play.create(raised(make))
        for number in range(5):
            scaler.start(f"actor-{number}")
        play.read()
        play.cell.advance(4_000)
        assert play.sizes() == (3, 3, 3), "what fits, in one write"
        assert play.cpu() == HEAD_CPU + 3 * CORE
        [gate] = [each for each in play.told(GateSet) if each.replicas]
        assert gate.replicas == gate.most == {"small": 3}
        play.tick(4)
        assert (play.sizes(), len(scaler.waiting)) == ((3, 3, 3), 2), "its autoscaler starts nothing more"
        play.clean()


def test_its_autoscaler_ends_them_and_nothing_is_asked_for_again() -> None:
    play = ElasticPlay()
    scaler = play.create(raised())
    for number in range(4):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (4, 4, 4)
    kept = {scaler.actors[name].on for name in ("actor-1", "actor-3")}
    scaler.end("actor-0")
    scaler.end("actor-2")
    play.tick(12)
    assert {pod["metadata"]["name"] for pod in play.pods()} == kept
    assert (play.sizes(), play.cpu()) == ((2, 2, 2), HEAD_CPU + 2 * CORE)
    before = len(play.cell.log)
    play.tick(10)
    assert len(play.cell.log) - before <= 1, "nothing changes any more"
    assert not play.told(AlarmRaised)
    play.clean()


def test_what_another_queue_is_owed_goes_and_does_not_come_back() -> None:
    play = ElasticPlay(("ns", "2500m", "6500m"), ("other", "4", "6"), total="6500m")
    scaler = play.create(raised())
    for number in range(6):
        scaler.start(f"actor-{number}")
    play.tick(4)
    assert play.sizes() == (6, 6, 6)
    play.other_claims(2)
    play.tick(12)
    assert len(play.pods("claims")) == 2
    assert play.sizes() == (4, 4, 4)
    play.clean()


def test_conservative_growth_is_left_to_its_autoscaler() -> None:
    play = ElasticPlay()
    made = raised()
    made["spec"].setdefault("autoscalerOptions", {})["upscalingMode"] = "Conservative"
    scaler = play.create(made)
    scaler.start("actor")
    play.read()
    play.cell.advance(4_000)
    assert not [each for each in play.told(GateSet) if each.replicas]
    play.tick(3)
    assert len(play.pods()) == 1
    play.clean()
