"""Defaults filled in by a server: of Ray's CRDs, of pods and of batch Jobs.

Each function returns the object with its defaults, and never changes the argument, which may share parts with the
stored object. Only fields read by a controller are filled in: no DNS policy, no image pull policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.apiserver.status import Obj

UNLIMITED_REPLICAS = 2147483647

_WORKER_GROUP = {"maxReplicas": UNLIMITED_REPLICAS, "minReplicas": 0, "numOfHosts": 1, "priority": 0, "replicas": 0}
_RAYJOB = {"backoffLimit": 0, "submissionMode": "K8sJobMode", "ttlSecondsAfterFinished": 0}
_RAYJOB_STATUS = {"failed": 0, "succeeded": 0}
_POD = {
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_JOB = {"backoffLimit": 6, "completionMode": "NonIndexed", "completions": 1, "parallelism": 1, "suspend": False}


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``found`` with the missing ``defaults``; the same object if none is missing."""
    missing = {key: value for key, value in defaults.items() if given.get(key) is None}
    if not missing:
        return given if isinstance(given, dict) else dict(given)
    return {**given, **missing}


def raycluster_spec(spec: Obj) -> Obj:
    """A RayCluster's spec with the defaults of its worker groups."""
    groups = spec.get("workerGroupSpecs")
    if not isinstance(groups, list):
        return spec
    filled = [with_defaults(group, _WORKER_GROUP) for group in groups]
    if all(new is old for new, old in zip(filled, groups, strict=True)):
        return spec
    return {**spec, "workerGroupSpecs": filled}


def raycluster(obj: Obj) -> Obj:
    """A RayCluster as the server stores it."""
    return _with(obj, "spec", raycluster_spec(obj.get("spec") or {}))


def rayjob(obj: Obj) -> Obj:
    """A RayJob as the server stores it."""
    spec = with_defaults(obj.get("spec") or {}, _RAYJOB)
    if isinstance(spec.get("rayClusterSpec"), dict):
        spec = _with(spec, "rayClusterSpec", raycluster_spec(spec["rayClusterSpec"]))
    obj = _with(obj, "spec", spec)
    if isinstance(obj.get("status"), dict):
        obj = _with(obj, "status", with_defaults(obj["status"], _RAYJOB_STATUS))
    return obj


def pod(obj: Obj) -> Obj:
    """A pod as the server stores it: requests that are missing are taken from the limits."""
    spec = with_defaults(obj.get("spec") or {}, _POD)
    for key in ("containers", "initContainers"):
        if isinstance(spec.get(key), list):
            spec = _with(spec, key, [_container(entry) for entry in spec[key]])
    return _with(obj, "spec", spec)


def pod_status(spec: Obj, at_ms: int) -> Obj:
    """The status of a pod that has just been created."""
    if not spec.get("schedulingGates"):
        return {"phase": "Pending"}
    gated = {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(at_ms),
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    return {"phase": "Pending", "conditions": [gated]}


def job(obj: Obj) -> Obj:
    """A batch Job as stored by the server: labelled, with its pods, by its uid and name."""
    meta, spec = obj["metadata"], with_defaults(obj.get("spec") or {}, _JOB)
    marks = {
        f"{prefix}{key}": meta[value]
        for prefix in ("batch.kubernetes.io/", "")
        for key, value in (("controller-uid", "uid"), ("job-name", "name"))
    }
    template = spec.get("template") or {}
    labelled = {**(template.get("metadata") or {})}
    labelled["labels"] = {**(labelled.get("labels") or {}), **marks}
    spec = {
        **spec,
        "selector": spec.get("selector") or {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}},
        "template": {**template, "metadata": labelled},
    }
    meta["labels"] = {**(meta.get("labels") or {}), **marks}
    return {**obj, "spec": spec}


def _container(obj: Obj) -> Obj:
    resources = obj.get("resources") or {}
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not limits or limits.keys() <= requests.keys():
        return obj
    return {**obj, "resources": {**resources, "requests": {**limits, **requests}}}


def _with(obj: Obj, key: str, value: Any) -> Obj:
    return obj if obj.get(key) is value else {**obj, key: value}
