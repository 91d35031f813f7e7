"""Rows of the conformance table with KAI Scheduler on a real API server that have no test of their own elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.cluster import RAY, Cluster
from kit.controlplane import ControlPlane
from kit.gpus import reporting
from kit.kubeclient import Object
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.events.decisions import GangAdmitted
from muster.fakecluster.kuberay import RayServiceOperator

KAI = "scheduling.run.ai/v2"
GPU = "nvidia.com/gpu"
WHERE = "other"


def queue(name: str, parent: str = "", *, gpu: dict[str, int] | None = None, **spec: Any) -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "gpu": {**free, **(gpu or {})}, "memory": free}
    meta = {"name": name}
    parts = {"resources": resources, **({"parentQueue": parent} if parent else {}), **spec}
    return {"apiVersion": KAI, "kind": "Queue", "metadata": meta, "spec": parts}


def pod(gpus: int = 0, **notes: str) -> Object:
    limits = {"cpu": "100m", "memory": "100Mi", **({GPU: str(gpus)} if gpus else {})}
    found: Object = {"spec": {"containers": [{"name": "ray", "image": "ray", "resources": {"limits": limits}}]}}
    return found | ({"metadata": {"annotations": notes}} if notes else {})


def ray_cluster(
    name: str, template: Object, *, replicas: int = 1, least: int | None = None, head: Object | None = None, **meta: Any
) -> Object:
    """A RayCluster in queue team-a, created suspended."""
    labels = {"kai.scheduler/queue": "team-a", **meta.pop("labels", {})}
    group = {"groupName": "workers", "replicas": replicas, "minReplicas": replicas if least is None else least}
    return {
        "apiVersion": RAY,
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": WHERE, "labels": labels, **meta},
        "spec": {
            "suspend": True,
            "headGroupSpec": {"rayStartParams": {}, "template": head or pod()},
            "workerGroupSpecs": [{**group, "maxReplicas": replicas, "rayStartParams": {}, "template": template}],
        },
    }


async def resumed(cluster: Cluster) -> Counter[str]:
    """{queue: how many RayClusters of it run}"""
    found = await cluster.kube.list_objects(RAY, "RayCluster", WHERE)
    run = [each for each in found if not each["spec"].get("suspend")]
    return Counter(each["metadata"]["labels"]["kai.scheduler/queue"] for each in run)


async def pods(cluster: Cluster, *, bound: bool = True) -> list[Object]:
    found = await cluster.kube.list_objects("v1", "Pod", WHERE)
    return [each for each in found if bool(each["spec"].get("nodeName")) == bound]


async def many(cluster: Cluster, number: int) -> list[Object]:
    async def there() -> list[Object]:
        found = await pods(cluster)
        return found if len(found) == number else []

    return await cluster.until(there, 60.0, f"{number} pods to have a node")


async def told(cluster: Cluster, name: str) -> list[str]:
    uid = (await cluster.kube.get(RAY, "RayCluster", name, WHERE))["metadata"]["uid"]
    return [str(event["message"]) for event in await cluster.events(uid)]


async def test_a_queue_takes_what_the_document_writes_and_says_what_is_wrong(
    cluster: Cluster, muster_up: Muster
) -> None:
    half = queue("half", gpu={"quota": 0.5, "limit": 1.5}, priority=200, displayName="Half", preemptMinRuntime="1m")  # type: ignore[dict-item]
    await cluster.kube.create(half)
    stored = await cluster.kube.get(KAI, "Queue", "half")
    assert stored["spec"]["resources"]["gpu"] == {"quota": 0.5, "limit": 1.5, "overQuotaWeight": 1}
    assert "namespace" not in stored["metadata"]
    await cluster.kube.create({**queue("bare"), "spec": {"parentQueue": "half"}})

    async def said() -> str:
        conditions = ((await cluster.kube.get(KAI, "Queue", "bare")).get("status") or {}).get("conditions") or ()
        return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")

    assert "resources must be specified" in await cluster.until(said, what="it to be told")


async def test_what_nobody_is_guaranteed_is_divided_by_weight(cluster: Cluster, muster_up: Muster) -> None:
    none = {"quota": 0}
    await cluster.kube.create(queue("department-1"))
    await cluster.kube.create(queue("team-a", "department-1", gpu={**none, "overQuotaWeight": 3}))
    await cluster.kube.create(queue("team-b", "department-1", gpu={**none, "overQuotaWeight": 1}))
    for index in range(8):
        await cluster.kube.create(ray_cluster(f"a{index}", pod(4)))

    async def all_taken() -> bool:
        return (await resumed(cluster)) == {"team-a": 6}

    await cluster.until(all_taken, 60.0, "team-a to have all 24 GPUs")
    labels = {"kai.scheduler/queue": "team-b"}
    await cluster.kube.create(ray_cluster("b0", pod(4), labels=labels))
    await cluster.kube.create(ray_cluster("b1", pod(4), labels=labels))

    async def divided() -> bool:
        return (await resumed(cluster)) == {"team-a": 5, "team-b": 1}

    await cluster.until(divided, 60.0, "a quarter of 24 to be team-b's, of which one cluster of four fits")


@pytest.fixture
def placing(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> Callable[[Cluster], Any]:
    def begin(cluster: Cluster, **settings: Any) -> Any:
        return running(cluster, nats_server.url, tmp_path, **{"placement": "pack", **settings})

    return begin


async def test_a_gang_of_three_gpus_starts_whole_or_not_at_all(
    muster_plane: ControlPlane, placing: Callable[..., Any]
) -> None:
    async with (
        Cluster(muster_plane, pods=True, batch_scheduler="kai-scheduler") as cluster,
        reporting(cluster),
        placing(cluster) as muster,
    ):
        await cluster.kube.create(queue("team-a", gpu={"limit": 2}))
        half = pod(**{"gpu-fraction": "0.5"})
        await cluster.kube.create(ray_cluster("training", half, replicas=4, head=pod(1)))

        async def refused() -> bool:
            return any("asks for 3" in each or "request 3" in each for each in await told(cluster, "training"))

        await cluster.until(refused, 60.0, "it to be told that three GPUs are more than two")
        assert not await pods(cluster)
        assert not await pods(cluster, bound=False), "none of the five exists"
        patch = {"spec": {"resources": {"gpu": {"limit": 3}}}}
        await cluster.kube.patch(KAI, "Queue", "team-a", patch=patch)
        assert len(await many(cluster, 5)) == 5
        [admitted] = await muster.happened(GangAdmitted, "training")
        assert sum(each.count for each in admitted.placements) == 5


@pytest.mark.parametrize(("placement", "nodes"), [("pack", 1), ("spread", 3)])
async def test_workers_are_packed_or_spread(
    muster_plane: ControlPlane, placing: Callable[..., Any], placement: str, nodes: int
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, placing(cluster, placement=placement):
        await cluster.kube.create(queue("team-a"))
        for index in range(3):
            await cluster.kube.create(ray_cluster(f"c{index}", pod(2)))
        found = await many(cluster, 6)
        workers = [each for each in found if each["metadata"]["labels"]["ray.io/node-type"] == "worker"]
        assert len({each["spec"]["nodeName"] for each in workers}) == nodes


async def test_a_group_starts_with_its_minimum_and_grows(
    muster_plane: ControlPlane, placing: Callable[..., Any]
) -> None:
    """A node holds one worker of five GPUs: three of four have room, and the gang takes two."""
    async with Cluster(muster_plane, pods=True) as cluster, placing(cluster):
        await cluster.kube.create(queue("team-a"))
        await cluster.kube.create(ray_cluster("elastic", pod(5), replicas=4, least=2))
        first = await many(cluster, 4)
        assert {each["metadata"]["labels"]["ray.io/node-type"] for each in first} == {"head", "worker"}
        [waiting] = await pods(cluster, bound=False)
        assert waiting["metadata"]["labels"]["ray.io/node-type"] == "worker"
        gone = next(each for each in first if each["metadata"]["labels"]["ray.io/node-type"] == "worker")
        # Its group wants one fewer, and the operator takes one that waits or one that runs: three are left in any case.
        patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]
        await cluster.kube.patch(RAY, "RayCluster", "elastic", WHERE, patch=patch)
        await cluster.kube.delete("v1", "Pod", gone["metadata"]["name"], WHERE)
        await many(cluster, 4)


async def test_what_waits_for_quota_has_no_pod_that_asks_for_a_node(
    muster_plane: ControlPlane, placing: Callable[..., Any]
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, placing(cluster):
        await cluster.kube.create(queue("team-a", gpu={"limit": 4}))
        await cluster.kube.create(ray_cluster("first", pod(4)))
        await many(cluster, 2)
        await cluster.kube.create(ray_cluster("second", pod(4)))

        async def refused() -> bool:
            return any(GPU in each for each in await told(cluster, "second"))

        await cluster.until(refused, what="it to be told what it waits for")
        assert not await pods(cluster, bound=False), "an autoscaler sees nothing that waits for a node"


async def test_shares_are_refused_where_sharing_is_off(muster_plane: ControlPlane, placing: Callable[..., Any]) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, placing(cluster, gpu_sharing_mode="Disabled"):
        await cluster.kube.create(queue("team-a"))
        await cluster.kube.create(ray_cluster("shares", pod(**{"gpu-fraction": "0.5"})))
        words = "with gpu sharing request, while GPU sharing is disabled"

        async def refused() -> bool:
            units = await cluster.kube.list_objects("scheduling.x-k8s.io/v1alpha1", "QueueUnit", WHERE)
            return any(words in each["status"].get("message", "") for each in units)

        await cluster.until(refused, 60.0, "it to be told")
        assert not await pods(cluster)


async def test_the_clusters_of_a_rayservice_are_both_charged_during_an_upgrade(
    cluster: Cluster, muster_up: Muster
) -> None:
    """A RayService is one job of its queue; in an upgrade it runs through two RayClusters for a while."""
    cluster.operate(RayServiceOperator())
    await cluster.kube.create(queue("team-a", gpu={"limit": 4}))
    made = ray_cluster("chat", pod(2))
    config = {key: value for key, value in made["spec"].items() if key != "suspend"}
    spec = {"suspend": True, "rayClusterConfig": config}
    await cluster.kube.create({**made, "kind": "RayService", "spec": spec})

    async def charged(gpus: str) -> bool:
        status = (await cluster.kube.get(KAI, "Queue", "team-a")).get("status") or {}
        return bool((status.get("allocated") or {}).get(GPU) == gpus)

    async def named() -> list[str]:
        status = (await cluster.kube.get(RAY, "RayService", "chat", WHERE)).get("status") or {}
        parts = (status.get(part) or {} for part in ("activeServiceStatus", "pendingServiceStatus"))
        return [part["rayClusterName"] for part in parts if part.get("rayClusterName")]

    await cluster.until(lambda: charged("2"), what="the service to be admitted and charged")
    [old] = await cluster.until(named, what="the operator to name its cluster")
    template = {"template": {"metadata": {"labels": {"release": "new"}}}}
    changed = {"spec": {"rayClusterConfig": {"headGroupSpec": template}}}
    await cluster.kube.patch(RAY, "RayService", "chat", WHERE, patch=changed)
    await cluster.until(lambda: charged("4"), what="the new cluster to be charged beside the old one")
    await cluster.kube.delete(RAY, "RayCluster", old, WHERE)
    await cluster.kube.delete(RAY, "RayService", "chat", WHERE)

    async def free() -> bool:
        return not await cluster.kube.list_objects(RAY, "RayCluster", WHERE)

    await cluster.until(free, what="its clusters to be gone")
