"""Row C27 of the compatibility table with node pools: one request for all that is missing, and only where it helps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kit import facts, pools
from kit.cluster import Cluster
from kit.controlplane import ControlPlane
from kit.gangs import Sight
from kit.muster import Muster
from kit.tfjob import GANG, GPU, GPUS, PODS, demo, on_four_gpus
from kit.why import why
from muster.bus.server import EmbeddedServer
from muster.core.objects.nodepools import NAME, NAMESPACE
from muster.events.decisions import GangAwaitingNodes, GangDeferred, QuotaDenied
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.events.growing import NodesRequested, NodesRequestWithdrawn


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Jobs are placed."""
    async with on_four_gpus(muster_plane, nats_server.url, tmp_path, placement="pack") as found:
        yield found


async def held(muster: Muster) -> GangHeldBack | None:
    told = [each for each in await muster.happened(GangHeldBack) if each.gang == GANG and each.reason == "no_nodes"]
    return told[-1] if told else None


async def reasons(cluster: Cluster) -> set[str]:
    """Why the pods have no node, as their condition PodScheduled says."""
    conditions = [
        condition
        for each in await cluster.kube.list_objects("v1", "Pod", "video")
        for condition in each["status"].get("conditions") or ()
    ]
    return {each.get("reason", "") for each in conditions if each["type"] == "PodScheduled"}


async def test_c27_one_request_for_the_whole_missing_set(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    async with pools.declared(muster, gpu=pools.pool(2, GPUS)):
        await cluster.submit(demo())
        [request] = await cluster.until(lambda: pools.requests(cluster), 60.0, "nodes to be asked for")
        assert request["metadata"]["namespace"] == "video"
        assert request["spec"]["provisioningClassName"] == pools.ATOMIC
        assert await pools.asked(cluster, GPU) == 4
        told = await held(muster)
        assert told is not None and told.growth is not None
        assert [(each.pool, each.nodes) for each in told.growth.pools] == [("gpu", 1)]
        await cluster.until(lambda: sight.told("GangFailedScheduling"), 60.0, "the pods to be told")
        assert "asked for: 1 node of pool gpu" in next(iter((await sight.told("GangFailedScheduling")).values()))
        # An autoscaler that looks at pods one by one is told nothing: it would add nodes for some of them.
        assert await reasons(cluster) <= {"NodesRequested"}
        await pools.answer(cluster, request, "Accepted")
        assert await sight.bound() == {}

        await pools.join(cluster, "gpu-1", GPUS)
        await sight.all_bound(*PODS)
        [decision] = await muster.happened(PodsPlaced)
        assert {each.ref.name for each in decision.pods} == PODS

        await cluster.until(lambda: pools.cleared(cluster), 60.0, "the request to be removed")
    assert len(await muster.happened(NodesRequested)) == 1
    [end] = await muster.happened(NodesRequestWithdrawn)
    assert end.reason == "met"


async def test_c27_none_where_the_pool_may_not_have_that_many(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    async with pools.declared(muster, gpu=pools.pool(0, GPUS), wrong=pools.pool(5, GPUS) | {"class": "soon"}):
        await cluster.submit(demo())
        await cluster.until(lambda: sight.told("GangFailedScheduling"), 60.0, "the pods to be told")
        message = next(iter((await sight.told("GangFailedScheduling")).values()))
        assert "pool gpu: max 0 nodes, has 0, the gang needs 1 more" in message
        assert await pools.requests(cluster) == []
        assert await reasons(cluster) <= {"NoNodePool"}
        [config] = await cluster.kube.list_objects("v1", "ConfigMap", NAMESPACE, fields=f"metadata.name={NAME}")

        async def refused() -> list[str]:
            events = await cluster.events(config["metadata"]["uid"])
            return [each["message"] for each in events if each["reason"] == "NodePoolRefused"]

        [refusal] = await cluster.until(refused, 60.0, "the pool that cannot be read to be refused")
        assert "data[wrong].class: 'soon' is neither the class of a ProvisioningRequest" in refusal
        # The operator lets it have one: that is asked for at once.
        await pools.declare(cluster, gpu=pools.pool(1, GPUS))
        await cluster.until(lambda: pools.requests(cluster), 60.0, "the node to be asked for")
        assert await pools.asked(cluster, GPU) == 4


async def test_c27_none_while_quota_refuses(muster: Muster) -> None:
    """A job that waits in its queue: while it has no quota nobody asks for anything; then all of it at once."""
    cluster = muster.cluster
    whole = {"cpu": 40, "memory": 40 << 30, GPU: 8}
    small = {**whole, GPU: 4}

    def tree(most: dict[str, int]) -> facts.TreeNodeSpec:
        return facts.node("root", most, most, children=(facts.node("a", most, most, ("video",)),))

    async with pools.declared(muster, gpu=pools.pool(2, GPUS)):
        await cluster.apply_tree(tree(small))
        await cluster.submit(demo(suspend=True))

        async def denied() -> bool:
            return bool(await muster.happened(QuotaDenied, "tf-smoke-gpu"))

        await cluster.until(denied, 60.0, "quota to refuse it")
        assert await pools.requests(cluster) == []
        assert await muster.happened(GangAwaitingNodes) == await muster.happened(GangDeferred) == []
        await cluster.apply_tree(tree(whole))
        await cluster.until(lambda: pools.requests(cluster), 60.0, "nodes to be asked for")
        assert await pools.asked(cluster, GPU) == 4

        async def told() -> list[str]:
            events = await cluster.kube.list_objects("v1", "Event", "video", fields="involvedObject.kind=TFJob")
            return [each["message"] for each in events if each["reason"] == "AwaitingNodes"]

        [message] = await cluster.until(told, 60.0, "the job to be told")
        assert message.endswith("asked for: 1 node of pool gpu")
        await pools.join(cluster, "gpu-1", GPUS)
        await Sight(cluster).all_bound(*PODS, timeout_s=90.0)
        assert len(await muster.happened(NodesRequested)) == 1


async def test_c27_nodes_that_are_refused_are_told_and_asked_for_again_only_after_a_pause(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    async with pools.declared(muster, gpu=pools.pool(2, GPUS)):
        await cluster.submit(demo())
        [request] = await cluster.until(lambda: pools.requests(cluster), 60.0, "nodes to be asked for")
        await pools.answer(cluster, request, "Failed", "the zone is out of stock")

        async def withdrawn() -> list[NodesRequestWithdrawn]:
            return await muster.happened(NodesRequestWithdrawn)

        [end] = await cluster.until(withdrawn, 60.0, "the request to be withdrawn")
        assert (end.reason, why(end)) == ("failed", "the zone is out of stock")
        assert end.retry_at > 0

        await cluster.until(lambda: pools.cleared(cluster), 60.0, "the request to be removed")

        async def told() -> bool:
            messages = (await sight.told("GangFailedScheduling")).values()
            return any("pool gpu: 1 node requested, none came, requested again after" in each for each in messages)

        await cluster.until(told, 60.0, "the pods to be told")
        # Nodes that come all the same, whoever added them, are taken.
        await pools.join(cluster, "gpu-1", GPUS)
        await sight.all_bound(*PODS)
        assert len(await muster.happened(NodesRequested)) == 1
