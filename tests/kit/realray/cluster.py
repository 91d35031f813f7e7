"""A RayCluster on a real API server whose head, autoscaler and workers are real, and whose operator is simulated."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import trustme

from kit.api import Api
from kit.beside import beside
from kit.controlplane import ControlPlane
from kit.doubles.asyncdriver import AsyncDriver
from kit.realray.autoscaler import Autoscaler
from kit.realray.head import RayHead
from kit.realray.kubelet import NODE, RayKubelet
from kit.waiting import until
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.kuberay import KubeRayOperator, OperatorSettings, words
from muster.fakecluster.operations import OperationPlan
from muster.model.api import NODES, PODS, RAYCLUSTERS, ApiResource
from muster.ray.errors import DemandError
from muster.ray.reading import RayNode, Reading

Object = dict[str, Any]
LIMIT_S = 180.0
ROOM = {"cpu": "128", "memory": "1Ti", "pods": "100"}
PRELUDE = """
import threading
from ray.util.state import list_actors
from ray.util.placement_group import placement_group, remove_placement_group
@ray.remote(num_cpus=1)
def task(): threading.Event().wait()
@ray.remote(num_cpus=1)
class Actor:
    def make(self): return bytes(2**20)
"""
ENVIRONMENT = {
    # A raylet that lost its head gives up sooner; what is put into the object store goes to disk sooner.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_min_spilling_size": "1",
}


def manifest(name: str, **group: Any) -> Object:
    """The document's cluster: nothing runs on the head, workers of one CPU, none at first."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"image": "rayproject/ray:2.60.0", "resources": {"requests": amounts, "limits": amounts}}
    workers = {
        "groupName": "small-group",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": 10,
        "rayStartParams": {},
        "template": {"spec": {"containers": [{"name": "ray-worker", **container}]}},
        **group,
    }
    head = {
        "rayStartParams": {"num-cpus": "0"},
        "template": {"spec": {"containers": [{"name": "ray-head", **container}]}},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.60.0",
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"upscalingMode": "Default", "idleTimeoutSeconds": 5},
            "headGroupSpec": head,
            "workerGroupSpecs": [workers],
        },
    }


class Written(NamedTuple):
    """What of the first worker group was stored at one time."""

    replicas: int
    max: int
    to_delete: tuple[str, ...]


class Recorder:
    """Hears every version of the RayCluster. A controller for `AsyncDriver` that does nothing."""

    watches: ClassVar[tuple[ApiResource, ...]] = (RAYCLUSTERS,)

    def __init__(self, cluster: str) -> None:
        self.queue = WorkQueue()
        self.versions: list[Written] = []
        self._cluster = cluster

    def heard(self, kind: ChangeType, _resource: ApiResource, found: Object) -> None:
        """Note what changed of the worker group."""
        if kind == "DELETED" or found["metadata"]["name"] != self._cluster:
            return
        group = found["spec"]["workerGroupSpecs"][0]
        named = tuple((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
        version = Written(group.get("replicas", 0), group["maxReplicas"], named)
        if not self.versions or self.versions[-1] != version:
            self.versions.append(version)

    def plan(self, _key: str, _now: int) -> OperationPlan:
        return OperationPlan()

    def replicas(self) -> list[int]:
        """Every value of `replicas` there was, without repetitions."""
        return [number for number, _ in groupby(version.replicas for version in self.versions)]


class Operator(KubeRayOperator):
    """KubeRay; while it is ``away`` it does nothing."""

    away = False

    def plan(self, key: str, now: int) -> OperationPlan:
        return OperationPlan(again_ms=500) if self.away else super().plan(key, now)


class RealRayCluster:
    """What a test does with one."""

    def __init__(
        self,
        api: Api,
        name: str,
        head: RayHead,
        kubelet: RayKubelet,
        autoscaler: Autoscaler,
        recorder: Recorder,
        operator: Operator,
        *,
        v2: bool,
    ) -> None:
        self.v2 = v2
        self.operator = operator
        self.recorder = recorder
        self.api = api
        self.name = name
        self.head = head
        self.kubelet = kubelet
        self.autoscaler = autoscaler

    async def spec(self) -> Object:
        """Of the first worker group, as stored."""
        found = await self.api.get(RAYCLUSTERS, self.name)
        assert found is not None
        return dict(found["spec"]["workerGroupSpecs"][0])

    async def patch(self, **fields: Any) -> None:
        """Set fields of the first worker group, nothing else."""
        operations = [
            {"op": "add", "path": f"/spec/workerGroupSpecs/0/{key}", "value": value} for key, value in fields.items()
        ]
        answer = await self.api.json_patch(RAYCLUSTERS, self.name, *operations)
        assert answer.status == 200, answer

    async def idle_after(self, seconds: int) -> None:
        """Set the idle timeout of the group and of the cluster: the first version knows the second alone."""
        if self.v2:  # KubeRay refuses the field of a group without the second version.
            await self.patch(idleTimeoutSeconds=seconds)
        body = {"spec": {"autoscalerOptions": {"idleTimeoutSeconds": seconds}}}
        assert (await self.api.merge(RAYCLUSTERS, self.name, body)).status == 200

    async def workers(self) -> list[str]:
        """Names of the worker pods that are not going."""
        found = (await self.api.call("GET", PODS.path(self.api.namespace))).body["items"]
        return sorted(
            pod["metadata"]["name"]
            for pod in found
            if pod["metadata"]["labels"].get(words.NODE_TYPE) == "worker" and "deletionTimestamp" not in pod["metadata"]
        )

    async def pods(self) -> str:
        """What `kubectl get pods` says of the cluster's pods, the head first, once all of them run."""

        async def all_run() -> str | None:
            lines = await self._pods()
            return "\n".join(lines) if all(line.endswith(("STATUS", "Running")) for line in lines) else None

        return await until(all_run, LIMIT_S, every_s=0.2, what="every pod to run")

    async def _pods(self) -> list[str]:
        found = (await self.api.call("GET", PODS.path(self.api.namespace))).body["items"]
        lines = ["NAME READY STATUS"]
        for pod in sorted(found, key=lambda pod: pod["metadata"]["name"]):
            ready = len(pod["status"].get("containerStatuses") or ())
            state = "Terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"]["phase"]
            lines.append(f"{pod['metadata']['name']} {ready}/{len(pod['spec']['containers'])} {state}")
        return lines

    async def until_workers(self, count: int, *, within_s: float = LIMIT_S) -> list[str]:
        """The worker pods, once there are so many and all have joined Ray."""

        async def all_there() -> bool:
            names = await self.workers()
            if len(names) != count:
                return False
            reading = await self.reading()
            return {node.pod for node in reading.nodes if not node.head} >= set(names)

        await self.settle(all_there, within_s, f"{count} workers that have joined")
        return await self.workers()

    async def node(self, pod: str) -> RayNode:
        """The Ray node in a pod."""
        found = (await self.reading()).node_of(pod)
        assert found is not None, pod
        return found

    async def actor(self, name: str, *, cpus: int = 1) -> None:
        """A detached actor."""
        await self.head.do(f"Actor.options(name={name!r}, lifetime='detached', num_cpus={cpus}).remote()")

    async def kill(self, *names: str) -> None:
        """The end of detached actors."""
        for name in names:
            await self.head.do(f"ray.kill(ray.get_actor({name!r}))")

    async def pod_of(self, actor: str) -> str:
        """The pod in which an actor lives, once it does."""
        code = f"answer = [a.node_id for a in list_actors() if (a.name, a.state) == ({actor!r}, 'ALIVE')]"

        async def lives() -> str | None:
            found = await self.head.do(code)
            return next((node.pod for node in (await self.reading()).nodes if node.id in found), None)

        try:
            return await until(lives, LIMIT_S, every_s=0.3, what=f"{actor} to live")
        except AssertionError as err:
            actors = await self.head.do("answer = [str(a) for a in list_actors()]")
            raise AssertionError(f"{err}\n{actors}\n{await self.picture()}") from err

    async def until_group(self, what: str, **wanted: Any) -> None:
        """Wait until fields of the worker group are so."""

        async def same() -> bool:
            group = await self.spec()
            return all(group.get(key) == value for key, value in wanted.items())

        await self.settle(same, LIMIT_S, what)

    async def settle(self, condition: Any, within_s: float, what: str) -> None:
        """Wait for something; the error shows the whole cluster."""
        try:
            await until(condition, within_s, every_s=0.2, what=what)
        except AssertionError as err:
            raise AssertionError(f"{err}\n{await self.picture()}") from err

    async def start_autoscaler(self, **environment: str) -> None:
        """Another one instead of the one that runs, which knows nothing of what that had asked for."""
        await self.autoscaler.end()
        self.autoscaler.environment = environment
        self.autoscaler.start()
        await self.ticks(2)

    async def ticks(self, number: int, *, or_ended: bool = False) -> None:
        """Wait for the autoscaler to look so many times again; ``or_ended``: or to end."""
        for _ in range(number):
            was = self.autoscaler.looks()

            def next_one(was: int = was) -> bool:
                return (or_ended and not self.autoscaler.running) or self.autoscaler.looks() > was

            await self.settle(next_one, LIMIT_S, "a tick")

    async def reading(self) -> Reading:
        """What the head says; on a busy machine it does not always answer in time."""

        async def read() -> Reading | None:
            try:
                return await self.head.client.read()
            except DemandError:
                return None

        return await until(read, LIMIT_S, every_s=0.2, what="the head to answer")

    async def picture(self) -> str:
        """Everything one looks at when something is wrong."""
        lines = [f"spec: {await self.spec()}", f"workers: {await self.workers()}", f"reading: {await self.reading()}"]
        return "\n".join([*lines, "autoscaler:", self.autoscaler.tail()])


@asynccontextmanager
async def real_cluster(
    api: Api, plane: ControlPlane, clients: trustme.CA, folder: Path, body: Object, *, v2: bool = True
) -> AsyncIterator[RealRayCluster]:
    """A RayCluster with everything running; its autoscaler has made a tick."""
    name = body["metadata"]["name"]
    if v2:  # KubeRay refuses what only the second version reads in a spec that does not name that version.
        body["spec"].setdefault("autoscalerOptions", {})["version"] = "v2"
    head = RayHead(folder, v2=v2, prelude=PRELUDE, environment=ENVIRONMENT)
    autoscaler = Autoscaler(head, name, api.namespace, plane.url, plane.ca_file, clients)
    kubelet = RayKubelet(name, head, autoscaler)
    settings = OperatorSettings(init_containers=False, autoscaler_version="v2" if v2 else "v1")
    # The server compares a pod that is to grow in place with its node.
    node = {"metadata": {"name": NODE}, "status": {"capacity": ROOM, "allocatable": ROOM}}
    answer = await api.call("POST", NODES.path(), node)
    assert answer.status in (201, 409), answer
    recorder = Recorder(name)
    operator = Operator(settings)
    controllers = [operator, kubelet, recorder]
    driver = AsyncDriver(api.transport, controllers, lambda: time.time_ns() // 1_000_000)
    cluster = RealRayCluster(api, name, head, kubelet, autoscaler, recorder, operator, v2=v2)
    try:
        async with beside(kubelet.run()), beside(driver.run()):
            await api.create(RAYCLUSTERS, body)

            async def ticking() -> bool:
                if not autoscaler.running:
                    return False
                return not v2 or (await cluster.reading()).ticks is not None

            await until(ticking, LIMIT_S, every_s=0.2, what=f"the autoscaler to tick: {autoscaler.tail()}")
            yield cluster
    finally:
        await autoscaler.end()
        await head.stop()
