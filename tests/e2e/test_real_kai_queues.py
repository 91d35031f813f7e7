"""KAI queues on a real API server: what users of KAI Scheduler apply, and what they read."""

from __future__ import annotations

from typing import Any

from kit.cluster import RAY, Cluster
from kit.kubeclient import Object
from kit.muster import Muster

KAI = "scheduling.run.ai/v2"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
GPU = "nvidia.com/gpu"


def queue(name: str, parent: str = "", gpu: int = -1, **spec: Any) -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": free, "gpu": {**free, "quota": gpu}, "memory": free}
    return {
        "apiVersion": KAI,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources, **({"parentQueue": parent} if parent else {}), **spec},
    }


def ray_cluster(name: str, labels: dict[str, str], gpus: int = 1, workers: int = 1) -> Object:
    """A RayCluster created suspended, as a policy makes of one that is not."""

    def pod(gpu: int) -> Object:
        limits = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpu)} if gpu else {})}
        return {"spec": {"containers": [{"name": "ray", "image": "ray", "resources": {"limits": limits}}]}}

    return {
        "apiVersion": RAY,
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "other", "labels": labels},
        "spec": {
            "suspend": True,
            "headGroupSpec": {"rayStartParams": {}, "template": pod(0)},
            "workerGroupSpecs": [
                {
                    "groupName": "workers",
                    "replicas": workers,
                    "minReplicas": workers,
                    "maxReplicas": workers,
                    "rayStartParams": {},
                    "template": pod(gpus),
                }
            ],
        },
    }


async def status(cluster: Cluster, name: str) -> Object:
    return dict((await cluster.kube.get(KAI, "Queue", name)).get("status") or {})


async def running(cluster: Cluster, name: str) -> bool:
    found = await cluster.kube.get(RAY, "RayCluster", name, "other")
    return not found["spec"].get("suspend") and (found.get("status") or {}).get("state") == "ready"


async def told(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    uid = (await cluster.kube.get(RAY, "RayCluster", name, "other"))["metadata"]["uid"]
    return [(event["reason"], event["message"]) for event in await cluster.events(uid)]


async def test_the_queues_of_the_document_are_shown_as_in_the_document(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.kube.create(queue("department-1"))
    await cluster.kube.create(queue("team-a", "department-1"))

    async def shown() -> bool:
        return (await status(cluster, "department-1")).get("childQueues") == ["team-a"]

    await cluster.until(shown, what="the children to be shown")
    rows = {row["NAME"]: row for row in await cluster.table(QUEUES)}
    assert [*rows["team-a"]] == ["NAME", "PRIORITY", "PARENT", "CHILDREN", "DISPLAYNAME"]
    assert [*rows["department-1"].values()] == ["department-1", "", "", '["team-a"]', ""]
    assert [*rows["team-a"].values()] == ["team-a", "", "department-1", "", ""]


async def test_a_cluster_is_led_by_its_label_and_shown_in_every_queue_above(
    cluster: Cluster, muster_up: Muster
) -> None:
    for each in (queue("department-1"), queue("team-a", "department-1", gpu=2, priority=200, displayName="Team A")):
        await cluster.kube.create(each)
    labels = {"kai.scheduler/queue": "team-a", "priorityClassName": "build"}
    await cluster.kube.create(ray_cluster("firm", labels))
    await cluster.until(lambda: running(cluster, "firm"), what="it to run")

    async def counted() -> bool:
        found = [await status(cluster, name) for name in ("department-1", "team-a")]
        return all((each.get("allocatedNonPreemptible") or {}).get(GPU) == "1" for each in found)

    await cluster.until(counted, what="what it uses to be shown")
    await cluster.kube.create(ray_cluster("too-firm", labels, gpus=2))

    async def waits() -> bool:
        return (await status(cluster, "team-a")).get("requested", {}).get(GPU) == "3"

    await cluster.until(waits, what="what it asks for to be shown")
    assert not await running(cluster, "too-firm"), "what is not preemptible stays within the quota"
    train = {**labels, "priorityClassName": "train"}
    await cluster.kube.create(ray_cluster("train", train, gpus=2))
    await cluster.until(lambda: running(cluster, "train"), what="preemptible work to go over the quota")


async def test_a_missing_label_and_an_unknown_queue_are_told_with_the_way_out(
    cluster: Cluster, muster_up: Muster
) -> None:
    for each in (queue("department-1"), queue("team-a", "department-1"), queue("orphan", "nowhere")):
        await cluster.kube.create(each)
    await cluster.kube.create(ray_cluster("unlabelled", {}))
    await cluster.kube.create(ray_cluster("misspelt", {"kai.scheduler/queue": "team-x"}))

    async def missing() -> bool:
        return any(
            reason == "QueueLabelMissing"
            and message.startswith("Queue label missing from RayCluster; pods will remain pending")
            and "one of team-a" in message
            for reason, message in await told(cluster, "unlabelled")
        )

    await cluster.until(missing, what="the missing label to be told")

    async def unknown() -> bool:
        return any(
            message.startswith("Queue 'team-x' does not exist") for _, message in await told(cluster, "misspelt")
        )

    await cluster.until(unknown, what="the unknown queue to be told")

    async def disabled() -> bool:
        return any(
            condition["status"] == "False" and "'nowhere' does not exist" in condition["message"]
            for condition in (await status(cluster, "orphan")).get("conditions", ())
        )

    await cluster.until(disabled, what="the orphan to say so")
    await cluster.kube.create(queue("team-x", "department-1"))
    await cluster.until(lambda: running(cluster, "misspelt"), what="it to run once its queue exists")


async def test_a_higher_priority_of_the_same_queue_takes_the_place_of_a_lower_one(
    cluster: Cluster, muster_up: Muster
) -> None:
    for each in (queue("department-1"), queue("team-a", "department-1")):
        await cluster.kube.create(each)
    labels = {"kai.scheduler/queue": "team-a"}
    await cluster.kube.create(ray_cluster("low", labels, gpus=8, workers=3))
    await cluster.until(lambda: running(cluster, "low"), what="it to run")
    await cluster.kube.create(ray_cluster("high", {**labels, "priorityClassName": "build"}, gpus=8, workers=2))
    await cluster.until(lambda: running(cluster, "high"), 60.0, what="the higher priority to run")
    assert not await running(cluster, "low")
