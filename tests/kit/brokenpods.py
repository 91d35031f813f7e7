"""Statuses of pods that do not run, or have failed, as the kubelet and the scheduler write them."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
CROWDED = "0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {team: research}. "
CROWDED += "preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod."


def waiting(reason: str, last: Obj | None = None) -> Obj:
    state = {"waiting": {"reason": reason, "message": "secret words"}}
    container = {"name": "main", "image": "reg/x:1", "state": state, "lastState": last or {}}
    return {"phase": "Pending", "containerStatuses": [container]}


def ended(reason: str, code: int, phase: str = "Failed") -> Obj:
    state = {"terminated": {"reason": reason, "exitCode": code}}
    return {"phase": phase, "containerStatuses": [{"name": "main", "image": "reg/x:1", "state": state}]}


def disrupted(reason: str) -> Obj:
    """A pod that was told to end, and ended."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "secret words"}
    return ended("Error", 143) | {"conditions": [condition]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": CROWDED}],
}
INIT = {"name": "wait-head", "image": "x", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
BROKEN: dict[str, tuple[Obj, str, str]] = {
    "unschedulable": (UNSCHEDULABLE, "Unschedulable", "0/5 nodes are available: 3 Insufficient nvidia.com/gpu"),
    "image": (waiting("ErrImagePull"), "ImagePullBackOff", "the image reg/x:1 cannot be pulled (ErrImagePull)"),
    "image name": (waiting("InvalidImageName"), "ImagePullBackOff", "(InvalidImageName)"),
    "crash loop": (
        waiting("CrashLoopBackOff", {"terminated": {"reason": "Error", "exitCode": 3}}),
        "CrashLoopBackOff",
        "container main ended with exit code 3",
    ),
    "out of memory": (
        waiting("CrashLoopBackOff", {"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
        "OOMKilled",
        "more memory than its limit",
    ),
    "no secret": (waiting("CreateContainerConfigError"), "ContainerNotCreated", "(CreateContainerConfigError)"),
    "init": ({"phase": "Pending", "initContainerStatuses": [INIT]}, "InitWaiting", "init container wait-head"),
    "evicted": ({"phase": "Failed", "reason": "Evicted"}, "Evicted", "its node evicted it"),
    "exit": (ended("Error", 2), "ContainerFailed", "exit code 2"),
    "killed": (ended("OOMKilled", 137), "OOMKilled", "more memory than its limit"),
    "deadline": ({"phase": "Failed", "reason": "DeadlineExceeded"}, "DeadlineExceeded", "activeDeadlineSeconds"),
    "node": ({"phase": "Failed", "reason": "NodeShutdown"}, "NodeLost", "shut down"),
    "drained": (disrupted("EvictionByEvictionAPI"), "Evicted", "evicted through the API: a drain of its node"),
    "preempted": (disrupted("PreemptionByScheduler"), "Evicted", "its place to a pod of higher priority"),
    "pressure": (disrupted("TerminationByKubelet"), "Evicted", "its node evicted it"),
    "taint": (disrupted("DeletionByTaintManager"), "NodeLost", "is lost"),
    "orphan": (disrupted("DeletionByPodGC"), "NodeLost", "is lost"),
    "failed": ({"phase": "Failed", "reason": "OutOfcpu"}, "PodFailed", "(OutOfcpu)"),
}
