"""The GPU device plugin of the simulated cluster, and the program in a reservation pod: the pod reports its device.

Such a pod gets the first free device of its node; the UUID is ``GPU-NODE-NUMBER``.
"""

from __future__ import annotations

from typing import ClassVar

from muster.core.actuation.podwrites import REPORTED
from muster.core.objects.gpushares import RESERVATIONS
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import Merge, OperationPlan
from muster.model.api import NODES, PODS, ApiResource
from muster.model.placing import GPU


class DevicePlugin:
    """Keys: the names of pods that keep a GPU."""

    watches: ClassVar[tuple[ApiResource, ...]] = (NODES, PODS)

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self._total: dict[str, int] = {}
        """node -> how many GPUs it has"""
        self._pods: dict[str, Obj] = {}
        self._given: dict[str, tuple[str, str]] = {}
        """name of a pod -> (its node, the UUID it got)"""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note nodes, and the pods that keep devices."""
        meta = obj["metadata"]
        if resource == NODES:
            self._total[meta["name"]] = 0 if kind == "DELETED" else _gpus(obj)
            for name in self._pods:
                self.queue.mark(name)
        elif meta["namespace"] == RESERVATIONS:
            if kind == "DELETED":
                self._pods.pop(meta["name"], None)
                self._given.pop(meta["name"], None)
                for name in self._pods:
                    self.queue.mark(name)
            else:
                self._pods[meta["name"]] = obj
                told = (meta.get("annotations") or {}).get(REPORTED)
                if told:
                    self._given[meta["name"]] = (obj["spec"]["nodeName"], told)
                self.queue.mark(meta["name"])

    def plan(self, key: str, now: int) -> OperationPlan:
        """Give a pod its device, once."""
        pod = self._pods.get(key)
        if pod is None or REPORTED in (pod["metadata"].get("annotations") or {}):
            return OperationPlan()
        node = pod["spec"]["nodeName"]
        if key not in self._given:
            taken = {uuid for _, uuid in self._given.values()}
            every = [f"GPU-{node}-{index}" for index in range(self._total.get(node, 0))]
            free = [uuid for uuid in every if uuid not in taken]
            if not free:
                return OperationPlan()
            self._given[key] = (node, free[0])
        patch = {"metadata": {"annotations": {REPORTED: self._given[key][1]}}}
        return OperationPlan((Merge(PODS, RESERVATIONS, key, patch),))


def _gpus(node: Obj) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))
