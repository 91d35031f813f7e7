"""A gang that fits its quota and not the nodes, on a real API server: told with the real nodes, then let in whole."""

from __future__ import annotations

from pathlib import Path

from kit.cluster import NODES, Cluster, document_job
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.events.decisions import GangAdmitted, GangDeferred
from muster.events.facts import NodeObserved
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
            await cluster.submit(document_job(name="one"))
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
