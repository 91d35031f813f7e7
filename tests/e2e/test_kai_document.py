"""The document about KAI Scheduler on a real API server: its samples as they are, KubeRay with its integration."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from kit.cluster import RAY, Cluster
from kit.controlplane import ControlPlane
from kit.deployed import objects
from kit.gpus import reporting
from kit.guarded import mutates
from kit.kubeclient import Object
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.core.objects.gpushares import GROUP, RESERVATIONS
from muster.core.objects.kaiqueue import POD_GROUP_NAME
from muster.core.objects.meta import GPU_PORTION, GPU_UUIDS
from muster_cli import samples
from muster_cli.local.stories import SHARING, printed

KAI = "scheduling.run.ai/v2"
KAI_GROUPS = "scheduling.run.ai/v2alpha2"
POLICIES = ("muster-jobs-suspended", "muster-gpu-shares-told")


@contextlib.asynccontextmanager
async def begins_suspended(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """While this lasts policies of deploy/policies suspend new jobs in a namespace, and tell pods their GPU."""
    kube = cluster.kube
    await kube.patch("v1", "Namespace", namespace, patch={"metadata": {"labels": {"muster.dev/managed": "true"}}})
    found = [each for each in objects("policies") if each["metadata"]["name"] in POLICIES]
    for each in found:
        await kube.apply(each)

    async def suspends() -> bool:
        body = {**ray_cluster("probe"), "metadata": {"name": "probe", "namespace": namespace}}
        path = f"/apis/{RAY}/namespaces/{namespace}/rayclusters?dryRun=All"
        return bool((await kube.request("POST", path, body=body))["spec"].get("suspend"))

    await cluster.until(suspends, what="the policy to be in force")
    try:
        yield
    finally:
        for each in found:
            await kube.delete(each["apiVersion"], each["kind"], each["metadata"]["name"])
        labels: dict[str, None] = {"muster.dev/managed": None}
        await kube.patch("v1", "Namespace", namespace, patch={"metadata": {"labels": labels}})


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Muster with placement on, queues as in the document, and KubeRay with batchScheduler.name=kai-scheduler."""
    assert mutates(muster_plane)
    async with (
        Cluster(muster_plane, pods=True, batch_scheduler="kai-scheduler") as cluster,
        reporting(cluster),
        begins_suspended(cluster, "default"),
        running(cluster, nats_server.url, tmp_path, placement="pack") as found,
    ):
        for each in samples.manifests(samples.KAI_QUEUES):
            await cluster.kube.create(each)
        yield found


def ray_cluster(name: str, labels: dict[str, str] | None = None) -> Object:
    found = samples.manifest(samples.KAI_CLUSTER)
    found["metadata"] = {"name": name, "namespace": "default", "labels": labels or {}}
    return found


async def pods_of(cluster: Cluster, name: str) -> list[Object]:
    found = await cluster.kube.list_objects("v1", "Pod", "default", labels=f"ray.io/cluster={name}")
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


async def all_run(cluster: Cluster, name: str, number: int) -> list[Object]:
    async def they_run() -> list[Object]:
        found = await pods_of(cluster, name)
        return found if [pod["status"]["phase"] for pod in found] == ["Running"] * number else []

    return await cluster.until(they_run, 90.0, f"{number} pods of {name} to run")


async def group_of(cluster: Cluster, name: str) -> dict[str, Any]:
    """The PodGroup of a RayCluster, as KAI Scheduler names it; empty while there is none."""
    uid = (await cluster.kube.get(RAY, "RayCluster", name, "default"))["metadata"]["uid"]
    return await cluster.kube.find(KAI_GROUPS, "PodGroup", f"pg-{name}-{uid}", "default") or {}


async def test_the_sample_is_scheduled_as_a_gang_and_shown(muster: Muster) -> None:
    cluster = muster.cluster
    await cluster.kube.create(samples.manifest(samples.KAI_CLUSTER))
    pods = await all_run(cluster, "raycluster-sample", 3)
    group = await cluster.until(lambda: group_of(cluster, "raycluster-sample"), what="its PodGroup")
    name, spec = group["metadata"]["name"], group["spec"]
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "team-a"
        assert pod["metadata"]["annotations"][POD_GROUP_NAME] == name
    [row] = await cluster.table(f"/apis/{KAI_GROUPS}/namespaces/default/podgroups")
    assert (row["QUEUE"], row["MINMEMBER"], row["PRIORITY"]) == ("team-a", "3", "train")
    assert {each["name"]: each["minMember"] for each in spec["subGroups"]} == {"headgroup": 1, "worker": 2}

    async def shown() -> dict[str, dict[str, str]]:
        rows = {row["NAME"]: row for row in await cluster.table(f"/apis/{KAI}/queues")}
        return rows if rows["department-1"]["CHILDREN"] else {}

    rows = await cluster.until(shown, what="the children of the department")
    assert [*rows["department-1"].values()] == ["department-1", "", "", '["team-a"]', ""]


async def test_the_container_that_an_annotation_names_is_told_its_gpu(muster: Muster) -> None:
    containers = [{"name": name, "image": "none"} for name in ("main", "other")]
    other = "nvidia.com/container.other.gpu-memory"
    for notes, told in (
        ({"gpu-fraction": "0.5"}, "main"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"}, "other"),
        ({f"{other}.request": "1Gi"}, "other"),
        ({f"{other}.limit": "1Gi", "gpu-fraction-num-devices": "2"}, "other"),
        ({f"{other}.request": "1Gi", "gpu-fraction-container-name": "other"}, "other"),
    ):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "told", "namespace": "default", "annotations": notes},
            "spec": {"schedulerName": "muster", "containers": containers},
        }
        made = await muster.cluster.kube.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", body=pod)
        told_of = {each["name"]: [one["name"] for one in each.get("env", ())] for each in made["spec"]["containers"]}
        assert told_of == {"main": [], "other": [], told: ["NVIDIA_VISIBLE_DEVICES", "GPU_PORTION"]}


async def test_two_workers_are_on_one_node_and_share_one_gpu(muster: Muster) -> None:
    cluster = muster.cluster
    await cluster.kube.create(samples.manifest(samples.KAI_SHARING))
    pods = await all_run(cluster, SHARING, 3)
    head, *workers = [line.split() for line in printed(pods)[1:]]
    assert head[2:] == ["<none>", "<none>"]
    assert [worker[2] for worker in workers] == ["0.5", "0.5"]
    [(node, group)] = {(worker[1], worker[3]) for worker in workers}
    for pod in pods[1:]:
        env = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in pod["spec"]["containers"][0]["env"]}
        assert env == {
            "NVIDIA_VISIBLE_DEVICES": f"metadata.annotations['{GPU_UUIDS}']",
            "GPU_PORTION": f"metadata.annotations['{GPU_PORTION}']",
        }
        assert pod["metadata"]["annotations"][GPU_UUIDS] == f"GPU-{node}-0"
        assert pod["metadata"]["annotations"][GPU_PORTION] == "0.5"
    [keeper] = await cluster.kube.list_objects("v1", "Pod", RESERVATIONS)
    assert (keeper["metadata"]["labels"][GROUP], keeper["spec"]["nodeName"]) == (group, node)


async def test_a_missing_label_and_an_unknown_queue_are_told_on_the_object(muster: Muster) -> None:
    cluster = muster.cluster
    await cluster.kube.create(ray_cluster("unlabelled"))
    await cluster.kube.create(ray_cluster("misspelt", {"kai.scheduler/queue": "team-x"}))
    told = {
        "unlabelled": ("QueueLabelMissing", "Queue label missing from RayCluster; pods will remain pending"),
        "misspelt": ("QueueDoesNotExist", "Queue 'team-x' does not exist"),
    }
    for name, (reason, message) in told.items():

        async def conditions(name: str = name) -> list[dict[str, Any]]:
            return list((await group_of(cluster, name)).get("status", {}).get("schedulingConditions") or ())

        [condition] = await cluster.until(conditions, what=f"the condition of {name}")
        assert (condition["reason"], condition["status"]) == (reason, "True")
        assert condition["message"].startswith(message)
        assert "team-a" in condition["message"], "with the queues that take work"
        uid = (await cluster.kube.get(RAY, "RayCluster", name, "default"))["metadata"]["uid"]

        async def event(uid: str = uid, message: str = message) -> bool:
            return any(each["message"].startswith(message) for each in await cluster.events(uid))

        await cluster.until(event, what=f"the Event on {name}")
        assert await pods_of(cluster, name) == [], "it stays suspended"
    patch = {"metadata": {"labels": {"kai.scheduler/queue": "team-a"}}}
    await cluster.kube.patch(RAY, "RayCluster", "misspelt", "default", patch=patch)
    await all_run(cluster, "misspelt", 3)

    async def cleared() -> bool:
        return (await group_of(cluster, "misspelt"))["status"]["schedulingConditions"] == []

    await cluster.until(cleared, what="the condition to be gone")
