"""The drivers: the same controllers through an ApiTransport, under a virtual clock, with and without faults."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from kit import ray
from kit.documents import manifest
from kit.doubles.asyncdriver import AsyncDriver
from kit.ray import Object
from kit.waiting import until
from muster.fakecluster.apiserver import FaultDraw, FaultRates, SimApiServer, SimTransport
from muster.fakecluster.controllers import Controller, WorkQueue
from muster.fakecluster.jobcontroller import JobController
from muster.fakecluster.kubelet import RUN_FOR, Kubelet
from muster.fakecluster.kuberay import RUNTIME, KubeRayOperator, words
from muster.fakecluster.operations import OperationPlan, Replace
from muster.fakecluster.scheduler import DefaultScheduler
from muster.fakecluster.world import BEGINNING_MS, SimCluster, node
from muster.model.api import JOBS, MERGE_PATCH, NODES, PODS, RAYCLUSTERS, RAYJOBS
from muster.ports import ApiResponse

pytestmark = pytest.mark.looptime

FAULTS = FaultRates(
    lose_request=0.03,
    lose_response=0.03,
    throttle=0.03,
    error=0.03,
    delay=0.2,
    delay_s=2.0,
    cut_watch=0.02,
    end_watch=0.02,
    expire_watch=0.01,
    repeat_line=0.05,
    outage=0.004,
    outage_s=10.0,
)


def loop_ms() -> int:
    return BEGINNING_MS + int(asyncio.get_running_loop().time() * 1000)


def everybody() -> list[Controller]:
    """All controllers of a cluster, as new processes."""
    return [KubeRayOperator(), JobController(), Kubelet(), DefaultScheduler()]


def rayjob(name: str, **annotations: str) -> Object:
    job = manifest("rayjob-video")
    job["metadata"] = {"name": name, "namespace": "video", "annotations": annotations}
    job["spec"]["suspend"] = False
    return job


def state(server: SimApiServer, name: str) -> str:
    found = server.objects.find(RAYJOBS, "video", name)
    return str(((found or {}).get("status") or {}).get("jobDeploymentStatus", ""))


@pytest.mark.parametrize("seed", [None, *range(12)])
async def test_jobs_are_run_through_a_transport_whatever_goes_wrong(seed: int | None) -> None:
    server = SimApiServer(loop_ms, auto_namespaces=True)
    for number in range(4):
        server.objects.create(NODES, "", node(f"n{number}", {"cpu": "16", "memory": "64Gi"}, loop_ms()))
    faults = None if seed is None else FaultDraw(FAULTS, seed)
    driver = AsyncDriver(SimTransport(server, faults), everybody(), loop_ms)
    running = asyncio.ensure_future(driver.run())
    for number in range(4):
        server.objects.create(RAYJOBS, "video", rayjob(f"j{number}", **{RUNTIME: f"{10 * number + 5}s"}))

    def over() -> bool:
        assert not running.done(), running
        return all(state(server, f"j{number}") == "Complete" for number in range(4))

    await until(over, 600.0, every_s=1.0)
    if faults is not None:
        faults.heal()

    def tidy() -> bool:
        left = server.store.table(PODS).objects.values()
        return not server.store.table(RAYCLUSTERS).objects and all(
            pod["status"]["phase"] == "Succeeded" for pod in left
        )

    await until(tidy, 120.0, every_s=1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    made = [change.object["metadata"]["name"] for change in server.store.table(PODS).changes if change.type == "ADDED"]
    assert sum("-head-" in name for name in made) == 4, "what is not known to have been made is not made again"
    if seed is None:
        assert len(made) == 16


class Overtaken(SimTransport):
    """Of every pod that is deleted here somebody else ends the deletion first; answered as a real server does then."""

    async def request(self, method: str, path: str, **options: Any) -> ApiResponse:
        if method != "DELETE" or "/pods/" not in path:
            return await super().request(method, path, **options)
        found = json.loads((await super().request("GET", path)).body)
        await super().request("DELETE", path, body=b'{"gracePeriodSeconds": 0}')
        del found["metadata"]["resourceVersion"]
        return ApiResponse(200, json.dumps(found).encode())


async def test_a_deletion_that_somebody_else_ends_first_is_one_all_the_same() -> None:
    server = SimApiServer(loop_ms, auto_namespaces=True)
    server.objects.create(NODES, "", node("n", {"cpu": "16", "memory": "64Gi"}, loop_ms()))
    transport = Overtaken(server)
    running = asyncio.ensure_future(AsyncDriver(transport, everybody(), loop_ms).run())
    kind = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    server.objects.create(RAYCLUSTERS, "video", {**kind, "metadata": {"name": "c"}, "spec": ray.cluster_spec()})

    def reached(wanted: str) -> bool:
        assert not running.done(), running
        found = server.objects.find(RAYCLUSTERS, "video", "c")
        return bool(((found or {}).get("status") or {}).get("state") == wanted)

    await until(lambda: reached("ready"), 120.0, every_s=1.0)
    assert len(server.store.table(PODS).objects) == 3
    suspend = b'{"spec": {"suspend": true}}'
    await transport.request("PATCH", RAYCLUSTERS.path("video", "c"), body=suspend, content_type=MERGE_PATCH)
    await until(lambda: reached("suspended"), 120.0, every_s=1.0)
    assert not server.store.table(PODS).objects
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_restarted_operator_takes_over_where_the_last_one_stopped() -> None:
    server = SimApiServer(loop_ms, auto_namespaces=True)
    server.objects.create(NODES, "", node("n", {"cpu": "16", "memory": "64Gi"}, loop_ms()))
    server.objects.create(RAYJOBS, "video", rayjob("j", **{RUNTIME: "60s"}))
    began = asyncio.get_running_loop().time()
    for _ in range(6):
        running = asyncio.ensure_future(AsyncDriver(SimTransport(server), everybody(), loop_ms).run())
        pause = asyncio.get_running_loop().time() + 10.0
        await until(lambda pause=pause: asyncio.get_running_loop().time() >= pause, 60.0, every_s=1.0)  # type: ignore[misc]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert state(server, "j") == "Running"
    running = asyncio.ensure_future(AsyncDriver(SimTransport(server), everybody(), loop_ms).run())
    await until(lambda: state(server, "j") == "Complete", 120.0, every_s=1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.get_running_loop().time() - began > 60
    assert len([change for change in server.store.table(PODS).changes if change.type == "ADDED"]) == 4


async def test_an_operator_that_was_away_when_the_submitter_ended_finds_the_ray_job_in_its_head() -> None:
    server = SimApiServer(loop_ms, auto_namespaces=True)
    server.objects.create(NODES, "", node("n", {"cpu": "16", "memory": "64Gi"}, loop_ms()))
    server.objects.create(RAYJOBS, "video", rayjob("j", **{RUNTIME: "60s"}))
    transport = SimTransport(server)

    async def runs(controllers: list[Controller], wanted: Callable[[], bool]) -> None:
        running = asyncio.ensure_future(AsyncDriver(transport, controllers, loop_ms).run())
        await until(wanted, 120.0, every_s=0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def heard() -> bool:
        found = server.objects.find(RAYJOBS, "video", "j") or {}
        return (found.get("status") or {}).get("jobStatus") == words.JOB_RUNNING

    def submitted() -> bool:
        jobs = server.store.table(JOBS).objects.values()
        return any((job.get("status") or {}).get("succeeded") for job in jobs)

    await runs(everybody(), heard)
    ends = json.dumps({"metadata": {"annotations": {RUNTIME: "0s", RUN_FOR: "0s"}}}).encode()
    await transport.request("PATCH", RAYJOBS.path("video", "j"), body=ends, content_type=MERGE_PATCH)
    for pod in list(server.store.table(PODS).objects.values()):
        if "batch.kubernetes.io/job-name" in pod["metadata"]["labels"]:
            path = PODS.path("video", pod["metadata"]["name"])
            await transport.request("PATCH", path, body=ends, content_type=MERGE_PATCH)
    await runs([JobController(), Kubelet(), DefaultScheduler()], submitted)
    await runs(everybody(), lambda: state(server, "j") in ("Complete", "Failed"))
    assert state(server, "j") == "Complete"


@pytest.mark.parametrize("speed", [1.0, 10.0])
async def test_a_cluster_lives_in_the_event_loop_at_the_speed_that_is_wanted(speed: float) -> None:
    cluster = SimCluster({"n": {"cpu": "16", "memory": "64Gi"}})
    running = asyncio.ensure_future(cluster.run(speed=speed))
    transport, loop = cluster.transport(), asyncio.get_running_loop()
    body = json.dumps(rayjob("j", **{RUNTIME: "20s"})).encode()
    assert (await transport.request("POST", RAYJOBS.path("video"), body=body)).status == 201
    began = loop.time()
    await until(lambda: state(cluster.server, "j") == "Complete", 60.0, every_s=0.1)
    assert loop.time() - began == pytest.approx(24 / speed, abs=0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_queue_gives_each_key_once_and_in_time() -> None:
    queue = WorkQueue()
    queue.mark("a")
    queue.mark("b")
    queue.mark("a")
    queue.mark_at("c", 50)
    queue.mark_at("c", 90)
    queue.mark_at("d", 40)
    assert [queue.take(10), queue.take(10), queue.take(10)] == ["a", "b", None]
    assert queue.next_at(10) == 40
    assert [queue.take(60), queue.take(60), queue.take(60)] == ["d", "c", None]
    assert queue.next_at(60) is None
    queue.failed("a", 100)
    assert queue.next_at(100) == 600
    assert queue.take(600) == "a"
    queue.failed("a", 600)
    assert queue.next_at(600) == 1_600
    assert queue.take(1_600) == "a"
    queue.done("a", OperationPlan(), 1_600)
    queue.failed("a", 2_000)
    assert queue.next_at(2_000) == 2_500


def test_news_of_a_submitters_pod_may_come_before_news_of_its_job() -> None:
    operator = KubeRayOperator()
    labels = {"batch.kubernetes.io/job-name": "j"}
    pod = {"metadata": {"name": "j-1", "namespace": "ns", "uid": "p", "labels": labels}, "status": {"phase": "Running"}}
    operator.heard("ADDED", PODS, pod)
    operator.heard("ADDED", RAYJOBS, ray.rayjob(words.RUNNING))
    operator.heard("ADDED", RAYCLUSTERS, ray.raycluster(status={"state": "ready"}))
    submitter = ray.submitter()
    submitter["metadata"]["labels"] = {words.FROM_NAME: "j"}
    operator.heard("ADDED", JOBS, submitter)
    (written,) = operator.plan("job ns/j", ray.BEGAN).operations
    assert isinstance(written, Replace)
    assert written.body["status"]["jobStatus"] == "RUNNING"
