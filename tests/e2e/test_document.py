"""The document's story as its reader lives it: the tree, the queues, two RayJobs, their pods, the wait and its end.

Everything is real (API server, controllers, scheduler, KWOK's kubelet, NATS) but KubeRay's operator and Ray itself.
"""

import re
import time
from pathlib import Path

from kit import facts
from kit.cluster import Cluster, document_job
from kit.controlplane import ControlPlane
from kit.documents import manifest
from kit.kubeclient import Object
from kit.muster import running
from kit.witness import Witness
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import parse_time

VIDEO = "root/algorithm/video"
ENQUEUED, DEQUEUED = "kube-queue/job-enqueue-timestamp", "kube-queue/job-dequeue-timestamp"
GO_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000 UTC")


async def test_two_jobs_of_the_document(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, running(cluster, nats_server.url, tmp_path):
        witness = Witness(cluster.transport, facts.t0())
        await cluster.follow(witness.follow)
        await the_tree_makes_queues(cluster)
        first, second = await two_jobs_a_second_apart(cluster)
        await the_first_runs_and_the_second_waits(cluster, first, second)
        await four_pods_run(cluster, first)
        await the_queue_shows_who_waits(cluster, second)
        await cluster.let_end(first)
        await the_second_follows_the_first(cluster, first, second)
        await witness.clean(f"video/{first}", f"video/{second}")
        assert witness.most == 1


async def the_tree_makes_queues(cluster: Cluster) -> None:
    await cluster.apply_tree()

    async def nine() -> dict[str, Object] | None:
        found = await cluster.queues()
        return found if len(found) == 9 and all("status" in queue for queue in found.values()) else None

    queue = ((await cluster.until(nine, what="nine queues")) or {})[VIDEO]
    meta, wanted = queue["metadata"], manifest("queue-video")
    for field in ("generateName", "labels", "annotations", "namespace"):
        shown = meta[field]
        if field == "annotations":  # What tells our own Queues from others' stands beside them.
            shown = {key: value for key, value in shown.items() if not key.startswith("muster.dev/")}
        assert shown == wanted["metadata"][field]
    assert re.fullmatch(r"root-algorithm-video-[a-z0-9]{5}", meta["name"])
    assert queue["spec"] == wanted["spec"]
    assert queue["status"]["queueItemDetails"] == {"active": [], "backoff": []}
    listed = await cluster.table("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues")
    assert {*listed[0]} == {"NAME", "AGE"}
    assert len(listed) == 9


async def two_jobs_a_second_apart(cluster: Cluster) -> tuple[str, str]:
    await cluster.kube.apply(manifest("configmap-video"))
    first = await cluster.submit(document_job(runtime="1h"))
    created = time.monotonic()

    async def let_in() -> bool:
        return DEQUEUED in await cluster.annotations(first)

    await cluster.until(let_in, what="the first to be let in")
    await cluster.until(lambda: time.monotonic() - created >= 1.0)
    second = await cluster.submit(document_job(runtime="1s"))
    for name in (first, second):
        assert re.fullmatch(r"rayjob-video-[a-z0-9]{5}", name)
    return first, second


async def the_first_runs_and_the_second_waits(cluster: Cluster, first: str, second: str) -> None:
    async def as_told() -> bool:
        return (await cluster.state(first), await cluster.state(second)) == ("Running", "Suspended")

    await cluster.until(as_told, what="the first to run and the second to be Suspended")
    rows = {row["NAME"]: row for row in await cluster.table("/apis/ray.io/v1/namespaces/video/rayjobs")}
    assert [*rows[first]] == [
        "NAME", "JOB STATUS", "DEPLOYMENT STATUS", "RAY CLUSTER NAME", "START TIME", "END TIME", "AGE",
    ]  # fmt: skip
    assert rows[second]["DEPLOYMENT STATUS"] == "Suspended"
    assert rows[second]["JOB STATUS"] == ""
    assert rows[first]["START TIME"]
    assert not rows[first]["END TIME"]

    async def stamped() -> dict[str, str] | None:
        found = await cluster.annotations(second)
        return found if ENQUEUED in found else None

    waits = await cluster.until(stamped, what="the enqueue time stamp of the second")
    assert waits is not None
    assert DEQUEUED not in waits
    runs = await cluster.annotations(first)
    assert GO_TIME.fullmatch(runs[ENQUEUED])
    assert GO_TIME.fullmatch(runs[DEQUEUED])
    assert GO_TIME.fullmatch(waits[ENQUEUED])
    assert parse_time(runs[ENQUEUED]) < parse_time(runs[DEQUEUED]) < parse_time(waits[ENQUEUED])
    assert (await cluster.job(first))["spec"]["suspend"] is False
    assert (await cluster.job(second))["spec"]["suspend"] is True


async def four_pods_run(cluster: Cluster, first: str) -> None:
    async def four() -> bool:
        found = await cluster.pods()
        return len(found) == 4 and set(found.values()) == {"Running"}

    await cluster.until(four, what="four running pods")
    raycluster = (await cluster.job(first))["status"]["rayClusterName"]
    kinds = sorted(name.rpartition("-")[0] for name in await cluster.pods())
    worker = f"{raycluster}-small-group-worker"
    assert kinds == [first, f"{raycluster}-head", worker, worker]


async def the_queue_shows_who_waits(cluster: Cluster, second: str) -> None:
    wanted = {"active": [], "backoff": [{"name": f"{second}-ray-qu", "namespace": "video", "position": 1}]}

    async def shown() -> bool:
        return await cluster.line() == wanted

    await cluster.until(shown, what=f"queueItemDetails {wanted}")


async def the_second_follows_the_first(cluster: Cluster, first: str, second: str) -> None:
    await cluster.complete(first)
    raycluster = (await cluster.job(first))["status"]["rayClusterName"]
    assert await cluster.kube.find("ray.io/v1", "RayCluster", raycluster, "video"), (
        "it stays for ttlSecondsAfterFinished"
    )
    assert await cluster.state(second) == "Suspended"
    await cluster.complete(second)
    assert not await cluster.kube.find("ray.io/v1", "RayCluster", raycluster, "video")
    runs = await cluster.annotations(second)
    assert parse_time(runs[ENQUEUED]) < parse_time(runs[DEQUEUED])

    async def empty() -> bool:
        return await cluster.line() == {"active": [], "backoff": []}

    await cluster.until(empty, what="the queue to be empty")
