"""Stands in for a device plugin and a driver: pods that keep a GPU get one of their node's, and report its UUID."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kit.cluster import Cluster
from kit.kubeclient import ApiError
from muster.core.actuation.gpus import NAMESPACE, REPORTED

EVERY_S = 0.1


class Reporter:
    """Reports devices; ``given``: {node: {pod that keeps one: its UUID}}."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.given: dict[str, dict[str, str]] = {}

    async def run(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> None:
        found = await self.cluster.kube.list_objects("v1", "Pod", NAMESPACE)
        names = {pod["metadata"]["name"] for pod in found}
        for given in self.given.values():
            for name in [name for name in given if name not in names]:
                del given[name]
        for pod in found:
            meta, node = pod["metadata"], pod["spec"]["nodeName"]
            if REPORTED in meta.get("annotations", {}):
                continue
            given = self.given.setdefault(node, {})
            has = await self.cluster.kube.find("v1", "Node", node)
            total = int(has["status"]["allocatable"].get("nvidia.com/gpu", 0)) if has else 0
            free = [f"GPU-{node}-{index}" for index in range(total) if f"GPU-{node}-{index}" not in given.values()]
            assert free, f"{meta['name']} asks {node} for a GPU, and all {total} are given: {given}"
            given[meta["name"]] = free[0]
            patch = {"metadata": {"annotations": {REPORTED: free[0]}}}
            with contextlib.suppress(ApiError):
                await self.cluster.kube.patch("v1", "Pod", meta["name"], NAMESPACE, patch=patch)


@contextlib.asynccontextmanager
async def reporting(cluster: Cluster) -> AsyncIterator[Reporter]:
    """While this lasts GPUs are reported; the namespace of the pods that keep them is there, and empty at the end."""
    with contextlib.suppress(ApiError):
        await cluster.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    reporter = Reporter(cluster)
    async with cluster.beside(reporter.run()):
        yield reporter
    for pod in await cluster.kube.list_objects("v1", "Pod", NAMESPACE):
        await cluster.kube.delete("v1", "Pod", pod["metadata"]["name"], NAMESPACE)
