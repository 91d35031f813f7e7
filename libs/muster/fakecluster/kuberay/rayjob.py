"""A RayJob: from its observed objects to the operator's next writes. Pure.

The table of states is STATES at the end: deployment status -> steps. Every function there changes the step's status (a
copy) and adds operations; the result is at most one write of the status, after a change.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import deletions, rules, words
from muster.fakecluster.kuberay.children import cluster_of, submitter_job, submitter_status
from muster.fakecluster.kuberay.events import warning
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.kuberay.step import RayJobPlan, RayJobSeen, RayJobStep
from muster.fakecluster.kuberay.validation import rayjob_problem
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, Merge, Replace
from muster.model.api import JOBS, RAYCLUSTERS, RAYJOBS


def reconcile_rayjob(seen: RayJobSeen, now: int, settings: OperatorSettings) -> RayJobPlan:
    """What the operator does about a RayJob at ``now`` (ms)."""
    job = seen.job
    if job["spec"].get("managedBy") not in (None, words.MANAGER):
        return RayJobPlan()
    if job["metadata"].get("deletionTimestamp"):
        return RayJobPlan(_without_finalizer(job))
    step = RayJobStep(seen, now, settings)
    problem = rayjob_problem(job)
    if problem:
        step.set(jobDeploymentStatus=words.VALIDATION_FAILED, reason=words.VALIDATION_FAILED, message=problem)
        step.operations.append(warning(job, words.VALIDATION_FAILED, problem, now))
    elif step.state == words.NEW and words.FINALIZER not in (job["metadata"].get("finalizers") or ()):
        return RayJobPlan(_with_finalizer(job))
    else:
        STATES[step.state](step)
        rules.count_and_retry(step)
    _write_status(step)
    again_ms = None if step.again_at is None else max(step.again_at - now, 0)
    return RayJobPlan(tuple(step.operations), again_ms, step.submit)


def _new(step: RayJobStep) -> None:
    """Name the cluster and the Ray job before either exists, so that neither is ever made twice."""
    uid, status = step.seen.job["metadata"]["uid"], step.status
    if step.mode != words.INTERACTIVE and not status.get("jobId"):
        step.set(jobId=step.spec.get("jobId") or words.ray_job_id(step.name, uid, step.now))
    if not status.get("rayClusterName"):
        selected = (step.spec.get("clusterSelector") or {}).get(words.CLUSTER)
        step.set(rayClusterName=selected or words.cluster_name(step.name, uid, step.now))
    step.set(jobDeploymentStatus=words.INITIALIZING, startTime=stamp(step.now))


def _initializing(step: RayJobStep) -> None:
    """Wait for a cluster that is ready, then submit. Suspension is asked for first: then there is no cluster."""
    if rules.suspend(step) or rules.deadlines(step):
        return
    if step.mode == words.K8S_JOB and step.settings.batch_scheduler == "kai-scheduler":
        return  # Only the operator's log says that it does not do that: no event, no condition.
    cluster = _cluster(step)
    if cluster is None:
        return
    status = cluster.get("status") or {}
    step.set(rayClusterStatus=status or None)
    if status.get("state") != words.READY:
        return
    step.set(dashboardURL=words.dashboard_url(cluster, step.namespace))
    if step.mode == words.INTERACTIVE:
        step.set(jobDeploymentStatus=words.WAITING)
        return
    if step.mode == words.K8S_JOB and step.seen.submitter is None:
        body = submitter_job(step.seen.job, cluster, step.status, step.settings)
        step.operations.append(Create(JOBS, step.namespace, body))
    step.set(jobDeploymentStatus=words.RUNNING)


def _waiting(step: RayJobStep) -> None:
    """InteractiveMode: the user submits and then says under which id. Suspension is not looked at here."""
    if not rules.deadlines(step) and step.spec.get("jobId"):
        step.set(jobId=step.spec["jobId"], jobDeploymentStatus=words.RUNNING)


def _running(step: RayJobStep) -> None:
    """Follow the Ray job until it and its submitter are over."""
    if rules.suspend(step) or rules.deadlines(step) or rules.transition_overdue(step):
        return
    cluster = _cluster(step)
    if cluster is None:
        return
    finished_at: int | None = None
    if step.mode == words.K8S_JOB:
        finished_at, failure = submitter_status(step.seen.submitter)
        _report_submitter(step)
        if failure is not None:
            if step.status.get("jobStatus") == words.JOB_FAILED:
                step.fail(words.APP_FAILED, step.status.get("message", ""))
            else:
                step.fail(words.SUBMISSION_FAILED, f"Job submission has failed. {failure}")
            return
    elif step.mode == words.SIDECAR:
        if not step.seen.head_exists:
            step.fail(words.APP_FAILED, "the head pod, in which the Ray job was submitted, is gone")
            return
        run = step.seen.run
        finished_at = run.end if run is not None and run.end <= step.now else None
    if finished_at is not None and rules.submitter_overdue(step, finished_at):
        return
    _follow_run(step, cluster, finished_at)


def _follow_run(step: RayJobStep, cluster: Obj, finished_at: int | None) -> None:
    """Take over what the dashboard says of the Ray job."""
    run = step.seen.run
    if run is None:
        if step.mode == words.HTTP:
            step.submit = True
        elif finished_at is not None:
            step.fail(words.APP_FAILED, "Submitter completed but Ray job not found in RayCluster.")
        return
    over = run.end <= step.now
    if not over:
        step.look_again(run.end)
    info = {"startTime": stamp(run.start)} | ({"endTime": stamp(run.end)} if over else {})
    ray_status = run.status if over else words.JOB_RUNNING
    message = run.message if over else ""
    step.set(
        jobStatus=ray_status, message=message, reason=None, rayJobInfo=info, rayClusterStatus=cluster.get("status")
    )
    submits = step.mode in (words.K8S_JOB, words.SIDECAR)
    if not over or (submits and finished_at is None):
        if over:
            step.look_again(run.end + step.settings.transition_grace_ms)
        return
    if ray_status == words.JOB_FAILED:
        step.fail(words.APP_FAILED, message)
    else:
        step.set(jobDeploymentStatus=words.COMPLETE)


def _suspending(step: RayJobStep) -> None:
    """Delete everything, whatever ``suspend`` says by now; go on only when nothing is left."""
    seen = step.seen
    left = [child for child in (seen.cluster, _submitter(step)) if child is not None]
    for child, resource in ((seen.cluster, RAYCLUSTERS), (_submitter(step), JOBS)):
        if child is not None and not child["metadata"].get("deletionTimestamp"):
            meta = child["metadata"]
            step.operations.append(DeleteObject(resource, step.namespace, meta["name"], meta["uid"]))
    if left:
        return
    after = words.SUSPENDED if step.state == words.SUSPENDING else words.NEW
    gone = ("rayClusterStatus", "rayClusterName", "dashboardURL", "jobId", "message", "reason", "rayJobInfo")
    step.set(**dict.fromkeys((*gone, "jobStatus")), jobDeploymentStatus=after)


def _suspended(step: RayJobStep) -> None:
    if not step.spec.get("suspend"):
        step.set(jobDeploymentStatus=words.NEW, jobStatus=None)


def _over(step: RayJobStep) -> None:
    """Delete what is to go, when it is to go."""
    if step.spec.get("clusterSelector"):
        return
    operations, again_at = deletions.deletions_due(step.seen.job, step.seen.cluster, step.now)
    step.operations.extend(operations)
    if again_at is not None:
        step.look_again(again_at)


def _validation_failed(_: RayJobStep) -> None:
    """Final: a spec that is put right changes nothing."""


def _cluster(step: RayJobStep) -> Obj | None:
    """The RayJob's cluster; None when it had to be asked for, or a selected one does not exist."""
    if step.seen.cluster is None:
        if step.spec.get("clusterSelector"):
            step.look_again(step.now + step.settings.requeue_ms)
        else:
            body = cluster_of(step.seen.job, step.status["rayClusterName"])
            step.operations.append(Create(RAYCLUSTERS, step.namespace, body))
    return step.seen.cluster


def _submitter(step: RayJobStep) -> Obj | None:
    return None if step.mode in (words.HTTP, words.SIDECAR) else step.seen.submitter


def _report_submitter(step: RayJobStep) -> None:
    """Where no pods of Jobs run: say that the submitter is done when the Ray job is."""
    run, submitter = step.seen.run, step.seen.submitter
    if step.settings.submitter_pods or run is None or submitter is None or run.end > step.now:
        return
    if submitter_status(submitter)[0] is None:
        at = stamp(step.now)
        condition = {"status": "True", "lastProbeTime": at, "lastTransitionTime": at, "reason": "Simulated"}
        conditions = [{"type": kind, **condition} for kind in ("SuccessCriteriaMet", "Complete")]
        # A real Job controller may have begun it, and made a pod that no kubelet runs: when it began must not change,
        # and a Job that is over must not have an active pod.
        began = (submitter.get("status") or {}).get("startTime") or stamp(run.start)
        status = {"startTime": began, "completionTime": at, "succeeded": 1, "conditions": conditions}
        status |= {"active": None, "ready": None}
        step.operations.append(Merge(JOBS, step.namespace, step.name, {"status": status}, "status"))


def _write_status(step: RayJobStep) -> None:
    old = step.seen.job.get("status") or {}
    if step.status == old:
        return
    if step.state in (words.COMPLETE, words.FAILED) and step.state != old.get("jobDeploymentStatus"):
        step.set(endTime=stamp(step.now))
    step.set(observedGeneration=step.seen.job["metadata"]["generation"])
    step.operations.append(Replace(RAYJOBS, {**step.seen.job, "status": step.status}, "status"))


def _with_finalizer(job: Obj) -> tuple[ApiOperation, ...]:
    """The operator writes back what it has decoded, so its empty structs come along and the generation grows."""
    finalizers = [*(job["metadata"].get("finalizers") or ()), words.FINALIZER]
    spec, cluster = job["spec"], job["spec"].get("rayClusterSpec")
    if cluster:
        spec = {**spec, "rayClusterSpec": with_empty_structs(cluster)}
    return (Replace(RAYJOBS, {**job, "metadata": {**job["metadata"], "finalizers": finalizers}, "spec": spec}),)


def with_empty_structs(cluster: Obj) -> Obj:
    """A cluster's spec as Go writes it: a template without metadata gets some, a group without scaleStrategy one."""
    head = cluster.get("headGroupSpec") or {}
    cluster = {**cluster, "headGroupSpec": {**head, "template": {"metadata": {}, **(head.get("template") or {})}}}
    if cluster.get("workerGroupSpecs"):
        cluster["workerGroupSpecs"] = [
            {"scaleStrategy": {}, **group, "template": {"metadata": {}, **(group.get("template") or {})}}
            for group in cluster["workerGroupSpecs"]
        ]
    return cluster


def _without_finalizer(job: Obj) -> tuple[ApiOperation, ...]:
    finalizers = job["metadata"].get("finalizers") or []
    if words.FINALIZER not in finalizers:
        return ()
    kept = [name for name in finalizers if name != words.FINALIZER]
    return (Replace(RAYJOBS, {**job, "metadata": {**job["metadata"], "finalizers": kept}}),)


STATES: dict[str, Callable[[RayJobStep], None]] = {
    words.NEW: _new,
    words.INITIALIZING: _initializing,
    words.WAITING: _waiting,
    words.RUNNING: _running,
    words.SUSPENDING: _suspending,
    words.RETRYING: _suspending,
    words.SUSPENDED: _suspended,
    words.COMPLETE: _over,
    words.FAILED: _over,
    words.VALIDATION_FAILED: _validation_failed,
}
