"""Admitted, and the cluster refuses the pods: the real Job controller says who refused, and so does Muster.

The refusals are of the real API server: the ResourceQuota of the namespace, and a PriorityClass that is not there.
"""

from pathlib import Path

from kit import facts, jobs
from kit.cluster import RUN_FOR, SCHEDULING, TREES, Cluster
from kit.controlplane import ControlPlane
from kit.muster import running
from muster.bus.server import EmbeddedServer
from muster.core.workloads.registry import KINDS
from muster.events.decisions import QuotaReserved

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "of-the-namespace", "namespace": "video"},
    "spec": {"hard": {"requests.cpu": "1"}},
}
REFUSERS = {"denied": "exceeded quota: of-the-namespace", "typo": "no PriorityClass with name hihg was found"}


async def test_who_refused_the_pods_is_told_and_the_job_comes_back(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        running(cluster, nats_server.url, tmp_path) as muster,
    ):
        kube = cluster.kube
        leaf = facts.node("video", {"cpu": 4}, {"cpu": 4}, ("video",))
        root = facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(leaf,))
        await cluster.apply_tree(root)
        rules = {"metadata": {"annotations": {"muster.dev/start-timeout": "5s", "muster.dev/backoff": "2s"}}}
        await kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=rules)
        quota = await kube.create(QUOTA)

        async def submit(name: str, cpu: str, **pod: object) -> str:
            """The uid of the job."""
            job = jobs.job(name, cpu=cpu, parallelism=1)
            job["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}}
            job["spec"]["template"]["spec"] |= pod
            return str((await kube.create(job))["metadata"]["uid"])

        uids = {"denied": await submit("denied", "2"), "typo": await submit("typo", "1", priorityClassName="hihg")}
        lacks: dict[str, str] = {}
        units: set[str] = set()

        async def told() -> bool:
            lacks.clear()
            for name, words in REFUSERS.items():
                unit = await kube.find(SCHEDULING, "QueueUnit", name + KINDS["Job"].unit_suffix, "video") or {}
                shown = [
                    event["message"]
                    for event in await cluster.events(uids[name])
                    if event["reason"] == "RunningTimeout"
                ]
                if not any("the cluster refuses its pods" in text and words in text for text in shown):
                    lacks[f"Event {name}"] = str(shown)
                message = str((unit.get("status") or {}).get("message"))
                if name not in units and words not in message:
                    lacks[f"QueueUnit {name}"] = message
                else:
                    units.add(name)
            return not lacks

        try:
            await cluster.until(told, 40.0)
        except AssertionError:
            raise AssertionError(lacks) from None
        await kube.delete("v1", "ResourceQuota", quota["metadata"]["name"], "video")

        async def runs() -> bool:
            return int((await kube.get("batch/v1", "Job", "denied", "video")).get("status", {}).get("active") or 0) == 1

        await cluster.until(runs, 30.0, "the job to run once nothing refuses it")
        assert [each.ref.name for each in await muster.happened(QuotaReserved)].count("denied") >= 2
