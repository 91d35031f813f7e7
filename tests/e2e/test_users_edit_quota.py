"""What administrators do to the tree and the queues while jobs run and wait, on a real API server."""

import msgspec

from kit import facts
from kit.cluster import TREES, Cluster, document_job
from kit.muster import Muster
from kit.witness import Witness
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaTreeRemoved
from muster.events.facts import TreeNodeSpec

VIDEO = "root/algorithm/video"


def video_with(cpu: int, memory: str, *, namespaces: tuple[str, ...] = ("video",), low: int = 12) -> TreeNodeSpec:
    """T0 with other limits for the video team."""
    root = facts.t0()
    algorithm = root.children[0]
    video = msgspec.structs.replace(
        algorithm.children[0],
        min={"cpu": str(low), "memory": "8Gi"},
        max={"cpu": str(cpu), "memory": memory},
        namespaces=namespaces,
    )
    algorithm = msgspec.structs.replace(algorithm, children=(video, *algorithm.children[1:]))
    return msgspec.structs.replace(root, children=(algorithm, *root.children[1:]))


async def one_runs(cluster: Cluster) -> str:
    await cluster.apply_tree()
    name = await cluster.submit(document_job(runtime="60s"))
    await cluster.until(lambda: cluster.running(name))
    return name


async def waits(cluster: Cluster, **options: object) -> str:
    name = await cluster.submit(document_job(**{"runtime": "60s", **options}))  # type: ignore[arg-type]

    async def told() -> bool:
        return "quota" in await cluster.message(name) and bool(await cluster.told(name))

    await cluster.until(told, what=f"{name} to wait")
    return name


async def tree_events(cluster: Cluster, name: str = "elasticquotatree") -> list[tuple[str, str]]:
    tree = await cluster.kube.get(TREES, "ElasticQuotaTree", name, "kube-system")
    return [(event["reason"], event["message"]) for event in await cluster.events(tree["metadata"]["uid"])]


async def delete_tree(cluster: Cluster, muster: Muster) -> None:
    await cluster.kube.delete(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
    await cluster.until(lambda: muster.happened(QuotaTreeRemoved), what="the tree to be known as removed")


async def test_a_raised_limit_lets_the_next_one_in_at_once(cluster: Cluster, muster_up: Muster) -> None:
    first = await one_runs(cluster)
    second, third = await waits(cluster), await waits(cluster)
    await cluster.apply_tree(video_with(26, "26Gi"))
    await cluster.until(lambda: cluster.running(second), what="the second job to run")

    async def told() -> bool:
        return "request 12, max 26, used 24" in await cluster.message(third)

    await cluster.until(told, what="the third to wait for the new limit")
    assert await cluster.running(first)


async def test_a_limit_below_what_is_used_takes_nothing_away(cluster: Cluster, muster_up: Muster) -> None:
    """What runs goes on; the next one waits until it fits under the new limit. A hopeless one is told so."""
    await cluster.apply_tree()
    first = await cluster.submit(document_job(runtime="60s", ttl_s=0))
    await cluster.until(lambda: cluster.running(first))
    early = await waits(cluster)
    await cluster.apply_tree(video_with(8, "8Gi", low=8))

    async def told() -> bool:
        return [reason for reason, _ in await cluster.told(early)] == ["InsufficientQuota", "ExceedsMaxQuota"]

    await cluster.until(told, what="the job that waited before to be told")
    large = await waits(cluster)
    assert await cluster.message(large) == (
        "Exceeds quota(cpu) in quota root/algorithm/video: request 12, max 8. It can never be admitted like this: "
        "lower the request or raise the max; position 2 to 4 in queue root/algorithm/video"
    )
    assert [reason for reason, _ in await cluster.told(large)] == ["ExceedsMaxQuota"]
    assert await cluster.running(first)
    await cluster.let_end(first)
    await cluster.complete(first)
    await cluster.quiet()
    assert (await cluster.job(large))["spec"]["suspend"] is True
    await cluster.delete_job(early)
    await cluster.apply_tree()
    await cluster.until(lambda: cluster.running(large))


async def ready(cluster: Cluster, name: str = "elasticquotatree") -> tuple[str, str] | None:
    """Status and reason of the condition of a tree."""
    tree = await cluster.kube.get(TREES, "ElasticQuotaTree", name, "kube-system")
    found = (tree.get("status") or {}).get("conditions") or [None]
    return (found[0]["status"], found[0]["reason"]) if found[0] else None


async def test_an_invalid_edit_changes_nothing_and_says_why(cluster: Cluster, muster_up: Muster) -> None:
    await one_runs(cluster)
    await cluster.apply_tree(video_with(11, "14Gi"))

    async def told() -> list[tuple[str, str]]:
        return await tree_events(cluster)

    assert await cluster.until(told) == [
        (
            "QuotaTreeRejected",
            "Refused as a whole, the last good tree stays in force: "
            "root/algorithm/video: min cpu 12 is over max 11; lower min or raise max",
        )
    ]

    async def says(*wanted: str, name: str = "elasticquotatree") -> bool:
        return await ready(cluster, name) == wanted

    await cluster.until(lambda: says("False", "QuotaTreeRejected"), what="the tree to say that it is refused")
    second = await waits(cluster)
    assert "max 14, used 12" in await cluster.message(second)
    await cluster.apply_tree(video_with(26, "26Gi"))
    await cluster.until(lambda: cluster.running(second), what="the mended tree to be in force")
    assert len(await tree_events(cluster)) == 1
    await cluster.until(lambda: says("True", "Counts"), what="the tree to say that it is in force")


async def test_a_second_tree_takes_over_when_the_first_is_deleted(cluster: Cluster, muster_up: Muster) -> None:
    await one_runs(cluster)
    second = await waits(cluster)
    await cluster.apply_tree(video_with(26, "26Gi"), name="second")

    async def told() -> list[tuple[str, str]]:
        return await tree_events(cluster, "second")

    found = await cluster.until(told)
    assert [reason for reason, _ in found] == ["QuotaTreeRejected"]

    async def both_say() -> bool:
        return (await ready(cluster), await ready(cluster, "second")) == (
            ("True", "Counts"),
            ("False", "QuotaTreeRejected"),
        )

    await cluster.until(both_say, what="both trees to say whether they are in force")
    assert (await cluster.job(second))["spec"]["suspend"] is True
    await cluster.kube.delete(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
    await cluster.until(lambda: cluster.running(second), what="the second tree to be in force")


async def test_the_tree_is_deleted_and_made_again(cluster: Cluster, muster_up: Muster) -> None:
    """What runs stays charged, who waits keeps the place, who came meanwhile is told why nothing happens."""
    witness = Witness(cluster.transport, facts.t0())
    await cluster.follow(witness.follow)
    first = await one_runs(cluster)
    second = await waits(cluster, runtime="500ms", ttl_s=0)
    await delete_tree(cluster, muster_up)
    third = await cluster.submit(document_job(runtime="500ms", ttl_s=0))

    async def told() -> bool:
        reasons = [reason for reason, _ in await cluster.told(third)]
        return reasons == ["NoQuotaTree"]

    await cluster.until(told, what="the third to be told that there is no tree")
    await cluster.apply_tree()

    async def in_line() -> bool:
        line = [item["name"] for item in (await cluster.line()).get("backoff", [])]
        return line == [f"{second}-ray-qu", f"{third}-ray-qu"]

    await cluster.until(in_line, what="both to wait in order")

    async def used() -> bool:
        return (await cluster.tree_used()).get(VIDEO, {}).get("cpu") == "12"

    await cluster.until(used, what="the new tree to show what is used")
    assert not await muster_up.happened(QuotaReleased)
    await cluster.delete_job(first)
    await cluster.complete(second, third)
    await witness.follow.caught_up()
    assert witness.order == [f"video/{name}" for name in (first, second, third)]
    assert not witness.over


async def test_a_namespace_moves_to_another_leaf(cluster: Cluster, muster_up: Muster) -> None:
    """A job that nobody claimed is told once, and let in when its namespace is claimed."""
    await cluster.apply_tree()
    name = await cluster.submit(document_job("nobody", runtime="60s"))

    async def told() -> list[tuple[str, str]]:
        return await cluster.told(name, "nobody")

    found = await cluster.until(told, what="an Event on the job")
    assert found == [
        (
            "NoQuota",
            "no quota claims namespace nobody; add it to the namespaces of a leaf of ElasticQuotaTree "
            "kube-system/elasticquotatree, or name a leaf with the label quota.scheduling.alibabacloud.com/name",
        )
    ]
    assert (await cluster.job(name, "nobody"))["spec"]["suspend"] is True
    assert await cluster.unit(name, "nobody") is None
    await cluster.apply_tree(video_with(14, "14Gi", namespaces=("video", "nobody")))
    await cluster.until(lambda: cluster.running(name, "nobody"), what="the job to run")
    await cluster.until(lambda: cluster.unit(name, "nobody"))
    assert len(await told()) == 1


async def test_a_priority_class_jumps_the_queue(cluster: Cluster, muster_up: Muster) -> None:
    """A PriorityClass on the head template puts a job before those of its queue that came earlier."""
    await cluster.kube.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "thousand"},
            "value": 1000,
        }
    )
    first = await one_runs(cluster)
    early = await waits(cluster, runtime="500ms", ttl_s=0)
    job = document_job(runtime="500ms", ttl_s=0, name="urgent")
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["priorityClassName"] = "thousand"
    await cluster.submit(job)

    async def in_line() -> bool:
        line = (await cluster.line()).get("backoff", [])
        return [(item["name"], item["position"], item.get("priority")) for item in line] == [
            ("urgent-ray-qu", 1, 1000),
            (f"{early}-ray-qu", 2, None),
        ]

    await cluster.until(in_line, what="the urgent one to be first")
    await cluster.delete_job(first)
    await cluster.complete("urgent", early)
    admitted = await muster_up.happened(GangAdmitted)
    assert [event.ref.name for event in admitted] == [first, "urgent", early]
