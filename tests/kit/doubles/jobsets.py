"""The JobSet controller as far as queues notice it: the Jobs of every role, suspended with their JobSet."""

from __future__ import annotations

from typing import ClassVar

from muster.core.workloads.registry import KINDS
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import ApiOperation, Create, Merge, OperationPlan, Replace, controller_uid, owner_of
from muster.model.api import JOBS, ApiResource

JOBSETS = KINDS["JobSet"].resource
ROLE = "jobset.sigs.k8s.io/replicatedjob-name"


class JobSetController:
    """Keys: uids of JobSets."""

    watches: ClassVar[tuple[ApiResource, ...]] = (JOBSETS, JOBS)

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self._sets: dict[str, Obj] = {}
        self._jobs: dict[str, dict[str, Obj]] = {}
        """uid of a JobSet -> name of a Job -> Job"""

    def heard(self, kind: ChangeType, resource: ApiResource, found: Obj) -> None:
        meta = found["metadata"]
        if resource == JOBSETS:
            uid, kept, key = meta["uid"], self._sets, meta["uid"]
        else:
            uid = controller_uid(found)
            kept, key = self._jobs.setdefault(uid, {}), meta["name"]
        if kind == "DELETED":
            kept.pop(key, None)
        else:
            kept[key] = found
        if uid in self._sets:
            self.queue.mark(uid)

    def plan(self, key: str, now: int) -> OperationPlan:
        found, jobs = self._sets.get(key), self._jobs.get(key, {})
        if found is None or found["metadata"].get("deletionTimestamp"):
            return OperationPlan()
        stops, operations = bool(found["spec"].get("suspend")), list[ApiOperation]()
        for name, body in _wanted(found).items():
            there = jobs.get(name)
            if there is None:
                operations.append(Create(JOBS, found["metadata"]["namespace"], body))
            elif bool(there["spec"].get("suspend")) != stops and not _true(there, "Complete", "Failed"):
                patch = {"spec": {"suspend": stops}}
                operations.append(Merge(JOBS, found["metadata"]["namespace"], name, patch))
        status = _status(found, jobs, stops=stops)
        if status != (found.get("status") or {}):
            operations.append(Replace(JOBSETS, {**found, "status": status}, "status"))
        return OperationPlan(tuple(operations))


def _wanted(found: Obj) -> dict[str, Obj]:
    meta, made = found["metadata"], {}
    for role in found["spec"]["replicatedJobs"]:
        for index in range(role.get("replicas", 1)):
            name = f"{meta['name']}-{role['name']}-{index}"
            own = {"name": name, "namespace": meta["namespace"], "labels": {ROLE: role["name"]}}
            spec = {**role["template"]["spec"], "suspend": bool(found["spec"].get("suspend"))}
            marks = {"annotations": meta.get("annotations") or {}}
            body = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
            made[name] = {**body, "metadata": {**own, **marks, "ownerReferences": owner_of(found)}}
    return made


def _status(found: Obj, jobs: dict[str, Obj], *, stops: bool) -> Obj:
    roles = []
    for role in found["spec"]["replicatedJobs"]:
        mine = [each for each in jobs.values() if each["metadata"]["labels"].get(ROLE) == role["name"]]
        counts = {
            "ready": sum((each.get("status") or {}).get("ready", 0) > 0 for each in mine),
            "succeeded": sum(_true(each, "Complete") for each in mine),
            "failed": sum(_true(each, "Failed") for each in mine),
            "active": sum((each.get("status") or {}).get("active", 0) > 0 for each in mine),
            "suspended": sum(bool(each["spec"].get("suspend")) for each in mine),
        }
        roles.append({"name": role["name"], **counts})
    total = len(_wanted(found))
    word = "Suspended" if stops and all(each["spec"].get("suspend") for each in jobs.values()) else ""
    if any(role["failed"] for role in roles):
        word = "Failed"
    elif sum(role["succeeded"] for role in roles) == total:
        word = "Completed"
    conditions = [{"type": word, "status": "True", "reason": word, "message": ""}] if word else []
    return {"conditions": conditions, "replicatedJobsStatus": roles}


def _true(found: Obj, *types: str) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] in types and each["status"] == "True" for each in conditions)
