"""Ray clusters that scale themselves on a real API server: what a user of the document sees, and what is charged.

The operator is the simulated one and its pods are real; the autoscaler writes what Ray's writes (`kit.rayscaler`), and
what a head says goes the way of the reader's facts. `ROWS` has the rows of the conformance table that are tested here.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from kit.cluster import RAY, Cluster
from kit.controlplane import ControlPlane
from kit.elastic import HEAD_CPU, raycluster
from kit.kubeclient import Object
from kit.muster import Muster, running
from kit.rayscaler import RayScaler
from muster.bus.server import EmbeddedServer
from muster.core.autoscaling.reading import heads, news
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GateSet, GrowthDenied, GrowthGranted, GrowthRequested, GrowthWithdrawn, WorkersChosen
from muster.events.facts import TreeNodeSpec
from muster.runtime.leader import Leader

NAME, NAMESPACE = "raycluster-autoscaler", "video"
CORE = 1_000


class Walk:
    """One RayCluster, its autoscaler, and Muster."""

    def __init__(self, muster: Muster) -> None:
        self.muster, self.cluster, self.kube = muster, muster.cluster, muster.cluster.kube
        self.scaler = RayScaler(idle_ms=1_000)
        self.bridge = self._leader("autoscaler_bridge")

    def _leader(self, stage: str) -> Leader[Any]:
        return next(
            each for each in self.muster.process.runners if isinstance(each, Leader) and each.stage.name == stage
        )

    async def create(self, **group: Any) -> None:
        await self.kube.create(raycluster(NAME, NAMESPACE, **group))
        await self.cluster.until(self.head_runs, 60.0, "the head to run")

    async def head_runs(self) -> bool:
        pods = await self.pods("head")
        return bool(pods) and pods[0].get("status", {}).get("phase") == "Running"

    async def pods(self, node_type: str = "worker") -> list[Object]:
        found = await self.kube.list_objects("v1", "Pod", NAMESPACE)
        return [pod for pod in found if pod["metadata"].get("labels", {}).get("ray.io/node-type") == node_type]

    async def object(self) -> Object:
        return await self.kube.get(RAY, "RayCluster", NAME, NAMESPACE)

    async def sizes(self) -> tuple[int, int, int]:
        """(replicas, maxReplicas, workers)."""
        group = (await self.object())["spec"]["workerGroupSpecs"][0]
        return group.get("replicas", 0), group["maxReplicas"], len(await self.pods())

    async def tick(self) -> None:
        """One look of the autoscaler, and one of whoever reads the head."""
        pods = [*await self.pods(), *await self.pods("head")]
        ops = self.scaler.tick(await self.object(), pods, time.time_ns() // 1_000_000)
        if ops:
            await self.kube.patch(RAY, "RayCluster", NAME, NAMESPACE, patch=ops)
        for ref, attempt in heads(self.bridge.state):
            fact = news(self.bridge.state, ref, attempt, self.scaler.demand(), time.time_ns() // 1_000_000)
            if fact is not None:
                self.bridge.announce(fact)

    async def until_sized(self, *sizes: int, timeout_s: float = 60.0) -> None:
        """Let it tick until it is of this size."""
        found: tuple[int, ...] = ()

        async def sized() -> bool:
            nonlocal found
            await self.tick()
            found = await self.sizes()
            return found == sizes

        await self.cluster.until(sized, timeout_s, f"(replicas, max, workers) to be {sizes}", every_s=0.3)

    async def is_gated(self) -> bool:
        found = await self.object()
        group = found["spec"]["workerGroupSpecs"][0]
        return found["metadata"]["annotations"]["muster.dev/granted"] == f"small={group['maxReplicas']}"

    async def until_placed(self) -> None:
        """Let it tick until nothing waits."""

        async def placed() -> bool:
            await self.tick()
            return not self.scaler.waiting

        await self.cluster.until(placed, 30.0, "everything to have a worker", every_s=0.3)

    def charged(self) -> int:
        """cpu, in thousandths."""
        ledger = self._leader("quota_accountant").state.ledger
        return sum(charge.request.get("cpu", 0) for charge in ledger.charges.values())

    async def until_charged(self, cpu: int) -> None:
        await self.cluster.until(lambda: self.charged() == cpu, 30.0, f"{cpu} to be charged")

    async def told(self, kind: Any) -> list[Any]:
        return [
            event for stored in await self.muster.commits() for event in stored.commit.events if isinstance(event, kind)
        ]


@pytest_asyncio.fixture
async def walk(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Walk]:
    """Muster with the tree T0 (video: 14 cpu, counted in full) on an empty cluster."""
    async with Cluster(muster_plane, pods=True) as cluster, running(cluster, nats_server.url, tmp_path) as muster:
        tree = await cluster.apply_tree()
        del tree
        yield Walk(muster)


async def test_the_walk_of_the_document(walk: Walk) -> None:
    """Rows 1, 3, 4, 7, 8, 11, 21: create, two actors, both end, the cluster is deleted."""
    await walk.create()
    [head] = await walk.pods("head")
    assert [each["name"] for each in head["spec"]["containers"]] == ["ray", "autoscaler"]
    assert head["spec"]["containers"][1]["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    await walk.until_sized(0, 0, 0)
    walk.scaler.start("actor1")
    await walk.until_sized(1, 1, 1)
    walk.scaler.start("actor2")
    await walk.until_sized(2, 2, 2)
    await walk.until_placed()
    busy = walk.scaler.actors["actor2"].on
    walk.scaler.end("actor1")
    await walk.until_sized(1, 1, 1, timeout_s=120.0)
    assert [pod["metadata"]["name"] for pod in await walk.pods()] == [busy], "the idle one went"
    walk.scaler.end("actor2")
    await walk.until_sized(0, 0, 0, timeout_s=120.0)
    assert await walk.pods("head")
    chain = [GrowthRequested, GrowthGranted, GateSet, GrowthWithdrawn]
    assert all([await walk.told(kind) for kind in chain])
    await walk.kube.delete(RAY, "RayCluster", NAME, NAMESPACE)
    await walk.until_charged(0)


async def test_exactly_what_fits_and_the_same_manifest_again_and_again(walk: Walk) -> None:
    """Row 19, and 20 times the same manifest while it grows."""
    await walk.create(maxReplicas=30)
    for number in range(20):
        walk.scaler.start(f"actor-{number}")
    manifest = raycluster(NAME, NAMESPACE, maxReplicas=30)
    manifest["spec"].pop("suspend")
    manifest["spec"]["workerGroupSpecs"][0].pop("replicas")
    for _ in range(20):
        await walk.tick()
        group = manifest["spec"]["workerGroupSpecs"][0]
        group["replicas"] = (await walk.object())["spec"]["workerGroupSpecs"][0].get("replicas", 0)
        await walk.kube.patch(RAY, "RayCluster", NAME, NAMESPACE, patch={"spec": {"workerGroupSpecs": [group]}})
        # In between policy muster-ray-growth refuses more replicas: see test_ray_policies.
        await walk.cluster.until(walk.is_gated, 30.0, "maxReplicas to be what is granted again")
    room = 14
    await walk.until_sized(room, room, room, timeout_s=120.0)
    assert (await walk.object())["metadata"]["annotations"]["muster.dev/max-replicas"] == "small=30"
    refusals = await walk.told(GrowthDenied)
    assert refusals and refusals[-1].short.resource == "cpu"
    assert walk.charged() <= 14 * CORE + HEAD_CPU


async def test_static_replicas_are_left_alone(walk: Walk) -> None:
    """Rows 12 and 14: without an autoscaler one container, maxReplicas untouched, and no more than it."""
    made = raycluster(NAME, NAMESPACE, replicas=9, maxReplicas=5)
    made["spec"]["enableInTreeAutoscaling"] = False
    await walk.kube.create(made)
    await walk.cluster.until(walk.head_runs, 60.0, "the head to run")
    [head] = await walk.pods("head")
    assert len(head["spec"]["containers"]) == 1

    async def five() -> bool:
        return (await walk.sizes())[1:] == (5, 5)

    await walk.cluster.until(five, 60.0, "five workers")
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    await walk.kube.patch(RAY, "RayCluster", NAME, NAMESPACE, patch=patch)

    async def two() -> bool:
        return (await walk.sizes())[1:] == (5, 2)

    await walk.cluster.until(two, 60.0, "two workers")
    assert not await walk.told(GateSet)


async def test_the_least_is_there_from_the_start_and_stays(walk: Walk) -> None:
    """Row 13: min 2, max 5, replicas 0."""
    await walk.create(minReplicas=2, maxReplicas=5)
    await walk.until_sized(2, 2, 2)
    assert walk.charged() >= 2 * CORE


async def test_hosts_come_and_go_together(walk: Walk) -> None:
    """Row 24: a replica of two hosts for what one could hold."""
    await walk.create(numOfHosts=2)
    walk.scaler.start("actor")
    await walk.until_sized(1, 1, 2)
    assert walk.charged() >= 2 * CORE


async def test_the_sidecar_is_counted_as_its_options_say(walk: Walk) -> None:
    """Row 18: autoscalerOptions.resources replaces 500m and 512Mi."""
    made = raycluster(NAME, NAMESPACE)
    amounts = {"cpu": "2", "memory": "1Gi"}
    made["spec"]["autoscalerOptions"] = {"resources": {"requests": amounts, "limits": amounts}, "image": "other:1"}
    await walk.kube.create(made)
    await walk.cluster.until(walk.head_runs, 60.0, "the head to run")
    [head] = await walk.pods("head")
    sidecar = head["spec"]["containers"][1]
    assert (sidecar["image"], sidecar["resources"]["requests"]) == ("other:1", amounts)


async def test_an_idle_worker_goes_to_the_queue_that_is_owed_it(walk: Walk) -> None:
    """Row 20: one of three is idle when another queue is owed a core; the busy ones stay."""

    def leaf(name: str, least: str) -> TreeNodeSpec:
        return TreeNodeSpec(name=name, min={"cpu": least}, max={"cpu": "3"}, namespaces=(name,))

    most = {"cpu": "3"}
    root = TreeNodeSpec(name="root", min=most, max=most, children=(leaf("video", "0"), leaf("text", "1")))
    await walk.cluster.apply_tree(root)
    await walk.create()
    for name in ("a", "b", "c"):
        walk.scaler.start(name)
    await walk.until_sized(3, 3, 3)
    await walk.until_placed()
    walk.scaler.idle_ms = 10**9
    idle = walk.scaler.actors["b"].on
    walk.scaler.end("b")
    await walk.tick()
    owed = raycluster("owed", "text", replicas=1, minReplicas=1, maxReplicas=1)
    owed["spec"]["enableInTreeAutoscaling"] = False
    await walk.kube.create(owed)

    async def given() -> bool:
        await walk.tick()
        found = await walk.kube.get(RAY, "RayCluster", "owed", "text")
        return found["spec"].get("suspend") is False

    await walk.cluster.until(given, 90.0, "the queue that is owed a core to get it", every_s=0.3)
    left = {pod["metadata"]["name"] for pod in await walk.pods()}
    assert left == {walk.scaler.actors[name].on for name in ("a", "c")} and idle not in left
    assert (await walk.sizes())[1:] == (2, 2)
    [order] = await walk.told(EvictionOrdered)
    assert not order.victims and order.partial[0].taken == {"small": 1}
    [chosen] = await walk.told(WorkersChosen)
    assert [(each.ref.name, each.idle) for each in chosen.workers] == [(idle, True)]


ROWS = {
    1: test_the_walk_of_the_document,
    3: test_the_walk_of_the_document,
    4: test_the_walk_of_the_document,
    7: test_the_walk_of_the_document,
    8: test_the_walk_of_the_document,
    11: test_the_walk_of_the_document,
    12: test_static_replicas_are_left_alone,
    13: test_the_least_is_there_from_the_start_and_stays,
    14: test_static_replicas_are_left_alone,
    18: test_the_sidecar_is_counted_as_its_options_say,
    19: test_exactly_what_fits_and_the_same_manifest_again_and_again,
    20: test_an_idle_worker_goes_to_the_queue_that_is_owed_it,
    21: test_the_walk_of_the_document,
    24: test_hosts_come_and_go_together,
}
"""{row of the table for autoscaling clusters: its test here}"""
ELSEWHERE = {
    2: "the ConfigMap of the document is no concern of Muster: its real scripts run with a real Ray head",
    5: "tests/sim/test_ray_grows.py::test_what_can_never_be_placed_is_not_asked_for",
    6: "tests/sim/test_ray_grows.py::test_a_placement_group_that_fits_is_granted_at_once",
    9: "Ray decides it: with a real Ray head",
    10: "with a real Ray head; the parsers: tests/unit/demand/test_statustext.py",
    15: "how fast Ray asks: with a real Ray head",
    16: "Ray decides it: with a real Ray head",
    17: "Ray decides it: with a real Ray head",
    22: "tests/sim/test_ray_disorder.py",
    23: "tests/unit/sim/test_rayjob_states.py",
}
"""{row: where it is tested, or why it is not}"""


def test_every_row_has_its_test_or_its_reason() -> None:
    assert sorted(ROWS.keys() | ELSEWHERE.keys()) == list(range(1, 25))
    assert not ROWS.keys() & ELSEWHERE.keys()
