"""Nodes that gangs lack, on a simulated cluster with an autoscaler, under disorder: what the API server says counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from kit.disorder import Disorder, DisorderedCell
from kit.nodes import ATOMIC
from kit.podgangs import SIGS
from kit.proof import proven
from muster.core.objects.nodepools import NAME, NAMESPACE
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.events.system import PlacementChosen
from muster.fakecluster.world import SimCluster, node
from muster.model import api
from muster.model.api import ApiResource

WILD = Disorder(late=0.5, crash=0.05, unseen=0.3, repeat=0.1, lost_answer=0.3, outage=0.3)
MOST = 4
SHAPE = {"cpu": "8", "memory": "64Gi"}


class Play:
    """A cluster with one small node and a pool of up to four; the test is its autoscaler."""

    def __init__(self, seed: int, disorder: Disorder | None = None) -> None:
        self.rng = Random(seed)
        self.cluster = SimCluster({"small": {"cpu": "4", "memory": "16Gi"}}, seed=seed)
        placement = PlacementChosen(mode="pack")
        self.simulation = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        pool = {"maxNodes": MOST, "allocatable": SHAPE, "labels": {"pool": "p"}, "class": ATOMIC, "waitSeconds": 300}
        self.call(
            "POST", api.CONFIG_MAPS, NAMESPACE, body={"metadata": {"name": NAME}, "data": {"p": json.dumps(pool)}}
        )
        self.simulation.advance(1_000)
        self.served: set[str] = set()
        self.nodes = 0

    def call(self, method: str, resource: ApiResource, namespace: str = "", name: str = "", body: Any = None) -> Any:
        encoded = None if body is None else json.dumps(body).encode()
        answer = self.cluster.server.handle(method, resource.path(namespace, name), body=encoded)
        assert answer.ok, answer.body
        return json.loads(answer.body)

    def gang(self, name: str, count: int, cpu: int) -> None:
        labels = {f"{SIGS}/name": name, f"{SIGS}/min-available": str(count)}
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"schedulerName": "muster", "containers": [container]}
        for index in range(count):
            meta = {"name": f"{name}-{index}", "labels": labels}
            self.call("POST", api.PODS, "default", body={"metadata": meta, "spec": spec})

    def names(self, resource: ApiResource) -> set[str]:
        return {each["metadata"]["name"] for each in self.call("GET", resource)["items"]}

    def scale_up(self) -> None:
        """Every request gets what it asks for, once."""
        templates = {each["metadata"]["name"]: each for each in self.call("GET", api.POD_TEMPLATES)["items"]}
        for request in self.call("GET", api.PROVISIONING_REQUESTS)["items"]:
            name = request["metadata"]["name"]
            if name in self.served:
                continue
            self.served.add(name)
            cpu = 0
            for each in request["spec"]["podSets"]:
                [container] = templates[each["podTemplateRef"]["name"]]["template"]["spec"]["containers"]
                cpu += each["count"] * int(container["resources"]["requests"]["cpu"])
            for _ in range(-(-cpu // 8)):
                self.add_node()

    def add_node(self) -> None:
        self.nodes += 1
        made = node(f"p-{self.nodes}", SHAPE, self.cluster.clock.now())
        made["metadata"]["labels"]["pool"] = "p"
        self.call("POST", api.NODES, body=made)

    def bound(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for pod in self.call("GET", api.PODS)["items"]:
            name = pod["metadata"]["labels"][f"{SIGS}/name"]
            found[name] = found.get(name, 0) + bool(pod["spec"].get("nodeName"))
        return found

    def told(self) -> Iterator[NodesRequested | NodesRequestWithdrawn]:
        for stored in self.simulation.log:
            for event in stored.commit.events:
                if isinstance(event, NodesRequested | NodesRequestWithdrawn):
                    yield event

    def clean(self) -> None:
        opened: set[tuple[str, ...]] = set()
        for event in self.told():
            if isinstance(event, NodesRequested):
                assert event.gangs not in opened, f"{event.gangs} has an open request already"
                opened.add(event.gangs)
            elif event.reason != "unknown":
                opened.discard(event.gangs)
        proven(self.simulation.log, but="I11")  # A repeated fact is told of twice.


def test_nodes_come_and_the_request_goes() -> None:
    play = Play(1)
    play.gang("a", 4, 4)  # One fits on the small node; three need two nodes of the pool.
    play.simulation.advance(5_000)
    assert len(play.names(api.PROVISIONING_REQUESTS)) == len(play.names(api.POD_TEMPLATES)) == 1
    play.scale_up()
    play.simulation.advance(5_000)
    assert play.bound() == {"a": 4}
    assert play.nodes == 2
    assert not play.names(api.PROVISIONING_REQUESTS) | play.names(api.POD_TEMPLATES)
    play.clean()


def test_a_node_that_comes_before_the_request_is_made_is_enough() -> None:
    play = Play(2, Disorder(outage=1.0))
    play.gang("a", 3, 4)
    play.simulation.advance(2_000)
    assert [type(event) for event in play.told()] == [NodesRequested]
    assert not play.names(api.PROVISIONING_REQUESTS), "the API server takes nothing"
    play.add_node()
    play.simulation.advance(2_000)
    play.simulation.heal()
    play.simulation.advance(5_000)
    assert play.bound() == {"a": 3}
    assert [event.reason for event in play.told() if isinstance(event, NodesRequestWithdrawn)] == ["met"]
    assert not play.names(api.PROVISIONING_REQUESTS) | play.names(api.POD_TEMPLATES)
    play.clean()


def test_pods_that_go_take_their_request_with_them() -> None:
    play = Play(3)
    play.gang("a", 3, 4)
    play.simulation.advance(5_000)
    assert play.names(api.PROVISIONING_REQUESTS)
    for index in range(3):
        play.cluster.server.handle("DELETE", api.PODS.path("default", f"a-{index}"), query={"gracePeriodSeconds": "0"})
    play.simulation.advance(5_000)
    assert not play.names(api.PROVISIONING_REQUESTS) | play.names(api.POD_TEMPLATES)
    play.clean()


@pytest.mark.parametrize("seed", range(6))
def test_under_disorder_gangs_get_their_nodes_and_nothing_is_left(seed: int) -> None:
    play = Play(seed, WILD)
    for index in range(3):
        play.gang(f"gang-{index}", play.rng.randint(2, 4), play.rng.randint(2, 5))
        play.simulation.advance(play.rng.randrange(20_000))
    for _ in range(10):
        play.scale_up()
        assert play.nodes <= MOST
        play.simulation.advance(120_000)
        for name in [name for name, count in play.bound().items() if count]:
            for pod in sorted(play.names(api.PODS)):
                if pod.startswith(f"{name}-"):
                    path = api.PODS.path("default", pod)
                    play.cluster.server.handle("DELETE", path, query={"gracePeriodSeconds": "0"})
    play.simulation.heal()
    play.simulation.advance(120_000)
    assert play.bound() == {}, "these never started"
    assert not play.names(api.PROVISIONING_REQUESTS) | play.names(api.POD_TEMPLATES)
    play.clean()
