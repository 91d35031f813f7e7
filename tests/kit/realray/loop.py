"""A real Ray cluster of three worker groups in Muster's hands, on a real API server with two queues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from kit.api import Api
from kit.controlplane import ControlPlane
from kit.crds import install_crds
from kit.realray.cluster import LIMIT_S, RealRayCluster, manifest, real_cluster
from kit.realray.muster import Deciding, deciding
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.api import NAMESPACES, QUOTA_TREES, RAYCLUSTERS

Object = dict[str, Any]
MINE, OTHERS = "ray-loop", "ray-owed"
MERGE = "application/merge-patch+json"
NAME = "c"


def tree(cores: int = 4, mine: int = 1, others: int = 1) -> Object:
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


def suspended(name: str, **group: Any) -> Object:
    """As a user creates it who waits for quota."""
    made = manifest(name, **group)
    made["spec"]["suspend"] = True
    return made


def worker_group(name: str, market: str = "", **devices: str) -> Object:
    """One CPU, besides that such devices, on nodes of such a market."""
    amounts = {"cpu": "1", "memory": "1Gi", **devices}
    labels = {"market": market} if market else {}
    container = {"name": "ray-worker", "image": "ray", "resources": {"requests": amounts, "limits": amounts}}
    counts = {"replicas": 0, "minReplicas": 0, "maxReplicas": 10}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    # Of groups that would do as well Ray takes the one with the higher priority.
    return {"groupName": name, **counts, "priority": -1, "rayStartParams": {}, "labels": labels, "template": template}


def three_groups() -> Object:
    """CPU, GPU, and labelled spot, whose pods may grow in place to two CPUs."""
    body = suspended(NAME)
    body["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] = 600
    body["spec"]["workerGroupSpecs"] += [
        worker_group("gpu-group", **{"nvidia.com/gpu": "1"}),
        worker_group("spot-group", "spot"),
    ]
    sizes = {"groups": {"spot-group": {"max-cpu": 2, "max-memory": "1Gi", "resize-timeout": 60}}}
    body["metadata"]["annotations"] = {"muster.dev/node-wait": "2s", "ray.io/ippr": json.dumps(sizes)}
    return body


class Loop:
    """The cluster, and who decides about it."""

    def __init__(self, cluster: RealRayCluster, muster: Deciding) -> None:
        self.cluster, self.muster = cluster, muster

    async def quota(self, cores: int, mine: int, others: int) -> None:
        """Change the tree."""
        body = {"spec": tree(cores, mine, others)["spec"]}
        path = QUOTA_TREES.path("kube-system", "tree")
        assert (await self.cluster.api.call("PATCH", path, body, content_type=MERGE)).status == 200

    async def fixed(self, name: str, namespace: str, workers: int = 1) -> None:
        """Create a cluster of a fixed size."""
        made = suspended(name, replicas=workers, minReplicas=workers, maxReplicas=max(workers, 1))
        made["spec"]["enableInTreeAutoscaling"] = False
        assert (await self.cluster.api.call("POST", RAYCLUSTERS.path(namespace), made)).status == 201

    async def until_admitted(self, name: str, namespace: str) -> None:
        """It runs as far as quota is concerned."""

        async def runs() -> bool:
            found = await self.cluster.api.call("GET", RAYCLUSTERS.path(namespace, name))
            return found.body["spec"]["suspend"] is False

        await self.cluster.settle(runs, LIMIT_S, f"{name} to be admitted")

    async def most(self) -> dict[str, int]:
        """`maxReplicas` of each worker group."""
        found = await self.cluster.api.get(RAYCLUSTERS, self.cluster.name)
        assert found is not None
        return {group["groupName"]: group["maxReplicas"] for group in found["spec"]["workerGroupSpecs"]}


@asynccontextmanager
async def looping(
    plane: ControlPlane, clients: trustme.CA, folder: Path, nats_url: str, *, v2: bool
) -> AsyncIterator[Loop]:
    """Everything runs, and the head alone is admitted."""
    transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
    heads: dict[str, RealRayCluster] = {}
    try:
        await install_crds(transport)
        api = Api(transport, MINE, real=True, server=None)
        for name in (MINE, OTHERS, "muster-system"):
            assert (await api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})).status in (201, 409)
        assert (await api.call("POST", QUOTA_TREES.path("kube-system"), tree())).status == 201

        def address(ref: Any) -> str:
            return heads[ref.name].head.address if ref.name in heads else "127.0.0.1:1"

        async with (
            deciding(plane, nats_url, folder, address) as muster,
            real_cluster(api, plane, clients, folder / "loop", three_groups(), v2=v2) as cluster,
        ):
            heads[NAME] = cluster
            yield Loop(cluster, muster)
            await api.call("DELETE", RAYCLUSTERS.path(MINE, NAME))
    finally:
        await transport.close()
