"""A Ray cluster on a real API server for Muster's services as processes: its head answers, its autoscaler patches.

Its operator is the simulated one (`kit.cluster`), and what its autoscaler wants is that of `kit.rayscaler`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from kit.cluster import RAY, Cluster
from kit.elastic import raycluster
from kit.kubeclient import ApiError, Object
from kit.rayhead import FakeGcs, gang, node, request, status
from kit.rayscaler import RayScaler
from muster.model.raydemand import RAY_UNIT, RayShape
from muster.ray import ray_head_pb2 as pb

TICK_S = 0.3


class PlayedRay:
    """``await create()``, then let `run` run beside the test. ``scaler``: the test gives it work."""

    def __init__(self, cluster: Cluster, gcs: FakeGcs, name: str, namespace: str) -> None:
        self.cluster, self.gcs, self.name, self.namespace = cluster, gcs, name, namespace
        self.scaler = RayScaler(idle_ms=2_000)
        self.ticks = 0
        self.workers: set[str] = set()
        """uids of every worker pod there ever was."""

    async def create(self, **group: Any) -> None:
        """Create it; returns when its head runs."""
        await self.cluster.kube.create(raycluster(self.name, self.namespace, **group))
        await self.cluster.until(self._head_runs, 60.0, "the head to run")
        self.cluster.keep(self.run())

    async def run(self) -> None:
        """Tick until the cluster is gone."""
        while (found := await self.cluster.kube.find(RAY, "RayCluster", self.name, self.namespace)) is not None:
            await self.tick(found)
            await asyncio.sleep(TICK_S)
        await asyncio.Event().wait()

    async def tick(self, found: Object) -> None:
        """One look of the autoscaler; what a head would say then is what it says."""
        pods, now = await self.pods(), time.time_ns() // 1_000_000
        self.scaler.leaving |= {order.node_id.decode() for order in self.gcs.drained}
        ops = self.scaler.tick(found, pods, now)
        if ops:
            with contextlib.suppress(ApiError):  # Refused: it looks again.
                await self.cluster.kube.patch(RAY, "RayCluster", self.name, self.namespace, patch=ops)
        self.ticks += 1
        self.gcs.actors = [pod.encode() for pod in self.scaler.demand().pinned]
        self.gcs.status = self._says(now)

    async def pods(self, node_type: str = "worker") -> list[Object]:
        """Those that are not going, too."""
        labels = f"ray.io/cluster={self.name},ray.io/node-type={node_type}"
        found: list[Object] = await self.cluster.kube.list_objects("v1", "Pod", self.namespace, labels=labels)
        if node_type == "worker":
            self.workers |= {pod["metadata"]["uid"] for pod in found}
        return found

    async def until_workers(self, count: int, timeout_s: float = 90.0) -> set[str]:
        """Their names, once there are so many, all run, and nothing of the group is on its way."""
        found: list[int] = []
        names: set[str] = set()

        async def there() -> bool:
            nonlocal names
            names = {pod["metadata"]["name"] for pod in await self.pods()}
            group = (await self.cluster.kube.get(RAY, "RayCluster", self.name, self.namespace))["spec"]
            found[:] = len(names), len(self.scaler.live), group["workerGroupSpecs"][0].get("replicas", 0)
            return found == [count] * 3

        await self.cluster.until(there, timeout_s, f"{count} workers", every_s=0.1)
        return names

    async def _head_runs(self) -> bool:
        pods = await self.pods("head")
        return bool(pods) and pods[0].get("status", {}).get("phase") == "Running"

    def _says(self, now: int) -> pb.GetClusterStatusReply:
        demand = self.scaler.demand()
        idle = {each.pod: each.since for each in demand.idle}
        nodes = [
            node(
                pod,
                self.scaler.group,
                pb.DRAINING if pod in self.scaler.leaving else pb.IDLE if pod in idle else pb.RUNNING,
                idle_duration_ms=now - idle.get(pod, now),
            )
            for pod in self.scaler.live
        ]
        pending = [request(_bundle(shape), shape.count) for shape in (*demand.pending, *demand.infeasible)]
        gangs = [
            gang(each.name, each.strategy, [_bundle(shape) for shape in each.bundles for _ in range(shape.count)])
            for each in demand.placement_groups
        ]
        ticks = pb.AutoscalingState(last_seen_cluster_resource_state_version=self.ticks)
        return status(*nodes, pending=pending, gangs=gangs, autoscaling=ticks)


def _bundle(shape: RayShape) -> dict[str, float]:
    return {name: amount / RAY_UNIT for name, amount in shape.resources.items()}
