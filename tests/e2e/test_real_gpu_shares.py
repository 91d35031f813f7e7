"""Pods that share GPUs, on a real API server: which device each has is reserved, told and freed again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kit.cluster import Cluster
from kit.controlplane import ControlPlane
from kit.gangs import Sight, add_node, labels, pod, room
from kit.gpus import reporting
from kit.kubeclient import Object
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.core.actuation.podwrites import CONFIG_MAP
from muster.core.objects.gpushares import BAD_FRACTION, GROUP, RESERVATIONS
from muster.core.objects.meta import GPU_DEVICE, GPU_PORTION, GPU_UUIDS
from muster.events.gangs import GangHeldBack

CPU = {"cpu": "100m"}


async def pods(cluster: Cluster) -> dict[str, Object]:
    """{name: metadata} of the pods that have a node."""
    found = await cluster.kube.list_objects("v1", "Pod", "video")
    return {each["metadata"]["name"]: each["metadata"] for each in found if each["spec"].get("nodeName")}


async def devices(cluster: Cluster) -> dict[str, str]:
    """{pod: the number of its device}"""
    return {name: meta["annotations"][GPU_DEVICE] for name, meta in (await pods(cluster)).items()}


async def kept(cluster: Cluster) -> dict[str, str]:
    """{group: node} of the devices that are reserved."""
    found = await cluster.kube.list_objects("v1", "Pod", RESERVATIONS)
    return {each["metadata"]["labels"][GROUP]: each["spec"]["nodeName"] for each in found}


async def test_pods_that_share_a_gpu_are_one_group_on_one_device(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, room(cluster), reporting(cluster):
        sight = Sight(cluster)
        await add_node(cluster, "two-gpus", {"nvidia.com/gpu": "2"})
        half = {"gpu-fraction": "0.5"}
        names = [f"half-{index}" for index in range(4)]
        async with running(cluster, nats_server.url, tmp_path):
            gang = labels("shares", 4)
            named = {"gpu-fraction": "0.5", CONFIG_MAP: "half-0-abcdefg-shared-gpu"}
            await sight.create(*(pod(name, gang, notes=half, asks=CPU) for name in names[1:]))
            await sight.create(pod(names[0], gang, notes=named, asks=CPU))
            await sight.all_bound(*names)
            found = await pods(cluster)
            told = await devices(cluster)
            assert Counter(told.values()) == {"0": 2, "1": 2}, "two on each of the two"
            groups = {name: meta["labels"][GROUP] for name, meta in found.items()}
            uuids = {name: meta["annotations"][GPU_UUIDS] for name, meta in found.items()}
            for one in names:
                for other in names:
                    same = told[one] == told[other]
                    assert (groups[one] == groups[other]) == same == (uuids[one] == uuids[other])
            assert {*uuids.values()} == {"GPU-two-gpus-0", "GPU-two-gpus-1"}
            assert {meta["annotations"][GPU_PORTION] for meta in found.values()} == {"0.5"}
            assert found[names[1]]["annotations"]["gpu-fraction"] == "0.5", "what was there stays"
            assert await kept(cluster) == dict.fromkeys(groups.values(), "two-gpus")
            config = await cluster.kube.get("v1", "ConfigMap", "half-0-abcdefg-shared-gpu-0", "video")
            assert config["data"] == {
                "NVIDIA_VISIBLE_DEVICES": uuids["half-0"],
                "RUNAI_NUM_OF_GPUS": "0.5",
                "GPU_PORTION": "0.5",
            }
            assert config["metadata"]["ownerReferences"][0]["uid"] == found["half-0"]["uid"]
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
            assert odd.unsupported == BAD_FRACTION
            assert (await sight.bound()).keys() == {*names}
            await cluster.kube.delete("v1", "Pod", "half-0", "video")
            await sight.all_bound("fifth")
            assert (await devices(cluster))["fifth"] == told["half-0"], "the half that became free"
            assert (await pods(cluster))["fifth"]["labels"][GROUP] == groups["half-0"]
            # Nobody is left on a device: it goes back to the device plugin, and a whole GPU may have it.
            on_other = [name for name in names[1:] if groups[name] != groups["half-0"]]
            await sight.create(pod("whole", asks={"nvidia.com/gpu": "1"}))
            for name in on_other:
                await cluster.kube.delete("v1", "Pod", name, "video")
            await sight.all_bound("whole")

            async def one_is_kept() -> bool:
                return await kept(cluster) == {groups["half-0"]: "two-gpus"}

            await cluster.until(one_is_kept, 60.0, "the other device to be free")


async def test_many_shares_at_once_never_come_to_more_than_a_device(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, room(cluster), reporting(cluster):
        sight = Sight(cluster)
        await add_node(cluster, "one", {"nvidia.com/gpu": "2"})
        await add_node(cluster, "two", {"nvidia.com/gpu": "2"})
        async with running(cluster, nats_server.url, tmp_path):
            names = [f"third-{index}" for index in range(12)]
            await sight.create(*(pod(name, notes={"gpu-fraction": "0.3"}, asks=CPU) for name in names))
            await sight.all_bound(*names)
            found = await pods(cluster)
            assert Counter(meta["labels"][GROUP] for meta in found.values()) == Counter(
                dict.fromkeys(await kept(cluster), 3)
            )
            both = {"gpu-fraction": "0.6", "gpu-fraction-num-devices": "2"}
            for name in names:
                await cluster.kube.delete("v1", "Pod", name, "video")
            await sight.create(pod("both", notes=both, asks=CPU))
            await sight.all_bound("both")
            meta = (await pods(cluster))["both"]
            groups = [key.partition("/")[2] for key in meta["labels"] if key.startswith(f"{GROUP}/")]
            assert len({*groups}) == 2
            assert len({*meta["annotations"][GPU_UUIDS].split(",")}) == 2
