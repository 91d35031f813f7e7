"""Jobs that queue, with placement on: what is written into their pods, and who binds them; and what users are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kit import jobs
from kit.cli import Cli
from kit.cluster import Cluster, document_job
from kit.controlplane import ControlPlane
from kit.doubles.training import TrainingOperator
from kit.gangs import Sight, labels, pod
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import GANG
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectFailed
from muster.events.gangs import PodsPlaced


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Muster with placement on, the tree T0, and operators whose pods are real."""
    async with Cluster(muster_plane, pods=True) as cluster:
        cluster.operate(TrainingOperator())
        async with running(cluster, nats_server.url, tmp_path, placement="pack") as found:
            await cluster.apply_tree()
            yield found


async def test_a_rayjob_is_placed_from_its_templates_and_its_pods_come_to_us(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await cluster.submit(document_job(name="one", runtime="60s"))
    await cluster.until(lambda: cluster.running("one"), 90.0, "the job to run")
    [admitted] = await muster.happened(GangAdmitted, "one")
    places = sorted(each.node for each in admitted.placements for _ in range(each.count) if each.pod_set != "submitter")
    found = {
        each["metadata"]["name"]: each
        for each in await cluster.kube.list_objects("v1", "Pod", "video")
        if "ray.io/node-type" in each["metadata"]["labels"]
    }
    assert len(found) == 3
    for each in found.values():
        assert each["spec"]["schedulerName"] == "muster"
        assert each["metadata"]["annotations"][GANG] == "one"
    assert sorted(each["spec"]["nodeName"] for each in found.values()) == places
    bound = {place.ref.name for event in await muster.happened(PodsPlaced) for place in event.pods}
    assert bound == found.keys(), "bound by us, all of them, and nobody else"
    job = await cluster.job("one")
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["schedulerName"] == "muster"
    assert await muster.happened(EffectFailed) == []
    assert set(await sight.bound()) >= found.keys()


async def test_a_tfjob_and_a_batch_job(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await cluster.submit(jobs.tfjob("tf", workers=2))
    await sight.all_bound("tf-ps-0", "tf-worker-0", "tf-worker-1", timeout_s=90.0)
    placed = {place.ref.name for event in await muster.happened(PodsPlaced) for place in event.pods}
    assert placed == {"tf-ps-0", "tf-worker-0", "tf-worker-1"}
    # The API server lets nobody change the scheduler of a Job: its pods carry the mark, and the default one binds them.
    await cluster.submit(jobs.job("plain", parallelism=2))

    async def two_run() -> bool:
        phases = await sight.phases()
        return sum(name.startswith("plain-") and phase == "Running" for name, phase in phases.items()) == 2

    await cluster.until(two_run, 90.0, "the pods of the Job to run")
    for each in await cluster.kube.list_objects("v1", "Pod", "video"):
        if each["metadata"]["name"].startswith("plain-"):
            assert each["metadata"]["annotations"][GANG] == "plain"
            assert each["spec"]["schedulerName"] == "default-scheduler"
    assert await muster.happened(EffectFailed) == []


async def test_why_tells_of_a_gang_and_of_a_pod_of_it(muster: Muster, tmp_path: Path) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await sight.create(*(pod(f"p-{index}", labels("huge", 2), asks={"cpu": "500"}) for index in range(2)))
    await cluster.until(lambda: sight.told("GangFailedScheduling"), 60.0, "the gang to be told")
    cli = Cli(tmp_path / "cli")
    for name in ("video/huge", "video/p-0"):
        told = (await cli.run("why", name, "--url", muster.nats_url, "--cell", muster.cell)).ok()
        assert told.lines[0].split() == ["Gang", "video/huge", "GangFailedScheduling"]
        assert "0/3 nodes are available: 3 Insufficient cpu" in " ".join(told.out.split())
