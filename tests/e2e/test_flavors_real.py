"""Two types of GPU nodes on a real API server: the sample of the README word for word, and other kinds beside it."""

from __future__ import annotations

from pathlib import Path

from kit import jobs
from kit.cluster import Cluster
from kit.compose import REPOSITORY
from kit.controlplane import ControlPlane
from kit.doubles.training import TrainingOperator
from kit.gangs import room
from kit.kubeclient import Object
from kit.muster import running
from kit.pages import blocks
from kit.story import rayjob
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import FLAVORS, ON_FLAVORS
from muster.events.decisions import QuotaReserved
from muster.events.effects import EffectFailed

GPU = "nvidia.com/gpu"
TAINT = {"key": "a100-only", "value": "yes", "effect": "NoSchedule"}


def sample() -> list[str]:
    """The blocks of the README about types of GPUs."""
    page = REPOSITORY / "README.md"
    start = page.read_text().partition("## Types of GPUs")[0].count("\n")
    return [block.text for block in blocks(page) if block.info == "yaml" and block.line > start][:2]


def with_gpus(template: Object, gpus: int) -> None:
    for container in template["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        for part in ("requests", "limits"):
            resources[part] = {**(resources.get(part) or {}), GPU: str(gpus)}


async def typed(cluster: Cluster, node: str, kind: str, *, tainted: bool) -> None:
    patch: Object = {"metadata": {"labels": {"gpu.type": kind}}}
    if tainted:
        patch["spec"] = {"taints": [TAINT]}
    await cluster.kube.patch("v1", "Node", node, patch=patch)


async def test_jobs_start_on_the_first_type_with_room_and_their_pods_land_there(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    tree, job = sample()
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        room(cluster, h={GPU: "4"}, a={GPU: "8"}),
    ):
        cluster.operate(TrainingOperator())
        await typed(cluster, "h", "h100", tainted=False)
        await typed(cluster, "a", "a100", tainted=True)
        async with running(cluster, nats_server.url, tmp_path) as muster:
            await cluster.kube.apply_yaml(tree)
            await cluster.kube.apply_yaml(job)

            async def pods_of(prefix: str, count: int) -> list[Object]:
                """The pods of a job that ask for GPUs, once so many run."""

                async def all_run() -> list[Object] | None:
                    found = [
                        pod
                        for pod in await cluster.kube.list_objects("v1", "Pod", "video")
                        if pod["metadata"]["name"].startswith(prefix) and pod["status"].get("phase") == "Running"
                    ]
                    typed_pods = [
                        pod
                        for pod in found
                        if GPU in (pod["spec"]["containers"][0].get("resources") or {}).get("limits", {})
                    ]
                    return typed_pods if len(typed_pods) == count else None

                return await cluster.until(all_run, 90.0, f"{count} pods of {prefix} to run") or []

            for pod in await pods_of("train-", 4):
                assert pod["spec"]["nodeName"] == "h"
                assert pod["spec"]["nodeSelector"] == {"gpu.type": "h100"}

            torch = jobs.pytorchjob("torch")
            for role in torch["spec"]["pytorchReplicaSpecs"].values():
                with_gpus(role["template"], 1)
            torch["metadata"].setdefault("annotations", {})[FLAVORS] = "h100,a100"
            await cluster.submit(torch)
            ray = rayjob("ray", runtime="600s", replicas=2, cpu="1", submissionMode="HTTPMode")
            for group in ray["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
                with_gpus(group["template"], 1)
            ray["metadata"].setdefault("annotations", {})[FLAVORS] = "h100,a100"
            await cluster.submit(ray)
            for prefix, count in (("torch-", 3), ("ray-", 2)):
                for pod in await pods_of(prefix, count):
                    assert pod["spec"]["nodeName"] == "a"
                    assert pod["spec"]["nodeSelector"] == {"gpu.type": "a100"}
                    assert any(one.get("key") == TAINT["key"] for one in pod["spec"]["tolerations"])
            made = await cluster.job("ray")
            assert "a100" in made["metadata"]["annotations"][ON_FLAVORS]
            head = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
            assert "nodeSelector" not in head, "its head has no GPU, and may run anywhere"

            reserved = {event.ref.name: event for event in await muster.happened(QuotaReserved)}
            assert reserved["train"].request[f"{GPU}@h100"] == 4000
            assert reserved["torch"].request[f"{GPU}@a100"] == 3000
            assert reserved["ray"].request[f"{GPU}@a100"] == 2000
            assert await muster.happened(EffectFailed) == []
