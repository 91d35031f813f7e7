"""The kubelet of real Ray pods: a head pod is a real head with a real autoscaler beside it, a worker pod a real raylet.

A controller for `AsyncDriver`, on any API server. What it starts and ends takes time, so that happens in tasks of its
own; the pods' status and their end are operations like everybody's.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from kit.realray.autoscaler import Autoscaler
from kit.realray.head import RayHead
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.pods import condition, with_condition
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.kuberay import words
from muster.fakecluster.operations import BindPod, DeleteObject, Merge, OperationPlan
from muster.fakecluster.podneeds import is_going
from muster.model.api import PODS, ApiResource

Object = dict[str, Any]
NODE = "ray-node"
AGAIN_MS = 300
"""Until a pod is looked at again whose process starts, ends, or may die."""


class RayKubelet:
    """Runs the pods of one RayCluster as real processes on this machine. Keys: names of pods."""

    watches: ClassVar[tuple[ApiResource, ...]] = (PODS,)

    def __init__(self, cluster: str, head: RayHead, autoscaler: Autoscaler | None) -> None:
        self.queue = WorkQueue()
        self.head = head
        self.autoscaler = autoscaler
        self.started: list[str] = []
        """Pods that were started, in order; a pod that is started twice is in here twice."""
        self.ended: list[str] = []
        self.full: set[str] = set()
        """Worker groups whose new pods no node takes."""
        self._cluster = cluster
        self._pods: dict[str, Object] = {}
        self._addresses: dict[str, str] = {}
        self._up: set[str] = set()
        self._down: set[str] = set()
        self._busy: set[str] = set()
        self._head_pods: set[str] = set()
        self._one_head = asyncio.Lock()
        self._todo: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    def heard(self, kind: ChangeType, _resource: ApiResource, found: Object) -> None:
        """Note the pods of the cluster."""
        if (found["metadata"].get("labels") or {}).get(words.CLUSTER) != self._cluster:
            return
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self._pods.pop(name, None)
            if name in self._up and name not in self._down:  # deleted at once, as by force
                self._ask(name, up=False)
        else:
            self._pods[name] = found
            self.queue.mark(name)

    def plan(self, name: str, now: int) -> OperationPlan:
        """The next step of a pod."""
        pod = self._pods.get(name)
        if pod is None:
            return OperationPlan()
        meta = pod["metadata"]
        if is_going(pod):
            if name in self._up and name not in self._down:
                self._ask(name, up=False)
                return OperationPlan(again_ms=AGAIN_MS)
            return OperationPlan((DeleteObject(PODS, meta["namespace"], name, meta["uid"], grace_s=0),))
        if not pod["spec"].get("nodeName") and meta["labels"].get(words.GROUP) in self.full:
            return _no_node(pod, now)
        if not pod["spec"].get("nodeName"):
            return OperationPlan((BindPod(meta["namespace"], name, meta["uid"], NODE),))
        if name not in self._up:
            self._ask(name, up=True)
            return OperationPlan(again_ms=AGAIN_MS)
        phase = (pod.get("status") or {}).get("phase")
        if name == self.head.pod and phase == "Running" and not self.head.running:
            status = {"phase": "Failed", "reason": "Error"}
            return OperationPlan((Merge(PODS, meta["namespace"], name, {"status": status}, "status"),))
        if phase == "Pending":
            status = _running(pod, self._addresses[name], now)
            return OperationPlan((Merge(PODS, meta["namespace"], name, {"status": status}, "status"),), AGAIN_MS)
        resized = _resized(pod)
        if resized:
            patch = {"status": {"containerStatuses": resized}}
            return OperationPlan((Merge(PODS, meta["namespace"], name, patch, "status"),), AGAIN_MS)
        # Nothing but this look tells that a head has died.
        return OperationPlan(again_ms=AGAIN_MS if name == self.head.pod else None)

    async def run(self) -> None:
        """Start and end processes, for ever; start raylets again that failed to join."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_after())
            while True:
                name, up = await self._todo.get()
                tasks.create_task(self._start(name) if up else self._end(name))

    def _ask(self, name: str, *, up: bool) -> None:
        if name not in self._busy:
            self._busy.add(name)
            self._todo.put_nowait((name, up))

    async def _start(self, name: str) -> None:
        pod = self._pods[name]
        labels = pod["metadata"]["labels"]
        # None is used twice: the first version of the autoscaler knows a node that has ended by its address.
        self._addresses[name] = f"127.0.{1 + len(self._addresses) // 250}.{2 + len(self._addresses) % 250}"
        self.started.append(name)
        if labels[words.NODE_TYPE] == "head":
            self._addresses[name] = "127.0.0.1"
            self._head_pods.add(name)
            async with self._one_head:
                await self._no_head()
                self.head.pod = name
                await self.head.start()
                if self.autoscaler is not None:
                    self.autoscaler.start(name)
        else:
            asked = pod["spec"]["containers"][0]["resources"]["requests"]
            cpus, gpus = int(asked["cpu"]), int(asked.get("nvidia.com/gpu", 0))
            # KubeRay gives ``ray start`` the labels of the group; here they are those of the pod without a prefix.
            own = ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if "/" not in key)
            at = self._addresses[name]
            await self.head.join(name, group=labels[words.GROUP], cpus=cpus, gpus=gpus, labels=own, ip=at)
        self._up.add(name)
        self._finish(name)

    async def _end(self, name: str) -> None:
        if name in self._head_pods:
            async with self._one_head:
                if name == self.head.pod:
                    await self._no_head()
        else:
            await self.head.leave(name)
        self._down.add(name)
        self.ended.append(name)
        self._finish(name)

    async def _no_head(self) -> None:
        """Its raylets notice, end, and are started again: they look for a new head."""
        if self.autoscaler is not None:
            await self.autoscaler.end()
        await self.head.crash()

    def _finish(self, name: str) -> None:
        self._busy.discard(name)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self.head.running and not self._one_head.locked():
                self.head.restart_failed()


def _no_node(pod: Object, now: int) -> OperationPlan:
    status, meta = pod.get("status") or {}, pod["metadata"]
    if any(each["type"] == "PodScheduled" for each in status.get("conditions") or ()):
        return OperationPlan(again_ms=AGAIN_MS)
    told = condition("PodScheduled", "False", now, "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
    patch = {"status": {"conditions": with_condition(status, told)["conditions"]}}
    return OperationPlan((Merge(PODS, meta["namespace"], meta["name"], patch, "status"),), AGAIN_MS)


def _resized(pod: Object) -> list[Object]:
    """Statuses of containers that are as large as the spec says since it was changed; none while it is not."""
    sizes = {container["name"]: container.get("resources") or {} for container in pod["spec"]["containers"]}
    found = pod["status"].get("containerStatuses") or []
    sized = [{**each, "resources": sizes[each["name"]]} for each in found]
    return sized if sized != found else []


def _running(pod: Object, address: str, now: int) -> Object:
    status: Object = dict(pod.get("status") or {})
    for kind in ("Initialized", "ContainersReady", "Ready"):
        status = with_condition(status, condition(kind, "True", now))
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "resources": container.get("resources") or {},
            "state": {"running": {"startedAt": stamp(now)}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "startTime": stamp(now),
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": status["conditions"],
        "containerStatuses": containers,
    }
