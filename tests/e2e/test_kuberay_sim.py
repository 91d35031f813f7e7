"""The simulated operator against a real API server, with real controllers, scheduler and KWOK: the document's jobs."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kit.api import Api, Object, real_api
from kit.beside import beside
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.crds import install_crds
from kit.documents import manifest
from kit.doubles.asyncdriver import AsyncDriver
from kit.kubeclient import condition
from kit.waiting import until
from muster.fakecluster.kuberay import OUTCOME, RUNTIME, KubeRayOperator, OperatorSettings
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.api import JOBS, NODES, PODS, RAYCLUSTERS, RAYJOBS
from muster.ports import ApiTransport

__all__ = ["real_api"]


@pytest_asyncio.fixture
async def cluster(real_api: Api) -> AsyncIterator[Api]:
    """A control plane with a roomy node and the operator running."""
    api = real_api
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    # Without a taint, as the document's pods tolerate none; the pods of other tests select nodes of their own.
    name = f"kuberay-{api.namespace}"
    made = {"metadata": {"name": name}, "status": {"capacity": room, "allocatable": room}}
    assert (await api.call("POST", NODES.path(), made)).status == 201
    settings = OperatorSettings(run_for="kit.muster.dev/run-for", fail_after="kit.muster.dev/fail-after")
    async with beside(operator(api.transport, settings).run()):
        yield api
    await api.call("DELETE", NODES.path(name=name))


def operator(transport: ApiTransport, settings: OperatorSettings) -> AsyncDriver:
    return AsyncDriver(transport, [KubeRayOperator(settings)], lambda: time.time_ns() // 1_000_000)


def rayjob(api: Api, **annotations: str) -> Object:
    """The document's RayJob, in this test's namespace."""
    job = manifest("rayjob-video")
    job["metadata"] |= {"namespace": api.namespace, "annotations": annotations}
    return job


async def submit(api: Api, job: Object) -> str:
    answer = await api.call("POST", RAYJOBS.path(api.namespace), job)
    assert answer.status == 201, answer
    return str(answer.body["metadata"]["name"])


async def status(api: Api, name: str) -> Object:
    return dict(((await api.get(RAYJOBS, name)) or {}).get("status") or {})


async def reach(api: Api, name: str, state: str, timeout_s: float = 60.0) -> Object:
    """The status, once the RayJob is in that deployment status."""

    async def reached() -> Object | None:
        found = await status(api, name)
        return found if found.get("jobDeploymentStatus") == state else None

    found = await until(reached, timeout_s)
    assert found is not None
    return found


async def pods(api: Api) -> dict[str, str]:
    found = (await api.select(PODS)).body["items"]
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}


async def test_two_jobs_of_the_document(cluster: Api) -> None:
    api = cluster
    first, second = [await submit(api, rayjob(api, **{RUNTIME: "10s"})) for _ in range(2)]
    for name in (first, second):
        await reach(api, name, "Suspended")
    assert await pods(api) == {}

    await api.merge(RAYJOBS, first, {"spec": {"suspend": False}})
    running = await reach(api, first, "Running")
    raycluster = running["rayClusterName"]

    async def all_run() -> bool:
        found = await pods(api)
        return len(found) == 4 and set(found.values()) == {"Running"}

    await until(all_run, 30.0)
    worker = f"{raycluster}-small-group-worker"
    assert sorted(name.rpartition("-")[0] for name in await pods(api)) == [first, f"{raycluster}-head", worker, worker]
    assert (await status(api, second))["jobDeploymentStatus"] == "Suspended"
    found = await api.get(RAYCLUSTERS, raycluster)
    assert found is not None
    assert found["status"]["state"] == "ready"
    assert (found["status"]["readyWorkerReplicas"], found["status"]["desiredCPU"]) == (2, "12")

    ended = await reach(api, first, "Complete")
    assert (ended["jobStatus"], ended["succeeded"], ended["failed"]) == ("SUCCEEDED", 1, 0)
    assert await api.get(RAYCLUSTERS, raycluster) is not None, "it stays for ttlSecondsAfterFinished"
    await api.gone(RAYCLUSTERS, raycluster)

    async def only_the_submitter() -> bool:
        return list((await pods(api)).values()) == ["Succeeded"]

    await until(only_the_submitter, 30.0)
    submitter = await api.get(JOBS, first)
    assert submitter is not None
    assert condition(submitter, "Complete")["status"] == "True"

    await api.delete(RAYJOBS, second)
    await api.gone(RAYJOBS, second)


@pytest.mark.row(23)
async def test_suspending_and_resuming_a_running_job(cluster: Api) -> None:
    api = cluster
    job = rayjob(api, **{RUNTIME: "1h"})
    job["spec"] |= {"suspend": False, "ttlSecondsAfterFinished": 0}
    name = await submit(api, job)
    before = await reach(api, name, "Running")
    await api.merge(RAYJOBS, name, {"spec": {"suspend": True}})
    suspended = await reach(api, name, "Suspended")
    assert "rayClusterName" not in suspended
    assert await api.get(RAYCLUSTERS, before["rayClusterName"]) is None
    assert await api.get(JOBS, name) is None

    async def no_pods() -> bool:
        return not await pods(api)

    await until(no_pods, 30.0)
    await api.merge(RAYJOBS, name, {"metadata": {"annotations": {RUNTIME: "3s"}}, "spec": {"suspend": False}})
    after = await reach(api, name, "Complete")
    assert after["rayClusterName"] != before["rayClusterName"]
    await api.gone(RAYCLUSTERS, after["rayClusterName"])


@pytest.mark.row(23)
async def test_suspending_a_new_job_and_one_that_waits_for_its_user(cluster: Api) -> None:
    """A new one is suspended before it has a cluster; one in Waiting goes on until the user has begun and it runs."""
    api = cluster
    new = await submit(api, rayjob(api))
    await reach(api, new, "Suspended")
    job = rayjob(api, **{RUNTIME: "1h"})
    job["spec"] |= {"suspend": False, "submissionMode": "InteractiveMode"}
    waiting = await submit(api, job)
    before = await reach(api, waiting, "Waiting")
    await api.merge(RAYJOBS, waiting, {"spec": {"suspend": True}})
    await api.merge(RAYJOBS, waiting, {"spec": {"jobId": "mine"}})
    after = await reach(api, waiting, "Suspended")
    assert "rayClusterName" not in after and await api.get(RAYCLUSTERS, before["rayClusterName"]) is None
    assert await api.get(RAYCLUSTERS, f"{new}-raycluster") is None


async def test_failures_of_the_ray_job_and_of_its_submission(cluster: Api) -> None:
    api = cluster
    names = []
    for outcome in ("failed", "submission-failed"):
        job = rayjob(api, **{RUNTIME: "1s", OUTCOME: outcome})
        job["spec"] |= {"suspend": False, "submitterConfig": {"backoffLimit": 0}}
        names.append(await submit(api, job))
    failed, refused = names
    found = await reach(api, failed, "Failed")
    assert (found["reason"], found["jobStatus"]) == ("AppFailed", "FAILED")
    found = await reach(api, refused, "Failed")
    assert (found["reason"], found.get("jobStatus")) == ("SubmissionFailed", None)


async def test_worker_groups_grow_and_shrink(cluster: Api) -> None:
    api = cluster
    spec = manifest("rayjob-video")["spec"]["rayClusterSpec"]
    await api.create(RAYCLUSTERS, {"metadata": {"name": "c"}, "spec": spec})

    async def count(wanted: int) -> None:
        async def so_many() -> bool:
            found = await api.get(RAYCLUSTERS, "c")
            assert found is not None
            return (
                len(await pods(api)) == wanted and (found.get("status") or {}).get("readyWorkerReplicas") == wanted - 1
            )

        await until(so_many, 30.0)

    await count(3)
    place = "/spec/workerGroupSpecs/0"
    await api.json_patch(RAYCLUSTERS, "c", {"op": "replace", "path": f"{place}/replicas", "value": 4})
    await count(5)
    victim = next(name for name in await pods(api) if "worker" in name)
    shrink: list[Object] = [
        {"op": "replace", "path": f"{place}/replicas", "value": 3},
        {"op": "replace", "path": f"{place}/scaleStrategy", "value": {"workersToDelete": [victim]}},
    ]
    answer = await api.json_patch(RAYCLUSTERS, "c", *shrink)
    assert answer.status == 200, answer
    await count(4)
    assert victim not in await pods(api)
    await api.merge(RAYCLUSTERS, "c", {"spec": {"suspend": True}})

    async def suspended() -> bool:
        found = await api.get(RAYCLUSTERS, "c")
        assert found is not None
        return (found.get("status") or {}).get("state") == "suspended" and not await pods(api)

    await until(suspended, 30.0)
    await api.delete(RAYCLUSTERS, "c")


async def test_without_any_other_controller(control_plane_binaries: Binaries) -> None:
    """Where nobody schedules pods, runs Jobs or collects garbage the operator can still play a RayJob to its end."""
    del control_plane_binaries  # built beforehand, not within the time limit of this test
    async with ControlPlane(controller_manager=False, scheduler=False, kwok=False) as plane:
        transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
        await install_crds(transport)
        api = Api(transport, "default", real=True, server=None)
        settings = OperatorSettings(pods=False, submitter_pods=False, ready_ms=500)
        driver = operator(transport, settings)
        async with beside(driver.run()):
            job = rayjob(api, **{RUNTIME: "1s"})
            job["spec"]["suspend"] = False
            name = await submit(api, job)
            found = await reach(api, name, "Complete")
            assert (found["jobStatus"], driver.failures) == ("SUCCEEDED", [])
        await transport.close()
