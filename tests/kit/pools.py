"""Node pools on a real cluster: what an operator declares, and what an autoscaler would do, done by the test."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from kit.cluster import Cluster
from kit.kubeclient import Object
from kit.muster import Muster
from muster.core.objects.nodepools import NAME, NAMESPACE
from muster.events.facts import NodePoolsObserved
from muster.model.api import POD_TEMPLATES, PROVISIONING_REQUESTS

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
POOL = "kit.muster.dev/pool"


def pool(most: int, resources: dict[str, str], name: str = "gpu", **changes: Any) -> dict[str, Any]:
    """What is declared of a pool whose nodes have the label `kit.muster.dev/pool`."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", **resources}
    return {"maxNodes": most, "allocatable": allocatable, "labels": {POOL: name}, "class": ATOMIC, **changes}


@contextlib.asynccontextmanager
async def declared(muster: Muster, **pools: dict[str, Any]) -> AsyncIterator[None]:
    """While this lasts these pools are declared, and known: whoever needs nodes is told of them from the start."""
    cluster = muster.cluster
    if await cluster.kube.find("v1", "Namespace", NAMESPACE) is None:
        await cluster.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    await declare(cluster, **pools)

    async def known() -> bool:
        seen = await muster.happened(NodePoolsObserved)
        return bool(seen) and {pool.name for pool in seen[-1].pools} == {*pools}

    try:
        await cluster.until(known, 60.0, "the pools to be known")
        yield
    finally:
        await cluster.kube.delete("v1", "ConfigMap", NAME, NAMESPACE)


async def declare(cluster: Cluster, **pools: dict[str, Any]) -> None:
    """`kubectl apply` of the ConfigMap."""
    data = {name: json.dumps(each) for name, each in pools.items()}
    if await cluster.kube.find("v1", "ConfigMap", NAME, NAMESPACE) is not None:
        patch = [{"op": "replace", "path": "/data", "value": data}]
        await cluster.kube.patch("v1", "ConfigMap", NAME, NAMESPACE, patch=patch)
        return
    meta = {"name": NAME, "namespace": NAMESPACE}
    await cluster.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


async def requests(cluster: Cluster) -> list[Object]:
    """Every ProvisioningRequest there is."""
    return await cluster.kube.list_objects(PROVISIONING_REQUESTS.api_version, "ProvisioningRequest")


async def templates(cluster: Cluster) -> dict[str, Object]:
    """Every PodTemplate there is, by name."""
    found = await cluster.kube.list_objects(POD_TEMPLATES.api_version, "PodTemplate")
    return {each["metadata"]["name"]: each for each in found}


async def cleared(cluster: Cluster) -> bool:
    """Whether nothing of any request is left."""
    return not await requests(cluster) and not await templates(cluster)


async def asked(cluster: Cluster, resource: str) -> int:
    """How much of a resource is asked for, all requests together."""
    known, total = await templates(cluster), 0
    for request in await requests(cluster):
        for each in request["spec"]["podSets"]:
            [container] = known[each["podTemplateRef"]["name"]]["template"]["spec"]["containers"]
            total += each["count"] * int(container["resources"]["requests"].get(resource, "0"))
    return total


async def answer(cluster: Cluster, request: Object, condition: str, message: str = "") -> None:
    """The autoscaler says how far it has come."""
    entry = {
        "type": condition,
        "status": "True",
        "reason": condition,
        "message": message,
        "lastTransitionTime": "2025-01-10T01:36:24Z",
    }
    meta = request["metadata"]
    path = PROVISIONING_REQUESTS.path(meta["namespace"], meta["name"], "status")
    body = {**request, "status": {"conditions": [entry]}}
    await cluster.kube.request("PUT", path, body=body)


async def join(cluster: Cluster, name: str, resources: dict[str, str], of: str = "gpu") -> None:
    """A node of a pool joins."""
    has = {"cpu": "64", "memory": "256Gi", "pods": "110", **resources}
    made = {"metadata": {"name": name, "labels": {POOL: of}}, "status": {"capacity": has, "allocatable": has}}
    await cluster.kube.create({"apiVersion": "v1", "kind": "Node", **made})
