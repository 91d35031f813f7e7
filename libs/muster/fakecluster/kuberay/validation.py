"""Refusals of the operator: RayJobs marked ValidationFailed, RayClusters left alone.

Each function returns the first problem as a sentence, or an empty text. Rules: KubeRay's, with KubeRay's words where
users search for these.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.settings import OperatorSettings, outcome, runtime_ms
from muster.model.resources import QuantityError, parse_quantity

_MEMO_SIZE = 50_000
_memo: dict[int, tuple[Obj, str]] = {}
"""id of a spec -> (the spec, what is wrong with it): stored specs are shared between versions and never changed."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DESTRUCTIVE = ("DeleteCluster", "DeleteWorkers")


def rayjob_problem(job: Obj) -> str:
    """Why the operator will not run this RayJob."""
    name, spec = job["metadata"]["name"], job["spec"]
    return (
        name_problem(name, "RayJob") or _remembered(spec, _spec_problem) or _state_problem(job) or _script_problem(job)
    )


def name_problem(name: str, kind: str = "RayService") -> str:
    """Of an object whose clusters are named after it."""
    if len(name) > words.MAX_JOB_NAME:
        return f"{kind} name should be no more than {words.MAX_JOB_NAME} characters"
    return "" if _LABEL.fullmatch(name) else f"{kind} name should be a valid DNS1035 label: {name}"


def raycluster_problem(cluster: Obj) -> str:
    """Why the operator will not look at this RayCluster at all."""
    name = cluster["metadata"]["name"]
    if len(name) > words.MAX_CLUSTER_NAME:
        return f"RayCluster name should be no more than {words.MAX_CLUSTER_NAME} characters"
    if not _LABEL.fullmatch(name):
        return f"RayCluster name should be a valid DNS1035 label: {name}"
    strategy = (cluster["spec"].get("upgradeStrategy") or {}).get("type")
    creator = (cluster["metadata"].get("labels") or {}).get(words.FROM_KIND)
    if strategy and creator in ("RayJob", "RayService"):
        return f"upgradeStrategy cannot be set when RayCluster is created by {creator}"
    return _remembered(cluster["spec"], cluster_spec_problem)


def cluster_spec_problem(spec: Obj) -> str:
    """What is wrong with a cluster's spec."""
    if not _containers(spec["headGroupSpec"]):
        return "headGroupSpec should have at least one container"
    problem = _amounts_problem(spec["headGroupSpec"]) or _sizes_problem("Head", spec["headGroupSpec"])
    if problem:
        return problem
    names: set[str] = set()
    for group in spec.get("workerGroupSpecs") or ():
        if group["groupName"] in names:
            return f"worker group name {group['groupName']} is not unique"
        names.add(group["groupName"])
        problem = _group_problem(group, spec)
        if problem:
            return problem
    options = spec.get("historyServerOptions")
    if options is not None and not (options.get("collectorOptions") or {}).get("image"):
        return "historyServerOptions.collectorOptions.image must be set"
    return ""


def _group_problem(group: Obj, spec: Obj) -> str:
    name = group["groupName"]
    if not _containers(group):
        return f"workerGroupSpec {name} should have at least one container"
    lowest, highest = group.get("minReplicas", 0), group.get("maxReplicas", 0)
    if lowest < 0 or highest < 0:
        return f"worker group {name}: minReplicas and maxReplicas must not be negative"
    if highest < lowest:
        return f"worker group {name}: minReplicas {lowest} cannot be greater than maxReplicas {highest}"
    if spec.get("enableInTreeAutoscaling") and group.get("suspend"):
        return f"worker group {name} cannot be suspended with Autoscaler enabled"
    for key in () if _second_autoscaler(spec) else ("idleTimeoutSeconds", "priority"):
        if group.get(key) is not None and (group[key] or key != "priority"):
            return f"worker group {name}: {key} is set, but autoscaler v2 is not enabled"
    return _amounts_problem(group) or _sizes_problem(name, group)


def _second_autoscaler(spec: Obj) -> bool:
    env = (_containers(spec["headGroupSpec"])[0].get("env") or ()) if _containers(spec["headGroupSpec"]) else ()
    entries = [_object(entry) for entry in env] if isinstance(env, list) else []
    on = [entry for entry in entries if entry.get("value") in ("1", "true")]
    asked = any(entry.get("name") == "RAY_enable_autoscaler_v2" for entry in on)
    return asked or (spec.get("autoscalerOptions") or {}).get("version") == "v2"


def _sizes_problem(name: str, group: Obj) -> str:
    params = _object(group.get("rayStartParams"))
    twice = any(params.get(key) for key in ("num-cpus", "num-gpus", "memory", "resources")) and group.get("resources")
    return f"resource fields should not be set in both rayStartParams and Resources for {name} group" if twice else ""


def _remembered(spec: Obj, check: Callable[[Obj], str]) -> str:
    known = _memo.get(id(spec))
    if known is None or known[0] is not spec:
        if len(_memo) >= _MEMO_SIZE:
            _memo.clear()
        known = _memo[id(spec)] = (spec, check(spec))
    return known[1]


def _spec_problem(spec: Obj) -> str:
    cluster = spec.get("rayClusterSpec")
    selected = bool(spec.get("clusterSelector"))
    checks = (
        _suspension_problem(spec, selected=selected),
        "" if cluster or selected else "one of RayClusterSpec or ClusterSelector must be set",
        cluster_spec_problem(cluster) if cluster else "",
        _mode_problem(spec, selected=selected),
        _limits_problem(spec, selected=selected),
        _deletion_problem(spec, selected=selected),
    )
    return next((problem for problem in checks if problem), "")


def _suspension_problem(spec: Obj, *, selected: bool) -> str:
    if not spec.get("suspend"):
        return ""
    if not spec.get("shutdownAfterJobFinishes"):
        return "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
    return "the ClusterSelector mode doesn't support the suspend operation" if selected else ""


def _mode_problem(spec: Obj, *, selected: bool) -> str:
    mode = spec.get("submissionMode", words.K8S_JOB)
    if mode not in (words.K8S_JOB, words.HTTP, words.SIDECAR, words.INTERACTIVE):
        return f"unknown submissionMode {mode}"
    retries = spec.get("backoffLimit", 0)
    if mode == words.INTERACTIVE and retries > 0:
        return "BackoffLimit is incompatible with InteractiveMode"
    if mode != words.SIDECAR:
        return ""
    if selected:
        return "ClusterSelector is not supported in SidecarMode"
    for key in ("submitterPodTemplate", "submitterConfig"):
        if spec.get(key) is not None:
            return f"{key} is not supported in SidecarMode"
    restart = ((spec["rayClusterSpec"]["headGroupSpec"].get("template") or {}).get("spec") or {}).get("restartPolicy")
    if restart not in (None, "", "Never"):
        return "restartPolicy of the head pod should be Never or unset in SidecarMode"
    return ""


def _limits_problem(spec: Obj, *, selected: bool) -> str:
    deadline, retries = spec.get("activeDeadlineSeconds"), spec.get("backoffLimit", 0)
    if deadline is not None and deadline <= 0:
        return "activeDeadlineSeconds must be a positive integer"
    if retries < 0:
        return "backoffLimit must be a positive integer"
    if retries > 0 and selected:
        return "BackoffLimit is incompatible with ClusterSelector"
    if spec.get("ttlSecondsAfterFinished", 0) < 0:
        return "ttlSecondsAfterFinished must be a non-negative integer"
    if spec.get("ttlSecondsAfterFinished", 0) > 0 and not spec.get("shutdownAfterJobFinishes"):
        return "a RayJob with shutdownAfterJobFinishes set to false cannot have ttlSecondsAfterFinished"
    return ""


def _deletion_problem(spec: Obj, *, selected: bool) -> str:
    strategy = spec.get("deletionStrategy")
    if strategy is None:
        return ""
    if strategy.get("deletionRules") is not None and spec.get("shutdownAfterJobFinishes"):
        return "spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive"
    rules = strategy.get("deletionRules") or [strategy.get("onSuccess") or {}, strategy.get("onFailure") or {}]
    policies = [rule.get("policy") for rule in rules]
    if selected and any(policy in _DESTRUCTIVE for policy in policies):
        return "the ClusterSelector mode doesn't support the deletion policies DeleteCluster and DeleteWorkers"
    autoscaling = (spec.get("rayClusterSpec") or {}).get("enableInTreeAutoscaling")
    if autoscaling and "DeleteWorkers" in policies:
        return "DeletionPolicy=DeleteWorkers does not support RayCluster with autoscaling enabled"
    return ""


def _state_problem(job: Obj) -> str:
    waiting = (job.get("status") or {}).get("jobDeploymentStatus") == words.WAITING
    if waiting and job["spec"].get("submissionMode") != words.INTERACTIVE:
        return "JobDeploymentStatus cannot be Waiting when SubmissionMode is not InteractiveMode"
    return ""


def _script_problem(job: Obj) -> str:
    """What is wrong with the annotations that say how the simulated Ray job goes."""
    try:
        outcome(job)
        runtime_ms(job, OperatorSettings())
    except ValueError as err:
        return str(err)
    return ""


def _amounts_problem(group: Obj) -> str:
    """What is wrong with the quantities of a group's pods; KubeRay's own definition refuses them at once."""
    for container in _containers(group):
        resources = _object(container.get("resources"))
        for part in ("requests", "limits"):
            for name, text in _object(resources.get(part)).items():
                try:
                    parse_quantity(str(text), name)
                except QuantityError as err:
                    return f"{part} of container {container.get('name', '')}: {name}: {err.problem.code}"
    return ""


def _containers(group: Obj) -> list[Obj]:
    """The containers of a group's pods; none where our definition, which leaves templates open, accepted nonsense."""
    containers = _object(_object(group.get("template")).get("spec")).get("containers")
    return (
        [container for container in containers if isinstance(container, dict)] if isinstance(containers, list) else []
    )


def _object(value: object) -> Obj:
    return value if isinstance(value, dict) else {}
