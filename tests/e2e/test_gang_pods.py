"""Gangs of bare pods on a real API server: bound together by us, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit.cluster import Cluster
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.events.effects import EffectApplied
from muster.events.gangs import PodsPlaced

SIGS = "pod-group.scheduling.sigs.k8s.io"
NAMESPACE = "video"


def member(name: str, gang: str = "tf-smoke", minimum: int = 3, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "labels": {f"{SIGS}/name": gang, f"{SIGS}/min-available": str(minimum)}},
        "spec": {
            "schedulerName": "muster",
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


async def nodes_of(cluster: Cluster) -> dict[str, str]:
    listed = await cluster.kube.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed["items"]}


async def test_three_pods_are_bound_together(cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with running(cluster, nats_server.url, tmp_path) as muster:
        for name in ("a", "b"):
            await cluster.kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=member(name))

        async def two_known() -> bool:
            return len(await nodes_of(cluster)) == 2

        await cluster.until(two_known, what="two pods")
        assert set((await nodes_of(cluster)).values()) == {""}
        await cluster.kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=member("c"))

        async def bound() -> bool:
            return all((await nodes_of(cluster)).values())

        await cluster.until(bound, what="three pods to be bound")
        placed = await muster.happened(PodsPlaced)
        assert len(placed) == 1
        assert placed[0].gangs == (f"{NAMESPACE}/tf-smoke",)
        assert {each.ref.name: each.node for each in placed[0].pods} == await nodes_of(cluster)

        async def told() -> bool:
            return len([each for each in await muster.happened(EffectApplied) if each.action == "bind"]) == 3

        await cluster.until(told, what="three effects")
