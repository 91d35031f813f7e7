"""The Kubeflow operators as far as gangs and queues notice them: TFJobs, PyTorchJobs and MPIJobs, and their pods.

Pods come from the templates as they are, labels, annotations and schedulerName with them, one per index; one that is
gone is made again. A job has succeeded when its leading pod has (that of the chief or master, else the first worker),
and then its other pods are deleted; it has failed when a pod has. A suspended job has no pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from muster.core.workloads.registry import KINDS
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
from muster.model.api import MPIJOBS, PODS, PYTORCHJOBS, TFJOBS, ApiResource

SUSPEND = "scheduling.x-k8s.io/suspend"
"""What operators older than the field know."""
LABEL = "training.kubeflow.org"
SPECS = tuple(f"{kind}ReplicaSpecs" for kind in ("tf", "pytorch", "mpi", "xgb", "jax", "paddle"))
LEADERS = ("Chief", "Master", "Launcher")
OVER_WORDS = ("Succeeded", "Failed")


class TrainingOperator:
    """Keeps TFJobs and PyTorchJobs. Keys: uids."""

    watches: ClassVar[tuple[ApiResource, ...]] = (TFJOBS, PYTORCHJOBS, PODS)

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self._jobs: dict[str, tuple[ApiResource, Obj]] = {}
        self._pods: dict[str, dict[str, Obj]] = {}
        """uid of a job -> name of a pod -> pod"""

    def heard(self, kind: ChangeType, resource: ApiResource, found: Obj) -> None:
        """Note jobs and their pods."""
        meta = found["metadata"]
        if resource == PODS:
            uid = controller_uid(found)
            if not uid or f"{LABEL}/job-name" not in (meta.get("labels") or {}):
                return
            pods = self._pods.setdefault(uid, {})
            if kind != "DELETED":
                pods[meta["name"]] = found
            elif pods.get(meta["name"], found)["metadata"]["uid"] == meta["uid"]:
                pods.pop(meta["name"], None)
                if not pods:
                    del self._pods[uid]
        else:
            uid = meta["uid"]
            if kind == "DELETED":
                self._jobs.pop(uid, None)
            else:
                self._jobs[uid] = (resource, found)
        if uid in self._jobs:
            self.queue.mark(uid)

    def plan(self, key: str, now: int) -> OperationPlan:
        """Make the pods a job lacks, delete those it is to lose, and report how it stands."""
        if key not in self._jobs:
            return OperationPlan()
        resource, job = self._jobs[key]
        if job["metadata"].get("deletionTimestamp"):
            return OperationPlan()
        old = job.get("status") or {}
        true = [each["type"] for each in old.get("conditions") or () if each["status"] == "True"]
        pods = self._pods.get(key, {})
        operations: list[ApiOperation] = []
        if any(word in true for word in OVER_WORDS):
            words = true
            operations.extend(_deletions(pods, over=False))
        elif suspended(job):
            operations.extend(_deletions(pods, over=True))
            words = true if pods else ["Created", "Suspended"]
        else:
            wanted = dict(_wanted(job))
            phases = {name: phase(pods[name]) for name in wanted if name in pods and not is_going(pods[name])}
            words = ["Created", *_standing(job, phases, len(wanted))]
            if not any(word in words for word in OVER_WORDS):
                namespace = job["metadata"]["namespace"]
                made = (Create(PODS, namespace, body) for name, body in wanted.items() if name not in pods)
                operations.extend(made)
        status: Obj = {"replicaStatuses": _counts(job, pods)}
        if words != true:
            status["conditions"] = _conditions(words, now)
            if not old.get("startTime") and "Suspended" not in words:
                status["startTime"] = stamp(now)
        if any(old.get(name) != value for name, value in status.items()):
            operations.append(Replace(resource, {**job, "status": {**old, **status}}, "status"))
        return OperationPlan(tuple(operations))


class OthersOperator(TrainingOperator):
    """Keeps the other kinds of the training operator."""

    watches: ClassVar[tuple[ApiResource, ...]] = (
        *(KINDS[kind].resource for kind in ("XGBoostJob", "JAXJob", "PaddleJob")),
        PODS,
    )


class MpiOperator(TrainingOperator):
    """Keeps MPIJobs in the same way; the launcher is a pod like the others, not that of a Job."""

    watches: ClassVar[tuple[ApiResource, ...]] = (MPIJOBS, PODS)


def suspended(job: Obj) -> bool:
    """By the field, or by the annotation of older operators."""
    marked = (job["metadata"].get("annotations") or {}).get(SUSPEND) == "true"
    return marked or bool((job["spec"].get("runPolicy") or {}).get("suspend"))


def _specs(job: Obj) -> Obj:
    return next((job["spec"][name] for name in SPECS if job["spec"].get(name)), {})


def _name(job: Obj, kind: str, index: int) -> str:
    return f"{job['metadata']['name']}-{kind.lower()}-{index}"


def _wanted(job: Obj) -> Iterator[tuple[str, Obj]]:
    """The pods of a job by name."""
    meta = job["metadata"]
    for kind, spec in _specs(job).items():
        for index in range(spec.get("replicas", 1)):
            template, name = spec["template"], _name(job, kind, index)
            given = template.get("metadata") or {}
            ours = {"job-name": meta["name"], "replica-type": kind.lower(), "replica-index": str(index)}
            made = {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {**(given.get("labels") or {}), **{f"{LABEL}/{key}": value for key, value in ours.items()}},
                "annotations": given.get("annotations") or {},
                "ownerReferences": owner_of(job),
            }
            again = {"restartPolicy": spec.get("restartPolicy") or "Never"}
            body: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": {**again, **template["spec"]}}
            yield name, body


def _standing(job: Obj, phases: dict[str, str], wanted: int) -> list[str]:
    """Conditions that are true besides Created."""
    specs = _specs(job)
    leading = next((kind for kind in (*LEADERS, "Worker", *specs) if kind in specs), "")
    if phases.get(_name(job, leading, 0)) == "Succeeded":
        return ["Succeeded"]
    if "Failed" in phases.values():
        return ["Failed"]
    up = sum(1 for word in phases.values() if word in ("Running", "Succeeded"))
    return ["Running"] if up == wanted else []


def _counts(job: Obj, pods: dict[str, Obj]) -> Obj:
    found: Obj = {}
    for kind, spec in _specs(job).items():
        names = [_name(job, kind, index) for index in range(spec.get("replicas", 1))]
        phases = [phase(pods[name]) for name in names if name in pods]
        counts = {word.lower(): phases.count(word) for word in OVER}
        found[kind] = {"active": sum(1 for word in phases if word not in OVER), **counts}
    return found


def _conditions(words: list[str], now: int) -> list[Obj]:
    at = stamp(now)
    times = {"lastTransitionTime": at, "lastUpdateTime": at}
    return [{"type": word, "status": "True", "reason": f"Job{word}", "message": "", **times} for word in words]


def _deletions(pods: dict[str, Obj], *, over: bool) -> list[ApiOperation]:
    """``over``: those that have ended too."""
    return [
        DeleteObject(PODS, pod["metadata"]["namespace"], name, pod["metadata"]["uid"])
        for name, pod in pods.items()
        if not is_going(pod) and (over or phase(pod) not in OVER)
    ]
