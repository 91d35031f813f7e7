"""The controller of batch Jobs in the simulated cluster: a pod for each open completion, and the results of the pods.

Plain Jobs only: parallelism, completions, backoffLimit, suspend. Indexes, failure policies and deadlines do not exist.
"""

from __future__ import annotations

from typing import ClassVar

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import (
    ApiOperation,
    Create,
    DeleteObject,
    OperationPlan,
    Replace,
    controller_uid,
    owner_of,
)
from muster.fakecluster.podneeds import OVER, is_going, phase
from muster.model.api import JOBS, PODS, ApiResource

RETRY_MS = 10_000
"""Pause after a pod has failed, doubled with each one."""
FINISHED = ("Complete", "Failed")


class JobController:
    """Keeps Jobs. Keys: uids of Jobs."""

    watches: ClassVar[tuple[ApiResource, ...]] = (JOBS, PODS)

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self._jobs: dict[str, Obj] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        """uid of a Job -> uid of a pod -> pod."""
        self._last_failure: dict[str, tuple[int, int]] = {}
        """uid of a Job -> (failures, when the last of them was seen)."""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note Jobs and their pods."""
        if resource == JOBS:
            uid = obj["metadata"]["uid"]
            if kind == "DELETED":
                self._jobs.pop(uid, None)
                self._last_failure.pop(uid, None)
            else:
                self._jobs[uid] = obj
        else:
            uid = controller_uid(obj)
            if not uid or "batch.kubernetes.io/job-name" not in (obj["metadata"].get("labels") or {}):
                return
            pods = self._pods.setdefault(uid, {})
            if kind == "DELETED":
                pods.pop(obj["metadata"]["uid"], None)
                if not pods:
                    del self._pods[uid]
            else:
                pods[obj["metadata"]["uid"]] = obj
        if uid in self._jobs:
            self.queue.mark(uid)

    def plan(self, key: str, now: int) -> OperationPlan:
        """Make the pods that a Job lacks, and write its status."""
        job = self._jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return OperationPlan()
        old = job.get("status") or {}
        if any(entry["type"] in FINISHED and entry["status"] == "True" for entry in old.get("conditions") or ()):
            return OperationPlan()
        spec, pods = job["spec"], list(self._pods.get(key, {}).values())
        active = [pod for pod in pods if phase(pod) not in OVER and not is_going(pod)]
        failed = sum(1 for pod in pods if phase(pod) == "Failed" and not is_going(pod))
        succeeded = sum(1 for pod in pods if phase(pod) == "Succeeded")
        suspended = bool(spec.get("suspend"))
        status: Obj = {
            "startTime": old.get("startTime") or (None if suspended else stamp(now)),
            "active": len(active) or None,
            "terminating": sum(1 for pod in pods if phase(pod) not in OVER and is_going(pod)) or None,
            "ready": sum(1 for pod in active if phase(pod) == "Running"),
            "succeeded": succeeded or None,
            "failed": failed or None,
        }
        operations: list[ApiOperation] = []
        again_ms: int | None = None
        completions = spec.get("completions", 1)
        if succeeded >= completions:
            status |= {"completionTime": stamp(now), "conditions": _over("Complete", "CompletionsReached", now)}
        elif failed > spec.get("backoffLimit", 6):
            reason = "BackoffLimitExceeded"
            status["conditions"] = _over("Failed", reason, now, "Job has reached the specified backoff limit")
            operations.extend(_delete(pod) for pod in active)
        elif suspended:
            operations.extend(_delete(pod) for pod in active)
            if not _is_suspended(old):
                status["conditions"] = _suspension("True", "JobSuspended", now)
        else:
            if _is_suspended(old):
                status |= {"conditions": _suspension("False", "JobResumed", now), "startTime": stamp(now)}
            again_ms = self._pause(key, failed, now)
            missing = min(spec.get("parallelism", 1), completions - succeeded) - len(active)
            if again_ms is None and missing > 0:
                operations.extend(Create(PODS, job["metadata"]["namespace"], _pod(job)) for _ in range(missing))
        if any(old.get(name) != value for name, value in status.items()):
            whole = {name: value for name, value in {**old, **status}.items() if value is not None}
            operations.append(Replace(JOBS, {**job, "status": whole}, "status"))
        return OperationPlan(tuple(operations), again_ms)

    def _pause(self, key: str, failed: int, now: int) -> int | None:
        """How many ms to wait before the next try, None when it may begin."""
        if not failed:
            return None
        count, since = self._last_failure.get(key, (0, now))
        if count != failed:
            since = now
            self._last_failure[key] = (failed, now)
        left = since + (RETRY_MS << (failed - 1)) - now
        return left if left > 0 else None


def _pod(job: Obj) -> Obj:
    meta, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    made: Obj = {
        "generateName": f"{meta['name']}-",
        "namespace": meta["namespace"],
        "labels": given.get("labels") or {},
        "annotations": given.get("annotations") or {},
        "ownerReferences": owner_of(job),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def _is_suspended(status: Obj) -> bool:
    """Whether the controller has told so: it writes the condition when it acts on a change of the field, then only."""
    return any(
        condition["type"] == "Suspended" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )


def _suspension(status: str, reason: str, now: int) -> list[Obj]:
    at = stamp(now)
    return [{"type": "Suspended", "status": status, "lastProbeTime": at, "lastTransitionTime": at, "reason": reason}]


def _over(kind: str, reason: str, now: int, message: str = "") -> list[Obj]:
    at = stamp(now)
    entry = {"status": "True", "lastProbeTime": at, "lastTransitionTime": at, "reason": reason, "message": message}
    before = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    return [{"type": before, **entry}, {"type": kind, **entry}]


def _delete(pod: Obj) -> DeleteObject:
    meta = pod["metadata"]
    return DeleteObject(PODS, meta["namespace"], meta["name"], meta["uid"])
