"""Ray clusters that were admitted with a fixed size and scale themselves later: what they grew to is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, rayjob
from muster.events.elastic import GrowthDenied, GrowthGranted


def fixed(play: ElasticPlay, size: int, **group: Any) -> None:
    """A cluster of a fixed size that runs."""
    made = raycluster(replicas=size, **group)
    made["spec"]["enableInTreeAutoscaling"] = False
    scaler = play.create(made)
    scaler.stopped = True
    play.tick(1)
    assert len(play.pods()) == size


def scaled_by_hand(play: ElasticPlay, size: int) -> None:
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": size}])
    play.tick(2)
    assert len(play.pods()) == size


def switched(play: ElasticPlay, *, on: bool = True) -> None:
    """As an owner does it who keeps the head: its autoscaler stands beside it from the start of the next one on."""
    play.edit([{"op": "replace", "path": "/spec/enableInTreeAutoscaling", "value": on}])
    play.scalers["auto"].stopped = not on
    play.tick(1)


def test_what_it_grew_to_before_it_scales_itself_is_granted_where_it_fits() -> None:
    play = ElasticPlay(("ns", "20", "20"))
    fixed(play, 2)
    scaled_by_hand(play, 5)
    assert (play.cpu(), play.over()["cpu"]) == (5 * CORE, 3 * CORE), "charged, and not granted to anybody"
    for number in range(5):
        play.scalers["auto"].start(f"actor-{number}")
    switched(play)
    play.tick(4)
    assert play.told(GrowthGranted)[-1].groups["small"] == 5
    assert not play.over(), "what runs is granted"
    assert (len(play.pods()), play.group()["maxReplicas"]) == (5, 5)
    assert play.cpu() == HEAD_CPU + 5 * CORE
    play.clean()


def test_what_does_not_fit_stays_overuse_and_is_told() -> None:
    play = ElasticPlay(("ns", "3500m", "3500m"))
    fixed(play, 2)
    scaled_by_hand(play, 5)
    for number in range(5):
        play.scalers["auto"].start(f"actor-{number}")
    switched(play)
    play.tick(4)
    assert play.told(GrowthDenied), "it is asked for, and refused"
    assert play.over()["cpu"] >= 3 * CORE
    assert len(play.pods()) == 5, "nobody is killed for it"
    for number in range(2, 5):
        play.scalers["auto"].end(f"actor-{number}")
    play.tick(8)
    assert len(play.pods()) == 2
    assert not {name: amount for name, amount in play.over().items() if amount >= CORE and name == "cpu"}
    play.clean()


@pytest.mark.parametrize("make", [raycluster, rayjob])
def test_what_it_was_admitted_with_and_does_not_use_any_more_is_given_back(make: Any) -> None:
    """At once, and what it uses again later is asked for: the grant by worker group falls with the charge."""
    play = ElasticPlay(("ns", "20", "20"))
    made = make(replicas=5)
    made["spec"].get("rayClusterSpec", made["spec"])["enableInTreeAutoscaling"] = False
    scaler = play.create(made)
    scaler.stopped = True
    play.tick(1)
    scaled_by_hand(play, 2)
    for number in range(2):
        scaler.start(f"actor-{number}")
    assert play.cpu() == 2 * CORE and not play.over()
    play.edit([{"op": "replace", "path": "/spec/enableInTreeAutoscaling", "value": True}])
    scaler.stopped = False
    play.tick(8)
    assert (len(play.pods()), play.group()["maxReplicas"]) == (2, 2)
    assert play.cpu() == HEAD_CPU + 2 * CORE and not play.over()
    for number in range(2, 6):
        scaler.start(f"actor-{number}")
    play.tick(6)
    assert play.told(GrowthGranted)[-1].groups["small"] == len(play.pods()) == 6
    assert play.cpu() == HEAD_CPU + 6 * CORE and not play.over()
    play.clean()


def test_hosts_are_counted_as_replicas() -> None:
    play = ElasticPlay(("ns", "20", "20"))
    made = raycluster(replicas=2, numOfHosts=2)
    made["spec"]["enableInTreeAutoscaling"] = False
    scaler = play.create(made)
    for number in range(4):
        scaler.start(f"actor-{number}")
    switched(play)
    play.tick(4)
    assert (len(play.pods()), play.group()["maxReplicas"]) == (4, 2)
    assert play.cpu() == HEAD_CPU + 4 * CORE and not play.over().get("memory", 0) > 2**30
    play.clean()
