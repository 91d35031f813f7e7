"""Preemption inside a queue, on a real API server: who gives way is told, keeps its place, and runs again."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kit import facts, jobs
from kit.cluster import RUN_FOR, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.muster import Muster, running
from kit.story import rayjob
from kit.why import why
from muster.bus.server import EmbeddedServer
from muster.events.decisions import EvictionOrdered, QuotaReleased
from muster.events.effects import EffectFailed


async def test_an_urgent_job_takes_the_place_of_the_youngest_of_the_lowest(cluster: Cluster, muster_up: Muster) -> None:
    leaf = facts.node("video", {"cpu": 4}, {"cpu": 10}, ("video",))
    await cluster.apply_tree(facts.node("root", {"cpu": 10}, {"cpu": 10}, children=(leaf,)))
    asked = {"metadata": {"annotations": {"muster.dev/preempt-lower-priority": "true"}}}
    await cluster.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=asked)
    options = {"cpu": "5", "memory": "1G", "replicas": 0, "runtime": "99h"}
    for name in ("old", "young"):
        await cluster.submit(rayjob(name, "video", **options))
        await cluster.until(lambda name=name: cluster.running(name), what=f"{name} to run")
    await cluster.submit(rayjob("urgent", "video", annotations={"muster.dev/priority": "10"}, **options))
    await cluster.until(lambda: cluster.running("urgent"), 60.0, "the urgent job to run")

    async def told_so() -> str:
        told = dict(await cluster.told("young"))
        return told.get("Preempted", "") if await cluster.phase("young") == "Enqueued" else ""

    told = await cluster.until(told_so, what="who gave way to wait again, and to be told why") or ""
    assert "a job of higher priority in the same queue: video/urgent had priority 10, this job 0" in told
    assert "position 1" in told
    assert await cluster.running("old")
    orders = await muster_up.happened(EvictionOrdered)
    assert [(each.ref.name, each.priority, [victim.ref.name for victim in each.victims]) for each in orders] == [
        ("urgent", 10, ["young"])
    ]
    released = await muster_up.happened(QuotaReleased)
    assert [(each.ref.name, each.reason) for each in released] == [("young", "preempted")]
    await cluster.delete_job("urgent")
    await cluster.until(lambda: cluster.running("young"), 60.0, "it to run again")


@pytest_asyncio.fixture
async def muster_on_pods(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> AsyncIterator[Muster]:
    """Muster on a cluster whose jobs have real pods."""
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        running(cluster, nats_server.url, tmp_path) as found,
    ):
        yield found


async def test_a_disruption_budget_keeps_a_job_and_another_gives_way(muster_on_pods: Muster) -> None:
    cluster = muster_on_pods.cluster
    leaf = facts.node("video", {"cpu": 4}, {"cpu": 4}, ("video",))
    await cluster.apply_tree(facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(leaf,)))
    asked = {"metadata": {"annotations": {"muster.dev/preempt-lower-priority": "true"}}}
    await cluster.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=asked)

    async def submit(name: str, priority: str) -> None:
        job = jobs.job(name, parallelism=2)
        job["metadata"]["annotations"] = {"muster.dev/priority": priority}
        job["spec"]["template"]["metadata"] = {"labels": {"app": name}, "annotations": {RUN_FOR: "99h"}}
        await cluster.kube.create(job)

    async def ready(name: str, count: int) -> bool:
        status = (await cluster.kube.get("batch/v1", "Job", name, "video")).get("status", {})
        return int(status.get("ready") or 0) == count

    for name in ("old", "young"):
        await submit(name, "0")
        await cluster.until(lambda name=name: ready(name, 2), 60.0, f"{name} to run")
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "young"}}}
    await cluster.kube.create({**budget, "metadata": {"name": "keep-young", "namespace": "video"}, "spec": spec})

    async def counted() -> bool:
        status = (await cluster.kube.get(budget["apiVersion"], budget["kind"], "keep-young", "video")).get("status", {})
        return bool((status.get("currentHealthy"), status.get("disruptionsAllowed")) == (2, 1))

    try:
        await cluster.until(counted, 60.0, "the budget to count the pods")
        await submit("urgent", "10")
        await cluster.until(lambda: ready("urgent", 2), 60.0, "the urgent job to run")
        assert await ready("young", 2)
        assert await ready("old", 0)
        failed = await muster_on_pods.happened(EffectFailed)
        assert [(each.ref.name, each.action, each.reason) for each in failed] == [("young", "suspend", "refused")]
        assert "PodDisruptionBudget keep-young allows 1 of its pods to go, and 2 are of this job" in why(failed[0])
    finally:
        await cluster.kube.delete("policy/v1", "PodDisruptionBudget", "keep-young", "video")


async def test_pods_that_a_borrower_leaves_behind_leave_for_an_owner(muster_on_pods: Muster) -> None:
    """``kubectl delete job --cascade=orphan`` kept the loan for good."""
    cluster, kube = muster_on_pods.cluster, muster_on_pods.cluster.kube
    leaves = (
        facts.node("video", {"cpu": 0}, {"cpu": 4}, ("video",)),
        facts.node("text", {"cpu": 3}, {"cpu": 4}, ("text",)),
    )
    await cluster.apply_tree(facts.node("root", {"cpu": 4}, {"cpu": 4}, children=leaves))

    async def submit(name: str, namespace: str, pods: int) -> None:
        job = jobs.job(name, namespace, parallelism=pods)
        job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}}
        await kube.create(job)

    async def ready(name: str, namespace: str, count: int) -> bool:
        status = (await kube.get("batch/v1", "Job", name, namespace)).get("status", {})
        return int(status.get("ready") or 0) == count

    await submit("loan", "video", 4)
    await cluster.until(lambda: ready("loan", "video", 4), 60.0, "the borrower to run")
    await kube.delete("batch/v1", "Job", "loan", "video", propagation="Orphan")

    async def orphans() -> bool:
        pods = await kube.list_objects("v1", "Pod", "video")
        return len(pods) == 4 and not any(pod["metadata"].get("ownerReferences") for pod in pods)

    await cluster.until(orphans, 60.0, "the pods to be left alone")
    await submit("owner", "text", 2)
    await cluster.until(lambda: ready("owner", "text", 2), 60.0, "the owner to run")
    [order] = await muster_on_pods.happened(EvictionOrdered)
    gone = {victim.ref.name for victim in order.victims}
    assert len(gone) == 2 and {victim.ref.kind for victim in order.victims} == {"Pod"}
    left = {pod["metadata"]["name"] for pod in await kube.list_objects("v1", "Pod", "video")}
    assert len(left) == 2 and not left & gone
