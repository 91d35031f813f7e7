"""A job that is started around the queue, on a real API server: suspended while its quota is above its max."""

from __future__ import annotations

from pathlib import Path

from kit.cluster import RAY, TREES, Cluster, document_job
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.events.decisions import QuotaDenied, QuotaReleased, SuspensionOrdered, WorkloadAdopted


async def test_a_job_that_its_owner_starts_is_suspended_and_queued_again(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Two jobs of 12 cpu in a quota of 14."""
    await cluster.apply_tree()
    rule = {"metadata": {"annotations": {"muster.dev/overuse-timeout": "4s"}}}
    await cluster.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=rule)
    async with running(cluster, nats_server.url, tmp_path) as muster:
        await cluster.submit(document_job(name="mine", runtime="1h"))
        await cluster.until(lambda: cluster.running("mine"), 60.0, what="the first job to run")
        await cluster.submit(document_job(name="around", runtime="1h"))

        async def denied() -> bool:
            return bool(await muster.happened(QuotaDenied, "around"))

        await cluster.until(denied, what="the second job to wait")
        start = {"spec": {"suspend": False}}
        await cluster.kube.patch(RAY, "RayJob", "around", "video", patch=start)

        async def over() -> bool:
            return [event.reason for event in await muster.happened(QuotaReleased, "around")] == ["overuse"]

        await cluster.until(over, 60.0, what="it to be suspended, and its pods to be gone")
        found = await cluster.kube.get(RAY, "RayJob", "around", "video")
        assert found["spec"]["suspend"] is True
        assert await cluster.running("mine")
        assert [event.reason for event in await muster.happened(WorkloadAdopted)] == ["bypassed"]
        assert [(event.ref.name, event.reason) for event in await muster.happened(SuspensionOrdered)] == [
            ("around", "overuse")
        ]

        async def told() -> bool:
            return "ran beyond what was admitted" in dict(await cluster.told("around")).get("Overuse", "")

        await cluster.until(told, 60.0, what="the Event that says why")
