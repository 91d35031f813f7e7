"""The operator as a controller: hears of changes, finds the objects of a RayJob, plans, and plays Ray.

Ray itself is simulated here: a Ray job starts when its submitter runs (or the operator submits), and ends after the
time in its RayJob. A Ray job is forgotten with its cluster, as Ray forgets a job with its head.
"""

from __future__ import annotations

from typing import ClassVar

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.raycluster import RayClusterSeen, reconcile_raycluster
from muster.fakecluster.kuberay.rayjob import reconcile_rayjob
from muster.fakecluster.kuberay.settings import OperatorSettings, outcome, runtime_ms
from muster.fakecluster.kuberay.step import RayJobSeen, RayRun
from muster.fakecluster.operations import OperationPlan
from muster.model.api import JOBS, PODS, RAYCLUSTERS, RAYJOBS, ApiResource

_ENDS = {"succeeded": words.JOB_SUCCEEDED, "failed": words.JOB_FAILED, "stopped": words.JOB_STOPPED}
_FAILED_MESSAGE = "Job entrypoint command failed with exit code 1 (simulated)"


class KubeRayOperator:
    """RayJobs and RayClusters kept as KubeRay keeps them. Keys: ``job namespace/name``, ``cluster namespace/name``."""

    watches: ClassVar[tuple[ApiResource, ...]] = (RAYJOBS, RAYCLUSTERS, JOBS, PODS)

    def __init__(self, settings: OperatorSettings | None = None) -> None:
        self.settings = settings or OperatorSettings()
        self.queue = WorkQueue()
        self._jobs: dict[str, Obj] = {}
        self._clusters: dict[str, Obj] = {}
        self._submitters: dict[str, Obj] = {}
        """namespace/name of the RayJob -> its Kubernetes Job, which has the same name."""
        self._pods: dict[str, dict[str, Obj]] = {}
        """namespace/name of the RayCluster -> name -> pod, oldest first."""
        self._submitting: dict[str, dict[str, Obj]] = {}
        """namespace/name of the RayJob -> name -> submitter pod that runs."""
        self._runs: dict[str, dict[str, RayRun]] = {}
        """uid of the RayCluster -> id of the Ray job -> the Ray job."""

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note a change and mark the objects it concerns."""
        meta = obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if resource == PODS:
            self._heard_pod(kind, obj)
            return
        kept = {RAYJOBS: self._jobs, RAYCLUSTERS: self._clusters, JOBS: self._submitters}[resource]
        if resource == JOBS and words.FROM_NAME not in (meta.get("labels") or {}):
            return
        if kind == "DELETED":
            kept.pop(key, None)
        else:
            kept[key] = obj
        if resource == RAYCLUSTERS:
            self.queue.mark(f"cluster {key}")
            owner = (meta.get("labels") or {}).get(words.FROM_NAME)
            if owner:
                self.queue.mark(f"job {meta['namespace']}/{owner}")
            if kind == "DELETED":
                self._runs.pop(meta["uid"], None)
        else:
            self.queue.mark(f"job {key}")

    def plan(self, key: str, now: int) -> OperationPlan:
        """What is due for a RayJob or a RayCluster."""
        sort, _, name = key.partition(" ")
        if sort == "cluster":
            cluster = self._clusters.get(name)
            if cluster is None:
                return OperationPlan()
            pods = tuple(self._pods.get(name, {}).values())
            return reconcile_raycluster(RayClusterSeen(cluster, pods), now, self.settings)
        job = self._jobs.get(name)
        if job is None:
            return OperationPlan()
        return self._plan_job(name, job, now)

    def _plan_job(self, name: str, job: Obj, now: int) -> OperationPlan:
        status = job.get("status") or {}
        cluster_key = f"{job['metadata']['namespace']}/{status.get('rayClusterName', '')}"
        cluster = self._clusters.get(cluster_key)
        run = self._run(name, job, status, cluster, now)
        heads = [
            pod
            for pod in self._pods.get(cluster_key, {}).values()
            if pod["metadata"]["labels"].get(words.NODE_TYPE) == "head"
        ]
        seen = RayJobSeen(job, cluster, self._submitters.get(name), bool(heads) or not self.settings.pods, run)
        plan = reconcile_rayjob(seen, now, self.settings)
        again_ms = plan.again_ms
        if plan.submit and cluster is not None:
            self._start(job, status["jobId"], cluster, now)
            again_ms = 0
        return OperationPlan(plan.operations, again_ms)

    def _run(self, name: str, job: Obj, status: Obj, cluster: Obj | None, now: int) -> RayRun | None:
        """What Ray knows of the RayJob's Ray job; starts it when its submitter has begun."""
        job_id = status.get("jobId")
        if cluster is None or not job_id or status.get("jobDeploymentStatus") != words.RUNNING:
            return None
        run = self._runs.get(cluster["metadata"]["uid"], {}).get(job_id)
        if run is not None or outcome(job) == "submission-failed":
            return run
        mode = job["spec"].get("submissionMode") or words.K8S_JOB
        if (status.get("rayJobInfo") or {}).get("startTime"):
            begun = True  # The head knows it, whatever this operator has seen of its submitter.
        elif mode == words.K8S_JOB:
            begun = bool(self._submitting.get(name)) if self.settings.submitter_pods else name in self._submitters
        else:
            # Of a user's own submission nothing is seen here but the id, which comes with this state.
            begun = mode in (words.SIDECAR, words.INTERACTIVE)
        return self._start(job, job_id, cluster, now) if begun else None

    def _start(self, job: Obj, job_id: str, cluster: Obj, now: int) -> RayRun:
        # After a restart of the operator the Ray job goes on where its RayJob says it began.
        began = ((job.get("status") or {}).get("rayJobInfo") or {}).get("startTime")
        start = moment(began) if began else now
        ends = outcome(job)
        message = _FAILED_MESSAGE if ends == "failed" else ""
        run = RayRun(_ENDS[ends], start, start + runtime_ms(job, self.settings), message)
        self._runs.setdefault(cluster["metadata"]["uid"], {})[job_id] = run
        return run

    def _heard_pod(self, kind: ChangeType, pod: Obj) -> None:
        meta = pod["metadata"]
        labels, namespace = meta.get("labels") or {}, meta["namespace"]
        cluster = labels.get(words.CLUSTER)
        if cluster:
            key = f"{namespace}/{cluster}"
            _keep(self._pods, key, meta["name"], None if kind == "DELETED" else pod)
            self.queue.mark(f"cluster {key}")
            return
        # Whether that Job submits a Ray job may not be known yet: news of pods and of Jobs come independently.
        name = labels.get("batch.kubernetes.io/job-name")
        if name is None:
            return
        key = f"{namespace}/{name}"
        runs = kind != "DELETED" and (pod.get("status") or {}).get("phase") == "Running"
        if runs == (meta["name"] in self._submitting.get(key, {})):
            return
        _keep(self._submitting, key, meta["name"], pod if runs else None)
        self.queue.mark(f"job {key}")


def _keep(kept: dict[str, dict[str, Obj]], key: str, name: str, value: Obj | None) -> None:
    """Set ``kept[key][name]``, or take it out for None."""
    if value is not None:
        kept.setdefault(key, {})[name] = value
    elif key in kept:
        kept[key].pop(name, None)
        if not kept[key]:
            del kept[key]
