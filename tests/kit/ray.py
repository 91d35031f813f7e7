"""RayJobs and RayClusters for tests of the simulated operator, and what it does to them, in short form."""

from typing import Any

from muster.fakecluster.apiserver.defaults import raycluster as with_cluster_defaults
from muster.fakecluster.apiserver.defaults import rayjob as with_job_defaults
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.kuberay import OperatorSettings, words
from muster.fakecluster.kuberay.rayjob import reconcile_rayjob
from muster.fakecluster.kuberay.step import RayJobPlan, RayJobSeen, RayRun
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, Merge, Replace
from muster.fakecluster.world import BEGINNING_MS
from muster.model.api import RAYJOBS

Object = dict[str, Any]

#: When the jobs below began.
BEGAN = BEGINNING_MS


def pod_template(cpu: str = "1") -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {"spec": {"containers": [{"name": "ray", "image": "ray", "resources": resources}]}}


def cluster_spec(*groups: Object, **fields: Any) -> Object:
    """A head, and worker groups; one of two workers if none is given."""
    chosen = list(groups) or [group(replicas=2)]
    return {"headGroupSpec": {"template": pod_template()}, "workerGroupSpecs": chosen, **fields}


def group(name: str = "small", **fields: Any) -> Object:
    return {"groupName": name, "template": pod_template(), **fields}


def rayjob(state: str = words.NEW, *, finalizer: bool = True, meta: Object | None = None, **spec: Any) -> Object:
    """A RayJob in a deployment status, begun at BEGAN; ``spec`` comes on top of a spec that may be suspended."""
    status: Object = {"failed": 0, "succeeded": 0, "observedGeneration": 1, "jobDeploymentStatus": state}
    if state not in (words.NEW, words.SUSPENDED, words.VALIDATION_FAILED):
        status |= {"jobId": "j-1", "rayClusterName": "j-raycluster-1", "startTime": stamp(BEGAN)}
    if state == words.NEW:
        status = {}
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "job-uid",
            "generation": 1,
            "resourceVersion": "10",
            **({"finalizers": [words.FINALIZER]} if finalizer else {}),
            **(meta or {}),
        },
        "spec": {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster_spec(), **spec},
        **({"status": status} if status else {}),
    }
    return with_job_defaults(job)


def raycluster(*, meta: Object | None = None, status: Object | None = None, **spec: Any) -> Object:
    """A RayCluster named as the job above names it."""
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "j-raycluster-1",
            "namespace": "ns",
            "uid": "cluster-uid",
            "generation": 1,
            "resourceVersion": "20",
            "creationTimestamp": stamp(BEGAN),
            **(meta or {}),
        },
        "spec": {**cluster_spec(), **spec},
    }
    if status is not None:
        cluster["status"] = status
    return with_cluster_defaults(cluster)


def submitter(*, ended: str = "", at: int = BEGAN, deleting: bool = False) -> Object:
    """The submitter's Kubernetes Job; ``ended`` is Complete or Failed."""
    meta: Object = {"name": "j", "namespace": "ns", "uid": "submitter-uid"}
    if deleting:
        meta["deletionTimestamp"] = stamp(BEGAN)
    entry = {"type": ended, "status": "True", "lastTransitionTime": stamp(at), "reason": "R", "message": "M"}
    return {"metadata": meta, "status": {"conditions": [entry] if ended else []}}


def run(status: str = words.JOB_SUCCEEDED, *, start: int = BEGAN, end: int = BEGAN + 20_000) -> RayRun:
    """What Ray says of the Ray job."""
    return RayRun(status, start, end, "boom" if status == words.JOB_FAILED else "")


class Outcome:
    """What one look at a RayJob came to."""

    def __init__(self, plan: RayJobPlan) -> None:
        self.plan = plan
        writes = [entry for entry in plan.operations if isinstance(entry, Replace) and entry.resource == RAYJOBS]
        #: The status as written; None when it was not.
        self.status: Object | None = writes[-1].body["status"] if writes and writes[-1].subresource else None
        self.acts = [short(entry) for entry in plan.operations if entry not in writes or not entry.subresource]

    @property
    def state(self) -> str | None:
        """The deployment status that was written."""
        return None if self.status is None else self.status.get("jobDeploymentStatus", "")


def look(job: Object, *, after_ms: int = 0, settings: OperatorSettings | None = None, **seen: Any) -> Outcome:
    """Look at a RayJob ``after_ms`` after BEGAN."""
    found = RayJobSeen(job, **seen)
    return Outcome(reconcile_rayjob(found, BEGAN + after_ms, settings or OperatorSettings()))


def short(operation: ApiOperation) -> str:
    """``create rayclusters``, ``delete jobs j``, ``replace rayjobs j`` ..."""
    match operation:
        case Create(resource, _, body):
            return f"create {resource.plural} {body['metadata'].get('name') or body['metadata'].get('generateName')}"
        case Replace(resource, _, subresource):
            return f"replace {resource.plural}{'/' + subresource if subresource else ''} {operation.name}"
        case Merge(resource, _, name, _, subresource):
            return f"merge {resource.plural}{'/' + subresource if subresource else ''} {name}"
        case DeleteObject(resource, _, name):
            return f"delete {resource.plural} {name}"
        case _:
            return f"bind {operation.name} {operation.node}"
