"""The other kinds as their users live them: two wait in one queue, one after the other runs, and nothing is left.

The batch Jobs run by the real job controller; RayClusters, TFJobs and SparkApplications by simulated operators. All
have real pods, bound by the real scheduler.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kit import jobs
from kit.cluster import RUN_FOR, SCHEDULING, Cluster
from kit.controlplane import ControlPlane
from kit.doubles.training import TrainingOperator
from kit.kubeclient import ApiError, Object
from kit.muster import Muster, running
from kit.operators import SparkOperator
from muster.bus.server import EmbeddedServer
from muster.core.workloads.registry import KINDS
from muster.events.decisions import GangAdmitted, QuotaReleased, WorkloadAdopted, WorkloadQueued
from muster.events.facts import PodGone, PodObserved, Synced, WorkloadFinished
from muster.model.keys import Ref

SUSPEND = "scheduling.x-k8s.io/suspend"
FOR_EVER = "99h"
"""Of what runs until the test has seen what it looks for."""


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Muster on a cluster with the tree T0 (video: 14 cpu) and all operators."""
    async with Cluster(muster_plane, pods=True) as cluster:
        cluster.operate(TrainingOperator(), SparkOperator())
        async with running(cluster, nats_server.url, tmp_path) as found:
            await cluster.apply_tree()
            yield found


def lasting(template: Object, run_for: str) -> None:
    """Pods of a template run for so long."""
    template.setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = run_for


async def phase(cluster: Cluster, kind: str, name: str) -> str:
    """The phase its QueueUnit shows."""
    unit = await cluster.kube.find(SCHEDULING, "QueueUnit", name + KINDS[kind].unit_suffix, "video")
    return str(((unit or {}).get("status") or {}).get("phase", ""))


async def shown(cluster: Cluster, kind: str, **wanted: str) -> None:
    """Return once the QueueUnits show these phases."""

    async def as_wanted() -> bool:
        return {name: await phase(cluster, kind, name) for name in wanted} == wanted

    await cluster.until(as_wanted, 90.0, f"{kind} {wanted}")


async def one_after_the_other(muster: Muster, kind: str, first: str, second: str) -> None:
    """What the log says of two that fit only one after the other."""
    events = [event for stored in await muster.commits() for event in stored.commit.events]
    kinds = (WorkloadQueued, GangAdmitted, QuotaReleased)
    told = [(type(event).__name__, event.ref.name) for event in events if isinstance(event, kinds)]
    assert told.count(("WorkloadQueued", first)) == told.count(("WorkloadQueued", second)) == 1
    order = [entry for entry in told if entry[0] != "WorkloadQueued"]
    admitted, released = "GangAdmitted", "QuotaReleased"
    assert order[:3] == [(admitted, first), (released, first), (admitted, second)]
    assert not [event for event in events if isinstance(event, WorkloadAdopted)]
    assert {event.ref.kind for event in events if isinstance(event, kinds)} == {kind}


async def test_batch_jobs_by_the_real_job_controller(muster: Muster) -> None:
    cluster = muster.cluster
    for name in ("one", "two"):
        job = jobs.job(name, cpu="5", parallelism=2)
        lasting(job["spec"]["template"], FOR_EVER if name == "one" else "1s")
        await cluster.submit(job)
    await shown(cluster, "Job", one="Running", two="Enqueued")

    async def told() -> bool:
        unit = await cluster.kube.get(SCHEDULING, "QueueUnit", "two", "video")
        return "request 10, max 14, used 10" in unit["status"]["message"]

    await cluster.until(told, what="the second to be told why it waits")
    assert {name.rpartition("-")[0] for name in await cluster.pods()} == {"one"}
    await cluster.end_pods("batch.kubernetes.io/job-name=one", 2)

    async def both_over() -> bool:
        found = [await cluster.kube.get("batch/v1", "Job", name, "video") for name in ("one", "two")]
        return all((job.get("status") or {}).get("succeeded") == 2 for job in found)

    await cluster.until(both_over, 90.0, "both Jobs to succeed")
    await cluster.until(lambda: _released(muster, "two"), 60.0, "the quota of the second")
    await one_after_the_other(muster, "Job", "one", "two")
    assert [event.outcome for event in await muster.happened(WorkloadFinished)] == ["succeeded", "succeeded"]


async def _released(muster: Muster, name: str) -> bool:
    return bool(await muster.happened(QuotaReleased, name))


async def _pods(cluster: Cluster, *names: str) -> bool:
    """Whether exactly these run."""
    return await cluster.pods() == dict.fromkeys(names, "Running")


async def test_rayclusters_run_until_they_are_deleted(muster: Muster) -> None:
    cluster = muster.cluster
    for name in ("one", "two"):
        await cluster.submit(jobs.raycluster(name, cpu="5"))
    await shown(cluster, "RayCluster", one="Running", two="Enqueued")
    await cluster.kube.delete("ray.io/v1", "RayCluster", "one", "video")
    await shown(cluster, "RayCluster", two="Running")
    await one_after_the_other(muster, "RayCluster", "one", "two")


async def test_tfjobs_suspended_by_the_field_and_by_the_annotation(muster: Muster) -> None:
    cluster = muster.cluster
    by_field, by_mark = jobs.tfjob("one", cpu="4", workers=2), jobs.tfjob("two", cpu="4", workers=2)
    del by_mark["spec"]["runPolicy"]
    by_mark["metadata"]["annotations"] = {SUSPEND: "true"}
    for job in (by_field, by_mark):
        for replica in job["spec"]["tfReplicaSpecs"].values():
            lasting(replica["template"], FOR_EVER if job is by_field else "1s")
        await cluster.submit(job)
    await shown(cluster, "TFJob", one="Running", two="Enqueued")
    await cluster.end_pods("training.kubeflow.org/job-name=one", 3)

    async def over() -> bool:
        return len(await muster.happened(WorkloadFinished)) == 2

    await cluster.until(over, 90.0, "both TFJobs to succeed")
    await cluster.until(lambda: _released(muster, "two"), 60.0, "the quota of the second")
    resumed = await cluster.kube.get("kubeflow.org/v1", "TFJob", "two", "video")
    assert resumed["metadata"]["annotations"][SUSPEND] == "false"
    await one_after_the_other(muster, "TFJob", "one", "two")


async def test_pytorchjobs(muster: Muster) -> None:
    cluster = muster.cluster
    for name in ("one", "two"):
        job = jobs.pytorchjob(name, cpu="4", workers=2)
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            lasting(replica["template"], FOR_EVER if name == "one" else "1s")
        await cluster.submit(job)
    await shown(cluster, "PyTorchJob", one="Running", two="Enqueued")
    await cluster.end_pods("training.kubeflow.org/job-name=one", 3)
    await cluster.until(lambda: _released(muster, "two"), 120.0, "the quota of the second")
    await one_after_the_other(muster, "PyTorchJob", "one", "two")


async def test_mpijobs_are_resumed_one_after_the_other(muster: Muster) -> None:
    """Nobody plays their operator: the first runs until it is deleted."""
    cluster = muster.cluster

    async def is_told_to_run(name: str) -> bool:
        job = await cluster.kube.get("kubeflow.org/v2beta1", "MPIJob", name, "video")
        return job["spec"]["runPolicy"]["suspend"] is False

    for name in ("one", "two"):
        await cluster.submit(jobs.mpijob(name, cpu="4", workers=2))
    await cluster.until(lambda: is_told_to_run("one"), 60.0, "the first to be resumed")
    await shown(cluster, "MPIJob", two="Enqueued")
    assert not await is_told_to_run("two")
    await cluster.kube.delete("kubeflow.org/v2beta1", "MPIJob", "one", "video")
    await cluster.until(lambda: is_told_to_run("two"), 60.0, "the second to be resumed")
    await cluster.kube.delete("kubeflow.org/v2beta1", "MPIJob", "two", "video")
    await cluster.until(lambda: _released(muster, "two"), 60.0, "its quota")
    await one_after_the_other(muster, "MPIJob", "one", "two")


async def test_a_spark_application_holds_its_quota_until_its_executors_are_gone(muster: Muster) -> None:
    cluster = muster.cluster
    for name in ("one", "two"):
        app = jobs.sparkapplication(name, cores=3, executors=2)
        app["spec"]["driver"]["annotations"] = {RUN_FOR: FOR_EVER if name == "one" else "4s"}
        await cluster.submit(app)
    await shown(cluster, "SparkApplication", one="Running", two="Enqueued")
    await cluster.until(lambda: _pods(cluster, "one-driver", "one-exec-0", "one-exec-1"), what="all pods of the first")
    await cluster.end_pods("sparkoperator.k8s.io/app-name=SparkApplication.one,spark-role=driver", 1)
    await cluster.until(lambda: _released(muster, "two"), 120.0, "the quota of the second")
    await one_after_the_other(muster, "SparkApplication", "one", "two")
    ends: dict[str, int] = {}
    for stored in await muster.commits():
        for event in stored.commit.events:
            if isinstance(event, PodGone) or (isinstance(event, PodObserved) and event.pod.over):
                ref: Ref = event.ref if isinstance(event, PodGone) else event.pod.ref
                ends.setdefault(ref.name, stored.seq)
            if isinstance(event, QuotaReleased):
                ends[event.ref.name] = stored.seq
    assert max(ends["one-driver"], ends["one-exec-0"], ends["one-exec-1"]) < ends["one"]


async def test_a_kind_the_cluster_does_not_have_is_skipped_and_reported_once(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mpijobs.kubeflow.org"
    async with Cluster(muster_plane, pods=True) as cluster:
        kept = await cluster.kube.request("GET", definition)
        await cluster.kube.request("DELETE", definition)

        async def answered(status: int) -> bool:
            try:
                await cluster.kube.request("GET", "/apis/kubeflow.org/v2beta1/mpijobs")
            except ApiError as err:
                return err.status == status
            return status == 200

        async def gone() -> bool:
            kind = "CustomResourceDefinition"
            found = await cluster.kube.find("apiextensions.k8s.io/v1", kind, "mpijobs.kubeflow.org")
            return found is None and await answered(404)

        await cluster.until(gone, 60.0, "MPIJobs to be unknown")
        try:
            async with running(cluster, nats_server.url, tmp_path) as muster:
                await cluster.apply_tree()
                await cluster.submit(jobs.job("one"))
                await shown(cluster, "Job", one="Running")
                told = [event for event in await muster.happened(Synced) if event.kind == "mpijobs"]
                assert [event.absent for event in told] == [True]
        finally:
            body = {key: kept[key] for key in ("apiVersion", "kind", "spec")}
            meta = {"name": "mpijobs.kubeflow.org"}
            await cluster.kube.request("POST", definition.rpartition("/")[0], body={**body, "metadata": meta})
            await cluster.until(lambda: answered(200), 60.0, "MPIJobs to be known again")
