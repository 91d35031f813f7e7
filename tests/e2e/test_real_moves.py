"""Running work is moved on a real API server: the real Job controller starts it elsewhere, and who lacked room runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kit import jobs
from kit.cluster import RUN_FOR, Cluster
from kit.controlplane import ControlPlane
from kit.elastic import in_queue, kai_queue
from kit.gangs import room
from kit.muster import Muster, running
from kit.why import why
from muster.bus.server import EmbeddedServer
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReleased
from muster.events.effects import EffectFailed

WHERE = "other"
FOUR = {"cpu": "4", "memory": "64Gi"}


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Two nodes of four cores, and Muster that places what runs there."""
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        room(cluster, one=FOUR, two=FOUR),
        running(cluster, nats_server.url, tmp_path, placement="pack") as found,
    ):
        for name in ("team-a", "team-b"):
            await cluster.kube.create(kai_queue(name, 4))
        yield found


async def submit(muster: Muster, name: str, queue: str, cpu: str) -> None:
    """A Job of one pod."""
    job = in_queue(jobs.job(name, WHERE, cpu=cpu, parallelism=1), queue)
    job["spec"]["template"]["metadata"] = {"labels": {"app": name}, "annotations": {RUN_FOR: "99h"}}
    job["spec"]["template"]["spec"]["schedulerName"] = "muster"
    await muster.cluster.kube.create(job)


async def node_of(muster: Muster, name: str) -> str:
    """Of its pod that runs; empty where none does."""
    found = await muster.cluster.kube.list_objects("v1", "Pod", WHERE, labels=f"app={name}")
    run = [
        each for each in found if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
    ]
    return str(run[0]["spec"]["nodeName"]) if run else ""


async def runs(muster: Muster, name: str) -> str:
    return await muster.cluster.until(lambda: node_of(muster, name), 60.0, f"{name} to run")


async def fragmented(muster: Muster) -> tuple[str, str]:
    """``x`` and ``y`` run on a node each, with two cores free beside them; returns where."""
    kube = muster.cluster.kube
    for name in ("x", "beside-x", "y"):
        await submit(muster, name, "team-a", "2")
        await runs(muster, name)
    await kube.delete("batch/v1", "Job", "beside-x", WHERE)

    async def gone() -> bool:
        return not await kube.list_objects("v1", "Pod", WHERE, labels="app=beside-x")

    await muster.cluster.until(gone, 60.0, "the room beside x to be free")
    return await node_of(muster, "x"), await node_of(muster, "y")


async def test_what_is_in_the_way_is_moved_and_starts_elsewhere(muster: Muster) -> None:
    x, y = await fragmented(muster)
    assert {x, y} == {"one", "two"}
    await submit(muster, "big", "team-b", "4")
    big = await runs(muster, "big")
    [order] = await muster.happened(EvictionOrdered)
    [moved] = [victim.ref.name for victim in order.victims]
    [move] = order.moves
    assert (order.kind, order.ref.name) == ("move", "big")
    assert await runs(muster, moved) == move.after[0] != big
    assert big == move.before[0]
    assert await node_of(muster, "x") == await node_of(muster, "y") == move.after[0]
    assert [each.reason for each in await muster.happened(QuotaReleased, moved)] == ["moved"]
    assert len(await muster.happened(GangAdmitted, moved)) == 2
    assert order.for_nodes, "its quota had room"


async def test_who_a_disruption_budget_keeps_is_not_moved(muster: Muster) -> None:
    before = await fragmented(muster)
    kube = muster.cluster.kube
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    select = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}
    spec = {"minAvailable": 2, "selector": select}
    await kube.create({**budget, "metadata": {"name": "keep", "namespace": WHERE}, "spec": spec})

    async def counted() -> bool:
        status = (await kube.get(budget["apiVersion"], budget["kind"], "keep", WHERE)).get("status") or {}
        return (status.get("currentHealthy"), status.get("disruptionsAllowed")) == (2, 0)

    try:
        await muster.cluster.until(counted, 60.0, "the budget to count the pods")
        await submit(muster, "big", "team-b", "4")
        failed = await muster.cluster.until(lambda: muster.happened(EffectFailed), 60.0, "the move to be refused")
        [order] = await muster.happened(EvictionOrdered)
        assert [each.ref.name for each in failed] == [each.ref.name for each in order.victims]
        assert "PodDisruptionBudget keep allows 0 of its pods to go" in why(failed[0])
        assert (await node_of(muster, "x"), await node_of(muster, "y")) == before
        assert not await node_of(muster, "big")
        # One of the two is gone: what is free is enough now, and nobody moves.
        await kube.delete("batch/v1", "Job", "y", WHERE)
        assert await runs(muster, "big") == before[1]
        assert await node_of(muster, "x") == before[0]
        assert len(await muster.happened(EvictionOrdered)) == 1
    finally:
        await kube.delete(budget["apiVersion"], budget["kind"], "keep", WHERE)
