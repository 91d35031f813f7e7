"""A default scheduler that knows gangs by itself: pods that name a PodGroup of Kubernetes are bound together, or not.

As kube-scheduler of 1.36 with its gates on: nothing of a gang is tried before ``minCount`` pods of it are there; pods
beyond that start when they fit; the condition of the PodGroup says what became of it, and never says False again.
"""

from __future__ import annotations

from typing import Any, ClassVar

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.pods import condition, with_condition
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.operations import ApiOperation, BindPod, Merge, OperationPlan
from muster.fakecluster.podneeds import OVER, phase
from muster.fakecluster.scheduler import ALL, ASSUMED_MS, DefaultScheduler, add, holds, shape_of
from muster.model.api import NATIVE_POD_GROUPS, NODES, PODS, ApiResource

GROUPS = NATIVE_POD_GROUPS[-1]
CONDITION = "PodGroupScheduled"
DEFINITION: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"podgroups.{GROUPS.group}"},
    "spec": {
        "group": GROUPS.group,
        "scope": "Namespaced",
        "names": {"plural": GROUPS.plural, "singular": "podgroup", "kind": GROUPS.kind},
        "versions": [{"name": GROUPS.version, "served": True, "storage": True, "subresources": {"status": {}}}],
    },
}
"""What has a simulated server serve them."""


class NativeScheduler(DefaultScheduler):
    """Binds the pods that name it, or nobody, as their scheduler, those of a PodGroup together."""

    watches: ClassVar[tuple[ApiResource, ...]] = (NODES, PODS, GROUPS)

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, Obj] = {}
        """namespace/name -> PodGroup"""
        self._members: dict[str, dict[str, None]] = {}
        """namespace/name -> uids of its pods that are not over"""

    def heard(self, kind: ChangeType, resource: ApiResource, found: Obj) -> None:
        """Note nodes, pods and PodGroups."""
        if resource != GROUPS:
            super().heard(kind, resource, found)
        elif kind == "DELETED":
            self._groups.pop(_key(found, found["metadata"]["name"]), None)
        else:
            self._groups[_key(found, found["metadata"]["name"])] = found
        if resource == PODS and (name := _group_of(found)):
            members, uid = self._members.setdefault(_key(found, name), {}), found["metadata"]["uid"]
            if kind == "DELETED" or phase(found) in OVER:
                members.pop(uid, None)
            else:
                members[uid] = None
        if self._members:
            self.queue.mark(ALL)

    def plan(self, key: str, now: int) -> OperationPlan:
        """Place single pods, then gangs by name."""
        found = super().plan(key, now)
        operations = list(found.operations)
        for name in sorted(self._members):
            operations += self._gang(name, now)
        return OperationPlan(tuple(operations), ASSUMED_MS if self._assumed else None)

    def _gang(self, name: str, now: int) -> list[ApiOperation]:
        group, members = self._groups.get(name), self._members[name]
        waiting = [uid for uid in members if uid in self._waiting and uid not in self._placed]
        if group is None or not waiting:
            return []
        least = group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
        if len(members) < least:
            return []
        taken = {uid: node for uid in waiting if (node := self._take(uid)) is not None}
        if len(members) - len(waiting) + len(taken) < least:
            for uid, node in taken.items():
                del self._placed[uid]
                add(self._nodes[node].free, holds(self._waiting[uid]), 1)
            message = f"{len(taken)} of {least} pods have a place on {len(self._order)} nodes"
            return [*self._told(group, "False", "Unschedulable", message, now), *self._pods_told(waiting, message, now)]
        for uid in taken:
            self._assumed[uid] = now + ASSUMED_MS
        metas = {uid: self._waiting[uid]["metadata"] for uid in taken}
        bound = [BindPod(metas[uid]["namespace"], metas[uid]["name"], uid, node) for uid, node in taken.items()]
        return [*bound, *self._told(group, "True", "Scheduled", "", now)]

    def _take(self, uid: str) -> str | None:
        """A node for a pod, and its room there."""
        pod = self._waiting[uid]
        for name in self._order:
            if self._nodes[name].fits(shape_of(pod)):
                self._hold(uid, name, holds(pod))
                return name
        return None

    def _told(self, group: Obj, status: str, reason: str, message: str, now: int) -> list[ApiOperation]:
        said: list[dict[str, Any]] = (group.get("status") or {}).get("conditions") or []
        before = next((each for each in said if each["type"] == CONDITION), {"status": "", "message": ""})
        if before["status"] == "True" or (before["status"], before["message"]) == (status, message):
            return []
        told = {"type": CONDITION, "status": status, "reason": reason, "message": message}
        told["lastTransitionTime"] = stamp(now)
        meta = group["metadata"]
        return [Merge(GROUPS, meta["namespace"], meta["name"], {"status": {"conditions": [told]}}, "status")]

    def _pods_told(self, uids: list[str], message: str, now: int) -> list[ApiOperation]:
        entry = condition("PodScheduled", "False", now, "Unschedulable", message)
        operations: list[ApiOperation] = []
        for pod in (self._waiting[uid] for uid in uids):
            said = (pod.get("status") or {}).get("conditions") or []
            if not any(each["type"] == "PodScheduled" and each.get("message") == message for each in said):
                meta, conditions = pod["metadata"], with_condition(pod.get("status") or {}, entry)["conditions"]
                patch = {"status": {"conditions": conditions}}
                operations.append(Merge(PODS, meta["namespace"], meta["name"], patch, "status"))
        return operations

    def _enqueue(self, pod: Obj) -> None:
        if not _group_of(pod):
            super()._enqueue(pod)


def _group_of(pod: Obj) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def _key(found: Obj, name: str) -> str:
    return f"{found['metadata'].get('namespace', '')}/{name}"
