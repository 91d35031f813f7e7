"""The part of the operator that keeps RayServices: hears of them and of RayClusters. Keys: namespace/name."""

from __future__ import annotations

from typing import ClassVar

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.rayservice import RayServiceSeen, reconcile_rayservice
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.operations import OperationPlan
from muster.model.api import RAYCLUSTERS, RAYSERVICES, ApiResource


class RayServiceOperator:
    """RayServices as kept by KubeRay; the operator for RayClusters keeps the clusters of these."""

    watches: ClassVar[tuple[ApiResource, ...]] = (RAYSERVICES, RAYCLUSTERS)

    def __init__(self, settings: OperatorSettings | None = None) -> None:
        self.settings = settings or OperatorSettings()
        self.queue = WorkQueue()
        self._services: dict[str, Obj] = {}
        self._clusters: dict[str, dict[str, Obj]] = {}
        """namespace/name of a service -> name -> cluster"""
        self._unnamed: dict[str, dict[str, int]] = {}
        """namespace/name of a service -> name of a cluster that it names no longer -> since when"""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note a change and mark the service it concerns."""
        meta = obj["metadata"]
        if resource == RAYSERVICES:
            key = f"{meta['namespace']}/{meta['name']}"
            if kind == "DELETED":
                self._services.pop(key, None)
            else:
                self._services[key] = obj
            self.queue.mark(key)
            return
        labels = meta.get("labels") or {}
        if labels.get(words.FROM_KIND) != "RayService":
            return
        key = f"{meta['namespace']}/{labels[words.FROM_NAME]}"
        clusters = self._clusters.setdefault(key, {})
        if kind == "DELETED":
            clusters.pop(meta["name"], None)
        else:
            clusters[meta["name"]] = obj
        self.queue.mark(key)

    def plan(self, key: str, now: int) -> OperationPlan:
        """What is due for a RayService."""
        service = self._services.get(key)
        if service is None:
            self._unnamed.pop(key, None)
            return OperationPlan()
        status, clusters = service.get("status") or {}, self._clusters.get(key, {})
        named = {
            (status.get(part) or {}).get("rayClusterName") for part in ("activeServiceStatus", "pendingServiceStatus")
        }
        before = self._unnamed.get(key, {})
        since = self._unnamed[key] = {name: before.get(name, now) for name in clusters if name not in named}
        return reconcile_rayservice(RayServiceSeen(service, dict(clusters), since), now, self.settings)
