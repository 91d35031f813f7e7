"""Pods that take a share of a GPU, on a real API server: which device each has is written on it as it is bound."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kit.cluster import Cluster
from kit.controlplane import ControlPlane
from kit.gangs import Sight, add_node, labels, pod, room
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import GPU_DEVICE
from muster.events.gangs import GangHeldBack

CPU = {"cpu": "100m"}


async def devices(cluster: Cluster) -> dict[str, str]:
    """{pod: what its annotation says} of those that have one."""
    found = await cluster.kube.list_objects("v1", "Pod", "video")
    return {
        each["metadata"]["name"]: each["metadata"]["annotations"][GPU_DEVICE]
        for each in found
        if GPU_DEVICE in each["metadata"].get("annotations", {})
    }


async def test_pods_that_share_a_gpu_have_its_number(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, room(cluster):
        sight = Sight(cluster)
        await add_node(cluster, "two-gpus", {"nvidia.com/gpu": "2"})
        half = {"gpu-fraction": "0.5"}
        names = [f"half-{index}" for index in range(4)]
        async with running(cluster, nats_server.url, tmp_path):
            gang = labels("shares", 4)
            await sight.create(*(pod(name, gang, notes=half, asks=CPU) for name in names))
            await sight.all_bound(*names)
            told = await devices(cluster)
            assert told.keys() == {*names}
            assert Counter(told.values()) == {"0": 2, "1": 2}, "two on each of the two"
            annotations = (await cluster.kube.find("v1", "Pod", names[0], "video"))["metadata"]["annotations"]
            assert annotations["gpu-fraction"] == "0.5", "what was there stays"
        # The log is lost: another one knows from the pods themselves that nothing is left of either.
        (tmp_path / "after").mkdir()
        async with running(cluster, nats_server.url, tmp_path / "after") as muster:
            await sight.create(pod("fifth", notes=half, asks=CPU), pod("odd", notes={"gpu-fraction": "1.5"}, asks=CPU))

            async def both_told() -> dict[str, GangHeldBack]:
                held = {event.pods[0].name: event for event in await muster.happened(GangHeldBack)}
                return held if held.keys() == {"fifth", "odd"} else {}

            held = await cluster.until(both_told, 60.0, "both to be told why they wait")
            fifth, odd = held["fifth"].shortage, held["odd"].shortage
            assert fifth is not None
            assert odd is not None
            assert [each.detail for each in fifth.obstacles] == ["nvidia.com/gpu"]
            assert "gpu-fraction: '1.5' is not a number between 0 and 1" in str(odd.obstacles)
            assert (await sight.bound()).keys() == {*names}
            await cluster.kube.delete("v1", "Pod", "half-0", "video")
            await sight.all_bound("fifth")
            assert (await devices(cluster))["fifth"] == told["half-0"], "the half that became free"
