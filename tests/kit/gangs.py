"""Gangs of pods on a real cluster: just as much room as a test wants, pods with marks, and what became of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kit.cluster import Cluster, add_nodes, takes_pods
from kit.kubeclient import Object
from muster.model.api import POD_GROUPS, ApiResource

LABEL = "pod-group.scheduling.sigs.k8s.io"
X_LABEL = "scheduling.x-k8s.io/pod-group"
ANNOTATION = "gang.scheduling.koordinator.sh"
SLOT = "example.com/slot"
"""A resource of the nodes of these tests alone: a node has as many slots as a test says, and every pod takes one."""


def labels(gang: str, minimum: int | str) -> dict[str, str]:
    """The marks of a gang that is declared by labels alone."""
    return {f"{LABEL}/name": gang, f"{LABEL}/min-available": str(minimum)}


def pod(
    name: str,
    marks: dict[str, str] | None = None,
    *,
    notes: dict[str, str] | None = None,
    namespace: str = "video",
    scheduler: str = "muster",
    asks: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod that takes one slot. ``marks``: its labels; ``notes``: its annotations."""
    container = {"name": "main", "image": "example.invalid/none", "resources": {"limits": asks or {SLOT: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": marks or {}, "annotations": notes or {}},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


@contextlib.asynccontextmanager
async def room(cluster: Cluster, **nodes: dict[str, str] | int) -> AsyncIterator[None]:
    """While this lasts the cluster has these nodes and no other: {name: resources, or how many slots}."""
    await _clear(cluster)
    for name, resources in nodes.items():
        await add_node(cluster, name.replace("_", "-"), resources)
    try:
        yield
    finally:
        await cluster.sweep()
        await _clear(cluster)
        await add_nodes(cluster.plane)


async def add_node(cluster: Cluster, name: str, resources: dict[str, str] | int) -> None:
    """A node that takes pods by the time this returns."""
    slots = {SLOT: str(resources)} if isinstance(resources, int) else resources
    has = {"cpu": "64", "memory": "256Gi", "pods": "110", **slots}
    made = {"metadata": {"name": name}, "status": {"capacity": has, "allocatable": has}}
    await cluster.kube.create({"apiVersion": "v1", "kind": "Node", **made})
    await cluster.until(lambda: takes_pods(cluster.kube, name), 60.0, f"node {name} to be ready")


async def _clear(cluster: Cluster) -> None:
    for node in await cluster.kube.list_objects("v1", "Node"):
        await cluster.kube.delete("v1", "Node", node["metadata"]["name"])

    async def gone() -> bool:
        return not await cluster.kube.list_objects("v1", "Node")

    await cluster.until(gone, what="the nodes to be gone")


class Sight:
    """What users see of the pods of a namespace."""

    def __init__(self, cluster: Cluster, namespace: str = "video") -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def create(self, *pods: Object) -> None:
        for each in pods:
            await self.cluster.kube.create(each)

    async def phases(self) -> dict[str, str]:
        return await self.cluster.pods(self.namespace)

    async def bound(self) -> dict[str, str]:
        """{pod: node} of those that have one."""
        found = await self.cluster.kube.list_objects("v1", "Pod", self.namespace)
        return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in found if each["spec"].get("nodeName")}

    async def all_bound(self, *names: str, timeout_s: float = 60.0) -> None:
        async def done() -> bool:
            return {*names} <= (await self.bound()).keys()

        await self.cluster.until(done, timeout_s, f"{names} to be bound")

    async def events(self, reason: str) -> list[Object]:
        """As ``kubectl get events --field-selector type=Warning,reason=...`` lists them, the oldest first."""
        selector = f"type=Warning,reason={reason}"
        found = await self.cluster.kube.list_objects("v1", "Event", self.namespace, fields=selector)
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    async def told(self, reason: str) -> dict[str, str]:
        """{object: message} of those events; of several on one object the newest."""
        return {each["involvedObject"]["name"]: each["message"] for each in await self.events(reason)}

    async def pod_group(self, name: str, resource: ApiResource = POD_GROUPS[1]) -> Object | None:
        return await self.cluster.kube.find(resource.api_version, "PodGroup", name, self.namespace)

    async def group_status(self, name: str, resource: ApiResource = POD_GROUPS[1]) -> Object:
        found = await self.pod_group(name, resource)
        return dict((found or {}).get("status") or {})

    async def phase_of_group(self, name: str, phase: str, resource: ApiResource = POD_GROUPS[1]) -> Object:
        """The status of a PodGroup, once it is in this phase."""

        async def reached() -> Object | None:
            status = await self.group_status(name, resource)
            return status if status.get("phase") == phase else None

        found = await self.cluster.until(reached, 60.0, f"PodGroup {name} to be {phase}")
        assert found is not None
        return found
