"""Gangs of bare pods on a simulated cluster, under disorder: what counts is what the API server says of the pods."""

from __future__ import annotations

import json
from random import Random

import pytest

from kit.disorder import Disorder, DisorderedCell
from kit.podgangs import SIGS
from kit.proof import proven
from muster.events.effects import EffectApplied
from muster.events.gangs import PodsPlaced
from muster.events.system import PlacementChosen
from muster.fakecluster.world import SimCluster
from muster.model import api

NODES = {f"node-{index}": {"cpu": "8", "memory": "64Gi"} for index in range(4)}
WILD = Disorder(late=0.5, crash=0.03, unseen=0.3, repeat=0.1, lost_answer=0.3, outage=0.3)


class Play:
    def __init__(self, seed: int, disorder: Disorder | None = None, mode: str = "pack") -> None:
        self.rng = Random(seed)
        self.cluster = SimCluster(NODES, seed=seed)
        placement = PlacementChosen(mode=mode)  # type: ignore[arg-type]
        self.simulation = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        self.minimum: dict[str, int] = {}
        self.simulation.advance(1_000)

    def gang(self, name: str, count: int, cpu: int) -> None:
        self.minimum[name] = count
        for index in range(count):
            labels = {f"{SIGS}/name": name, f"{SIGS}/min-available": str(count)}
            container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
            spec = {"schedulerName": "muster", "containers": [container]}
            body = {"metadata": {"name": f"{name}-{index}", "namespace": "default", "labels": labels}, "spec": spec}
            answer = self.cluster.server.handle("POST", api.PODS.path("default"), body=json.dumps(body).encode())
            assert answer.ok, answer.body
            if self.rng.random() < 0.3:
                self.simulation.advance(self.rng.randrange(2_000))

    def pods(self) -> list[dict[str, object]]:
        return json.loads(self.cluster.server.handle("GET", api.PODS.path("default")).body)["items"]

    def bound(self) -> dict[str, int]:
        found = dict.fromkeys(self.minimum, 0)
        for pod in self.pods():
            if pod["spec"].get("nodeName"):
                found[pod["metadata"]["labels"][f"{SIGS}/name"]] += 1
        return found

    def delete(self, name: str) -> None:
        for pod in self.pods():
            if pod["metadata"]["labels"][f"{SIGS}/name"] == name:
                path = api.PODS.path("default", pod["metadata"]["name"])
                self.cluster.server.handle("DELETE", path, query={"gracePeriodSeconds": "0"})

    def clean(self) -> None:
        report = proven(self.simulation.log, but="I11")  # A repeated fact is told of twice.
        assert report.checks["I3"]


@pytest.mark.parametrize("mode", ["pack", "spread", "off"])
def test_gangs_take_turns_and_none_is_ever_bound_in_part(mode: str) -> None:
    play = Play(1, mode=mode)
    for index in range(4):
        play.gang(f"gang-{index}", 4, 5)  # One pod of them on each node: they run one after the other.
    play.simulation.advance(30_000)
    for _ in range(4):
        bound = play.bound()
        assert sorted(bound.values()).count(4) == 1, bound
        assert sum(bound.values()) == 4
        done = next(name for name, count in bound.items() if count)
        play.delete(done)
        del play.minimum[done]
        play.simulation.advance(30_000)
    play.clean()


@pytest.mark.parametrize("seed", range(6))
def test_under_disorder_every_gang_ends_up_whole(seed: int) -> None:
    play = Play(seed, WILD)
    rng = play.rng
    for index in range(5):
        play.gang(f"gang-{index}", rng.randint(1, 4), rng.randint(1, 6))
        play.simulation.advance(rng.randrange(20_000))
    for _ in range(12):
        play.simulation.advance(120_000)
        for name, count in play.bound().items():
            assert count in (0, play.minimum[name]), (name, count)
        whole = [name for name, count in play.bound().items() if count]
        if not whole:
            break
        play.delete(rng.choice(whole))
        left = {pod["metadata"]["labels"][f"{SIGS}/name"] for pod in play.pods()}
        play.minimum = {name: minimum for name, minimum in play.minimum.items() if name in left}
    assert not play.minimum, f"these never started: {play.bound()}"
    play.clean()


def test_an_actuator_that_dies_between_bind_and_effect_binds_nobody_twice() -> None:
    play = Play(3, Disorder(lost_answer=1.0, crash=0.05))
    play.gang("gang", 4, 2)
    play.simulation.advance(60_000)
    assert play.bound() == {"gang": 4}
    events = [event for stored in play.simulation.log for event in stored.commit.events]
    assert len([event for event in events if isinstance(event, PodsPlaced)]) == 1
    assert len([event for event in events if isinstance(event, EffectApplied) and event.action == "bind"]) == 4
    play.clean()
