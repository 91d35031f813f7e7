"""The children of a RayJob: the RayCluster, and the Kubernetes Job that submits the Ray job. Pure builders and
readers.
"""

from __future__ import annotations

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.settings import OperatorSettings, outcome, runtime_ms
from muster.fakecluster.operations import owner_of

SUBMITTER_BACKOFF_LIMIT = 2
SUBMITTER_RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def cluster_of(job: Obj, name: str) -> Obj:
    """The RayCluster of a RayJob; it gets the RayJob's labels and annotations."""
    meta = job["metadata"]
    labels = {
        **(meta.get("labels") or {}),
        words.FROM_NAME: meta["name"],
        words.FROM_KIND: "RayJob",
        words.SUBMISSION_MODE: job["spec"].get("submissionMode") or words.K8S_JOB,
    }
    made: Obj = {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": owner_of(job)}
    if meta.get("annotations"):
        made["annotations"] = meta["annotations"]
    spec = job["spec"]["rayClusterSpec"]
    if labels[words.SUBMISSION_MODE] == words.SIDECAR:
        made["annotations"] = {**(meta.get("annotations") or {}), words.NO_HEAD_RESTART: "true"}
        spec = _with_sidecar(spec)
    return {"apiVersion": job["apiVersion"], "kind": "RayCluster", "metadata": made, "spec": spec}


def submitter_job(job: Obj, cluster: Obj, status: Obj, settings: OperatorSettings) -> Obj:
    """The Kubernetes Job, named as the RayJob, whose pod submits the Ray job and waits for its end."""
    meta, spec = job["metadata"], job["spec"]
    retries = (spec.get("submitterConfig") or {}).get("backoffLimit")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": _marks(job),
            "ownerReferences": owner_of(job),
        },
        "spec": {
            "backoffLimit": SUBMITTER_BACKOFF_LIMIT if retries is None else retries,
            "template": _submitter_template(job, cluster, status, settings),
        },
    }


def submitter_status(submitter: Obj | None) -> tuple[int | None, str | None]:
    """(when the submitter finished, in ms; why it failed), None where it did not."""
    for condition in ((submitter or {}).get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            finished = moment(condition["lastTransitionTime"])
            if condition["type"] == "Complete":
                return finished, None
            return finished, f"Reason: {condition.get('reason', '')}. Message: {condition.get('message', '')}"
    return None, None


def _with_sidecar(spec: Obj) -> Obj:
    """The cluster's spec with the submitter beside its head, which is then never restarted."""
    head = spec["headGroupSpec"]
    template = head["template"]
    containers = [*template["spec"]["containers"], _submitter_container(spec)]
    pod = {**template["spec"], "restartPolicy": "Never", "containers": containers}
    return {**spec, "headGroupSpec": {**head, "template": {**template, "spec": pod}}}


def _submitter_container(spec: Obj) -> Obj:
    """What submits, if the user gave nothing of their own."""
    image = spec["headGroupSpec"]["template"]["spec"]["containers"][0].get("image", "")
    return {"name": "ray-job-submitter", "image": image, "resources": SUBMITTER_RESOURCES}


def _submitter_template(job: Obj, cluster: Obj, status: Obj, settings: OperatorSettings) -> Obj:
    """The submitter's pod; how long it runs is written on it, for the fake kubelet."""
    given = job["spec"].get("submitterPodTemplate")
    if given is None:
        given = {"spec": {"restartPolicy": "Never", "containers": [_submitter_container(cluster["spec"])]}}
    first, *others = given["spec"]["containers"]
    environment = [
        *(first.get("env") or ()),
        {"name": "RAY_DASHBOARD_ADDRESS", "value": status.get("dashboardURL", "")},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": status.get("jobId", "")},
    ]
    ends = settings.fail_after if outcome(job) == "submission-failed" else settings.run_for
    meta = given.get("metadata") or {}
    annotations = {**(meta.get("annotations") or {}), ends: f"{runtime_ms(job, settings)}ms"}
    spec = {"restartPolicy": "Never", **given["spec"], "containers": [{**first, "env": environment}, *others]}
    labels = {**(meta.get("labels") or {}), **(_marks(job) if settings.version == "1.7" else {})}
    return {**given, "metadata": {**meta, "labels": labels, "annotations": annotations}, "spec": spec}


def _marks(job: Obj) -> dict[str, str]:
    """The labels of the submitter: its Job and its pods."""
    return {words.FROM_NAME: job["metadata"]["name"], words.FROM_KIND: "RayJob", words.CREATED_BY: words.OPERATOR}
