"""All of it at once: a real head, our reader, our stages, our writes on a real API server, and Ray's own autoscaler.

There is room for the head of the cluster and three workers, of which only the head is its queue's own; another queue is
guaranteed a core.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme

from kit.api import Api
from kit.controlplane import ControlPlane
from kit.crds import install_crds
from kit.nats import nats_server  # noqa: F401 - a fixture
from kit.realray.cluster import LIMIT_S, RealRayCluster, manifest, real_cluster
from kit.realray.muster import Deciding, deciding
from muster.bus.server import EmbeddedServer
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthWithdrawn, WorkersChosen
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.api import NAMESPACES, PODS, QUOTA_TREES, RAYCLUSTERS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

JOINED_S = 400.0
"""On a busy machine a raylet takes a minute to join, and more beside others."""
MINE, OTHERS = "ray-loop", "ray-owed"
MERGE = "application/merge-patch+json"


def tree(cores: int = 4, mine: int = 1, others: int = 1) -> dict[str, Any]:
    """So many cores, of which the two queues are guaranteed a part; there is no GPU in any quota."""
    most = {"cpu": str(cores), "nvidia.com/gpu": "0"}
    children = [
        {"name": "mine", "namespaces": [MINE], "min": {"cpu": str(mine)}, "max": most},
        {"name": "owed", "namespaces": [OTHERS], "min": {"cpu": str(others)}, "max": most},
    ]
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system", "annotations": {"muster.dev/reclaim": "enabled"}},
        "spec": {"root": {"name": "root", "min": most, "max": most, "children": children}},
    }


def suspended(name: str, **group: Any) -> dict[str, Any]:
    made = manifest(name, **group)
    made["spec"]["suspend"] = True
    return made


def worker_group(name: str, market: str = "", **devices: str) -> dict[str, Any]:
    """One CPU, besides that such devices, on nodes of such a market."""
    amounts = {"cpu": "1", "memory": "1Gi", **devices}
    labels = {"market": market} if market else {}
    container = {"name": "ray-worker", "image": "ray", "resources": {"requests": amounts, "limits": amounts}}
    counts = {"replicas": 0, "minReplicas": 0, "maxReplicas": 10}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    # Of groups that would do as well Ray takes the one with the higher priority.
    return {"groupName": name, **counts, "priority": -1, "rayStartParams": {}, "labels": labels, "template": template}


class Loop:
    """The cluster, and who decides about it."""

    def __init__(self, cluster: RealRayCluster, muster: Deciding) -> None:
        self.cluster, self.muster = cluster, muster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loop(
    ray_plane: ControlPlane,
    clients: trustme.CA,
    ray_folder: Path,
    nats_server: EmbeddedServer,  # noqa: F811
) -> AsyncIterator[Loop]:
    transport = await connect(FromKubeconfig(str(ray_plane.kubeconfig)))
    heads: dict[str, RealRayCluster] = {}
    try:
        await install_crds(transport)
        api = Api(transport, MINE, real=True, server=None)
        for name in (MINE, OTHERS, "muster-system"):
            assert (await api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})).status in (201, 409)
        assert (await api.call("POST", QUOTA_TREES.path("kube-system"), tree())).status == 201

        def address(_ref: object) -> str:
            return heads["c"].head.address if "c" in heads else "127.0.0.1:1"

        async with deciding(ray_plane, nats_server.url, ray_folder, address) as muster:
            body = suspended("c", idleTimeoutSeconds=600)
            body["spec"]["workerGroupSpecs"] += [
                worker_group("gpu-group", **{"nvidia.com/gpu": "1"}),
                worker_group("spot-group", "spot"),
            ]
            async with real_cluster(api, ray_plane, clients, ray_folder / "loop", body) as cluster:
                heads["c"] = cluster
                yield Loop(cluster, muster)
                await api.call("DELETE", RAYCLUSTERS.path(MINE, "c"))
    finally:
        await transport.close()


@pytest.mark.row(19)
async def test_it_gets_exactly_what_fits(loop: Loop) -> None:
    """Row 19: room for three workers and a demand for four."""
    cluster = loop.cluster
    for name in ("a", "b", "c", "d"):
        await cluster.actor(name)
    await cluster.until_workers(3, within_s=JOINED_S)
    assert (await cluster.spec())["maxReplicas"] == 3
    await cluster.ticks(3)
    assert len(await cluster.workers()) == 3, "nothing is tried beyond the grant"
    assert sum(shape.count for shape in (await cluster.reading()).pending) == 1
    refusals = await loop.muster.told(GrowthDenied)
    short = refusals[-1].short
    assert (short.resource, short.limit) == ("cpu", 4_000)
    assert (await loop.muster.told(GrowthGranted))[-1].groups["small-group"] == 3


@pytest.mark.row(20)
async def test_an_idle_worker_goes_to_the_queue_that_is_owed_it(loop: Loop) -> None:
    """Row 20: one of three is idle when another queue is owed a core."""
    cluster = loop.cluster
    await cluster.kill("a", "b")

    async def one_idle() -> bool:
        return [node.status for node in (await cluster.reading()).nodes if not node.head].count("idle") == 1

    await cluster.settle(one_idle, LIMIT_S, "an idle worker")
    busy = {await cluster.pod_of(name) for name in ("c", "d")}
    owed = suspended("owed", replicas=0, minReplicas=0, maxReplicas=1)
    owed["spec"]["enableInTreeAutoscaling"] = False
    assert (await cluster.api.call("POST", RAYCLUSTERS.path(OTHERS), owed)).status == 201
    left = await cluster.until_workers(2)
    assert set(left) == busy

    async def runs() -> bool:
        found = await cluster.api.call("GET", RAYCLUSTERS.path(OTHERS, "owed"))
        return found.body["spec"]["suspend"] is False

    await cluster.settle(runs, LIMIT_S, "who is owed to be admitted")
    [order] = await loop.muster.told(EvictionOrdered)
    assert not order.victims and [part.taken for part in order.partial] == [{"small-group": 1}]
    assert all(worker.idle for each in await loop.muster.told(WorkersChosen) for worker in each.workers)
    assert (await loop.muster.told(GrowthWithdrawn))[-1].claimant.name == "owed"
    await cluster.ticks(5)
    assert set(await cluster.workers()) == busy, "the autoscaler does not fight"
    assert {await cluster.pod_of(name) for name in ("c", "d")} == busy
    assert len(cluster.kubelet.ended) == 1


@pytest.mark.row(19)
async def test_it_grows_again_when_there_is_room(loop: Loop) -> None:
    cluster = loop.cluster
    await cluster.actor("e")
    await cluster.ticks(2)
    assert len(await cluster.workers()) == 2
    assert (await cluster.api.call("DELETE", RAYCLUSTERS.path(OTHERS, "owed"))).status == 200
    # There is no garbage collector beside this API server.
    assert (await cluster.api.call("DELETE", PODS.path(OTHERS))).status == 200
    await cluster.until_workers(3, within_s=JOINED_S)
    assert (await cluster.spec())["maxReplicas"] == 3
    await cluster.pod_of("e")


async def test_each_piece_by_itself_and_growth_takes_back_what_is_lent(loop: Loop) -> None:
    """A labelled actor grows its group out of what a queue without a guarantee has borrowed, beside a placement group
    that never fits and an actor whose device has no quota. A second cluster of the same queue keeps its size.
    """
    cluster, api = loop.cluster, loop.cluster.api
    body = {"spec": tree(cores=8, mine=7, others=0)["spec"]}
    assert (await api.call("PATCH", QUOTA_TREES.path("kube-system", "tree"), body, content_type=MERGE)).status == 200
    for name, namespace, workers in (("second", MINE, 1), ("lent", OTHERS, 1)):
        made = suspended(name, replicas=workers, minReplicas=workers, maxReplicas=workers)
        made["spec"]["enableInTreeAutoscaling"] = False
        assert (await api.call("POST", RAYCLUSTERS.path(namespace), made)).status == 201

        async def runs(name: str = name, namespace: str = namespace) -> bool:
            found = await api.call("GET", RAYCLUSTERS.path(namespace, name))
            return found.body["spec"]["suspend"] is False

        await cluster.settle(runs, LIMIT_S, f"{name} to be admitted: 8 of 8 cores")
    before = await cluster.workers()
    await cluster.head.do("never = placement_group([{'CPU': 1}] * 20, strategy='STRICT_SPREAD')")
    await cluster.head.do("Actor.options(name='g', lifetime='detached', num_gpus=1).remote()")
    await cluster.head.do("Actor.options(name='s', lifetime='detached', label_selector={'market': 'spot'}).remote()")
    pod = await cluster.pod_of("s")
    assert pod not in before
    assert "spot-group" in pod
    [order] = [each for each in await loop.muster.told(EvictionOrdered) if each.victims]
    assert [victim.ref.name for victim in order.victims] == ["lent"]
    await cluster.ticks(2)
    found = await api.get(RAYCLUSTERS, "c")
    assert found is not None
    most = {group["groupName"]: group["maxReplicas"] for group in found["spec"]["workerGroupSpecs"]}
    assert most == {"small-group": 3, "gpu-group": 0, "spot-group": 1}, "no grant that is not used"
    assert set(await cluster.workers()) >= {*before, pod}
    refusals = [each for denied in await loop.muster.told(GrowthDenied) for each in denied.refusals]
    assert {"nvidia.com/gpu", "cpu"} <= {each.short.resource for each in refusals}


async def test_every_strategy_of_a_placement_group(loop: Loop) -> None:
    """PACK grows by the one bundle that has no room; SPREAD and STRICT_SPREAD find it then; STRICT_PACK, which no
    worker can hold, costs itself alone.
    """
    cluster = loop.cluster
    await cluster.head.do("remove_placement_group(never)")
    await cluster.kill("c", "d", "e")
    before = set(await cluster.workers())
    await cluster.head.do("strict = placement_group([{'CPU': 1}] * 2, strategy='STRICT_PACK')")
    await cluster.head.do("four = placement_group([{'CPU': 1}] * 4, strategy='PACK')")

    async def placed() -> bool:
        return not any(group.strategy == "PACK" for group in (await cluster.reading()).placement_groups)

    await cluster.settle(placed, JOINED_S, "the group to have its workers")
    await cluster.head.do("ray.get(four.ready(), timeout=60)")
    there = set(await cluster.workers())
    assert there > before
    assert len(there) == len(before) + 1
    for strategy in ("SPREAD", "STRICT_SPREAD"):
        await cluster.head.do("remove_placement_group(four)")
        await cluster.head.do(f"four = placement_group([{{'CPU': 1}}] * 4, strategy={strategy!r})")
        await cluster.head.do("ray.get(four.ready(), timeout=60)")
    await cluster.ticks(2)
    assert set(await cluster.workers()) == there
    assert (await cluster.spec())["maxReplicas"] == 4
