"""A gang that fits its quota and not the nodes, on a real API server: told with the real nodes, then let in whole."""

from __future__ import annotations

from pathlib import Path

from kit import facts
from kit.cluster import NODES, Cluster, document_job
from kit.controlplane import ControlPlane
from kit.gangs import add_node, room
from kit.kubeclient import Object
from kit.muster import running
from kit.story import rayjob
from muster.bus.server import EmbeddedServer
from muster.events.decisions import GangAdmitted, GangDeferred, QuotaReleased
from muster.events.envelope import Stored
from muster.events.facts import NodeObserved, PodGone, PodObserved
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.system import PlacementChosen

MERGE = "application/merge-patch+json"


async def cordon(cluster: Cluster, *, closed: bool) -> None:
    for index in range(NODES):
        spec = {"spec": {"unschedulable": closed or None}}
        await cluster.kube.request("PATCH", f"/api/v1/nodes/node-{index}", body=spec, content_type=MERGE)


async def test_a_gang_waits_for_nodes_and_starts_whole(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    try:
        await cordon(cluster, closed=True)
        async with running(cluster, nats_server.url, tmp_path, placement="pack") as muster:
            chosen = await cluster.until(lambda: muster.happened(PlacementChosen), what="the placement to be chosen")
            assert [each.mode for each in chosen] == ["pack"]

            async def known() -> bool:
                return len({event.node.ref.name for event in await muster.happened(NodeObserved)}) == NODES

            await cluster.until(known, what="the nodes to be known")
            await cluster.apply_tree()
            await cluster.submit(document_job(name="one", runtime="1h"))
            told = f"0/{NODES} nodes are available: {NODES} node(s) were unschedulable"

            async def said() -> bool:
                return told in await cluster.message("one")

            await cluster.until(said, what="the QueueUnit to say what the gang lacks")
            assert (await cluster.job("one"))["spec"]["suspend"] is True
            assert not await muster.happened(GangAdmitted)

            await cordon(cluster, closed=False)
            await cluster.until(lambda: cluster.running("one"), timeout_s=60, what="the job to run")
            admitted = await muster.happened(GangAdmitted, "one")
            assert len(admitted) == 1
            placed = {(each.pod_set, each.count) for each in admitted[0].placements}
            assert sum(count for _, count in placed) == 4  # head, two workers, and the submitter beside them
            assert {each.node for each in admitted[0].placements} <= {f"node-{index}" for index in range(NODES)}
            assert await muster.happened(GangDeferred, "one")
    finally:
        await cordon(cluster, closed=False)


def job(name: str, cpu: str) -> Object:
    """A head and one worker, that many cpu each."""
    return rayjob(name, runtime="600s", replicas=1, cpu=cpu, submissionMode="HTTPMode")


def small_pods_before(commits: list[Stored], name: str) -> set[str]:
    """The pods of small jobs that were there when a job was let in."""
    live: dict[str, str] = {}
    for stored in commits:
        for event in stored.commit.events:
            match event:
                case PodObserved(pod=pod) if not pod.over:
                    live[pod.ref.uid] = pod.ref.name
                case PodObserved(pod=pod):
                    live.pop(pod.ref.uid, None)
                case PodGone(ref=ref):
                    live.pop(ref.uid, None)
                case GangAdmitted(ref=ref) if ref.name == name:
                    return {pod for pod in live.values() if pod.startswith("small-")}
    raise AssertionError(f"{name} was not let in")


async def test_a_big_gang_claims_nodes_that_small_ones_keep_full(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    plenty = {"cpu": 1000, "memory": "1000Gi"}
    root = facts.node("root", plenty, plenty, children=(facts.node("video", {}, plenty, ("video",)),))
    eight = {"cpu": "8"}
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        room(cluster, one=eight, two=eight),
        running(cluster, nats_server.url, tmp_path, placement="pack") as muster,
    ):
        await cluster.apply_tree(root)
        small = [f"small-{index}" for index in range(4)]
        for name in small:
            await cluster.submit(job(name, "2"))
        for name in small:
            await cluster.until(lambda name=name: cluster.running(name), 90.0, f"{name} to run")  # type: ignore[misc]
        await cluster.submit(job("big", "5"))
        await cluster.until(lambda: muster.happened(GangDeferred, "big"), 90.0, "it to find no places")
        # On nodes too small for the big one, work of eight times its width passes it.
        passing = [f"passing-{index}" for index in range(28)]
        for name in passing:
            await add_node(cluster, f"node-{name}", {"cpu": "4"})
            await cluster.submit(job(name, "2"))
        await cluster.until(lambda: muster.happened(NodesClaimed, "big"), 90.0, "it to claim nodes")
        await cluster.delete_job(small[0])
        await cluster.until(lambda: muster.happened(QuotaReleased, small[0]), 90.0, "its room to be free")
        await cluster.submit(job("late", "2"))

        async def told() -> bool:
            return "are kept for video/big" in await cluster.message("late")

        await cluster.until(told, 90.0, "the later job to say which gang the free places are kept for")
        assert not await muster.happened(GangAdmitted, "late")
        for name in small[1:]:
            await cluster.delete_job(name)
        await cluster.until(lambda: cluster.running("big"), 150.0, "the big one to run")
        assert [each.outcome for each in await muster.happened(NodesClaimEnded, "big")] == ["placed"]
        await cluster.until(lambda: cluster.running("late"), 150.0, "the late one to run beside it")
        # Until all the room was there neither of them was let in.
        admitted = [event.ref.name for event in await muster.happened(GangAdmitted)]
        assert sorted(admitted) == sorted(["big", "late", *small, *passing])
        assert small_pods_before(await muster.commits(), "late") == set()
