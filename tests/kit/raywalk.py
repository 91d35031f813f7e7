"""A RayCluster that scales itself on a real API server, with Muster in this process: what tests of it do to it.

The operator is the simulated one and its pods are real; the autoscaler writes what Ray's writes (`kit.rayscaler`), and
what a head says goes the way of the reader's facts.
"""

from __future__ import annotations

import time
from typing import Any

from kit.cluster import RAY
from kit.elastic import raycluster
from kit.kubeclient import Object
from kit.muster import Muster
from kit.rayscaler import RayScaler
from muster.core.autoscaling.bridgestate import heads, news
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested
from muster.events.facts import PodObserved
from muster.events.raydemand import RayDemandObserved
from muster.runtime.runners.leader import Leader

NAME, NAMESPACE = "raycluster-autoscaler", "video"


class Walk:
    """One RayCluster, its autoscaler, and Muster."""

    def __init__(self, muster: Muster, name: str = NAME, namespace: str = NAMESPACE) -> None:
        self.muster, self.cluster, self.kube = muster, muster.cluster, muster.cluster.kube
        self.name, self.namespace = name, namespace
        self.scaler = RayScaler(idle_ms=1_000)
        self.bridge = self._leader("autoscaler_bridge")

    def _leader(self, stage: str) -> Leader[Any]:
        return next(
            each for each in self.muster.process.runners if isinstance(each, Leader) and each.stage.name == stage
        )

    async def create(self, **group: Any) -> None:
        await self.kube.create(raycluster(self.name, self.namespace, **group))
        await self.cluster.until(self.head_runs, 60.0, "the head to run")

    async def head_runs(self) -> bool:
        pods = await self.pods("head")
        return bool(pods) and pods[0].get("status", {}).get("phase") == "Running"

    async def pods(self, node_type: str = "worker") -> list[Object]:
        labels = f"ray.io/cluster={self.name},ray.io/node-type={node_type}"
        found: list[Object] = await self.kube.list_objects("v1", "Pod", self.namespace, labels=labels)
        return found

    async def object(self) -> Object:
        return await self.kube.get(RAY, "RayCluster", self.name, self.namespace)

    async def sizes(self) -> tuple[int, int, int]:
        """(replicas, maxReplicas, workers)."""
        group = (await self.object())["spec"]["workerGroupSpecs"][0]
        return group.get("replicas", 0), group["maxReplicas"], len(await self.pods())

    async def tick(self) -> None:
        """One look of the autoscaler, and one of whoever reads the head."""
        pods = [*await self.pods(), *await self.pods("head")]
        ops = self.scaler.tick(await self.object(), pods, time.time_ns() // 1_000_000)
        if ops:
            await self.kube.patch(RAY, "RayCluster", self.name, self.namespace, patch=ops)
        for ref, attempt in heads(self.bridge.state):
            if (ref.namespace, ref.name) != (self.namespace, self.name):
                continue
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

    async def until_placed(self, timeout_s: float = 30.0) -> None:
        """Let it tick until nothing waits."""

        async def placed() -> bool:
            await self.tick()
            return not self.scaler.waiting

        await self.cluster.until(placed, timeout_s, "everything to have a worker", every_s=0.3)

    def charged(self) -> int:
        """cpu, in thousandths."""
        ledger = self._leader("quota_accountant").state.ledger
        return sum(charge.request.get("cpu", 0) for charge in ledger.charges.values())

    async def until_charged(self, cpu: int) -> None:
        await self.cluster.until(lambda: self.charged() == cpu, 30.0, f"{cpu} to be charged")

    async def firsts(self) -> list[int]:
        """Where in the log a demand, its request, grant, write and worker, pod and place, stand first."""
        found: dict[str, int] = {}
        for number, stored in enumerate(await self.muster.commits()):
            for event in stored.commit.events:
                match event:
                    case RayDemandObserved() if event.demand.pending:
                        found.setdefault("demand", number)
                    case GrowthRequested() | GrowthGranted():
                        found.setdefault(type(event).__name__, number)
                    case GateSet() if any(event.most.values()):
                        found.setdefault("gate", number)
                    case EffectApplied(action="gate"):
                        if "gate" in found:
                            found.setdefault("written", number)
                    case PodObserved() if event.pod.labels.get("ray.io/node-type") == "worker":
                        found.setdefault("pod", number)
                        if event.pod.node:
                            found.setdefault("bound", number)
                    case _:
                        pass
        chain = ("demand", "GrowthRequested", "GrowthGranted", "gate", "written", "pod", "bound")
        return [found[each] for each in chain]

    async def told(self, kind: Any) -> list[Any]:
        return [
            event for stored in await self.muster.commits() for event in stored.commit.events if isinstance(event, kind)
        ]
