"""Preemption inside a queue, on a real API server: who gives way is told, keeps its place, and runs again."""

from kit import facts
from kit.cluster import TREES, Cluster
from kit.muster import Muster
from kit.story import rayjob
from muster.events.decisions import EvictionOrdered, QuotaReleased


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
    assert "a job of higher priority in the same queue: video/urgent has priority 10, this one 0" in told
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
