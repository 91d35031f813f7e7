"""A job costs what its pods will ask for: the API server adds overhead of a RuntimeClass, defaults of a LimitRange."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from kit import facts, jobs
from kit.cluster import RUN_FOR, Cluster
from kit.controlplane import ControlPlane
from kit.muster import running
from kit.tenant import of_pod
from muster.bus.server import EmbeddedServer
from muster.events.charges import ChargeChanged
from muster.events.decisions import QuotaDenied, QuotaReserved

SANDBOX = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "sandbox"},
    "handler": "runsc",
    "overhead": {"podFixed": {"cpu": "500m"}},
}
DEFAULTS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults", "namespace": "video"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
}


async def test_pods_ask_for_what_was_charged_before_they_were_made(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Two pods of 1.5 cpu, whose template names no cpu, in a quota of 4: a second such job waits."""
    async with Cluster(muster_plane, pods=True) as cluster:
        kube = cluster.kube
        for each in (SANDBOX, DEFAULTS):
            await kube.create(each)
        leaf = facts.node("video", {"cpu": 4}, {"cpu": 4}, ("video",))
        await cluster.apply_tree(facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(leaf,)))
        async with running(cluster, nats_server.url, tmp_path) as muster:

            async def submit(name: str) -> None:
                job = jobs.job(name, parallelism=2)
                job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}}
                pod = job["spec"]["template"]["spec"]
                pod["runtimeClassName"] = "sandbox"
                for container in pod["containers"]:
                    container.pop("resources", None)
                await kube.create(job)

            await submit("first")

            async def pods() -> bool:
                return len(await kube.list_objects("v1", "Pod", "video")) == 2

            await cluster.until(pods, 60.0, "the pods of the first job")
            await submit("second")

            async def denied() -> bool:
                return bool(await muster.happened(QuotaDenied, "second"))

            await cluster.until(denied, 30.0, "the second job to wait")
            asked = sum(
                (of_pod(pod["spec"])["cpu"] for pod in await kube.list_objects("v1", "Pod", "video")), Decimal(0)
            )
            [granted] = await muster.happened(QuotaReserved)
            assert asked == 3 and granted.request["cpu"] == 3_000
            assert not await muster.happened(ChargeChanged), "nothing of it is beyond the grant"
        await kube.delete("node.k8s.io/v1", "RuntimeClass", "sandbox")
        await kube.delete("v1", "LimitRange", "defaults", "video")
