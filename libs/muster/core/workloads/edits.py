"""The fields of an object that users may edit while the object runs: the rest of the spec stays as admitted.

A shape names the free fields, the fields that may only fall, and the fields to look into. Every other field is frozen,
so that an unknown field, or a field of a later version, is refused rather than missed. The same rule covers Muster's
own writes into a spec. ``muster_cli.guardcel`` makes the CEL of ``deploy/policies`` from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from muster.core.workloads.definition import Pods

FREE: Literal["free"] = "free"
"""A field without effect on the number of pods, their requests or their places."""
FALLS: Literal["falls"] = "falls"
"""A number of pods: the number may fall, where set before and still set."""
GRANTED: Literal["granted"] = "granted"
"""As FALLS; the number may also rise up to Muster's grant for the worker group (``muster.dev/granted``)."""
CEILING: Literal["ceiling"] = "ceiling"
"""As FALLS; any value is allowed while the worker group stays within the grant."""


class Each(Struct, frozen=True):
    """A list of objects with a name: none comes, none goes, and each stays within the shape."""

    key: str
    shape: Mapping[str, Edit]


class Values(Struct, frozen=True):
    """A mapping of names to objects: none comes, none goes, and each stays within the shape."""

    shape: Mapping[str, Edit]


class SpecOf(Struct, frozen=True):
    """The spec of a child object of another kind: the edits allowed on the child are allowed here."""

    kind: str


Edit = Literal["free", "falls", "granted", "ceiling"] | Each | Values | SpecOf | Mapping[str, "Edit"]
"""The allowed edits of a field; a mapping: of the fields of an object."""
Shape = Mapping[str, Edit]

_CONTAINER: Shape = dict.fromkeys(
    (
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "workingDir",
        "env",
        "envFrom",
        "volumeMounts",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "securityContext",
        "terminationMessagePath",
        "terminationMessagePolicy",
    ),
    FREE,
)
_POD: Shape = {
    "spec": {
        "containers": Each("name", _CONTAINER),
        "volumes": FREE,
        "imagePullSecrets": FREE,
        "securityContext": FREE,
        "terminationGracePeriodSeconds": FREE,
    }
}
"""A new image or new code is an upgrade to pods of the same size."""
_GROUP: Shape = {
    "replicas": GRANTED,
    "minReplicas": GRANTED,
    "maxReplicas": CEILING,
    "scaleStrategy": FREE,
    "idleTimeoutSeconds": FREE,
    "template": _POD,
}
RAY_CLUSTER: Shape = {
    "idleSuspend": FREE,
    "headGroupSpec": {"template": _POD},
    "workerGroupSpecs": Each("groupName", _GROUP),
}
RAY_JOB: Shape = dict.fromkeys(
    (
        "entrypoint",
        "metadata",
        "runtimeEnvYAML",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "shutdownAfterJobFinishes",
        "preRunningDeadlineSeconds",
    ),
    FREE,
)
RAY_SERVICE: Shape = {
    "serveConfigV2": FREE,
    "serviceUnhealthySecondThreshold": FREE,
    "deploymentUnhealthySecondThreshold": FREE,
    "rayClusterDeletionDelaySeconds": FREE,
    "rayClusterConfig": SpecOf("RayCluster"),
}
# --- what Muster writes into the spec of a kind, besides the field that suspends it -----------------------------------

_STEERED: Shape = {
    "metadata": {"annotations": FREE},
    "spec": {"schedulerName": FREE, "schedulingGroup": FREE, "nodeSelector": FREE, "tolerations": FREE},
}
"""A pod template: the scheduler of the pods, their gang, and the nodes of their flavors."""
OURS_RAY_CLUSTER: Shape = {
    "headGroupSpec": {"template": _STEERED},
    "workerGroupSpecs": Each(
        "groupName", {"replicas": FREE, "maxReplicas": FREE, "scaleStrategy": FREE, "template": _STEERED}
    ),
}
OURS_RAY_JOB: Shape = {"rayClusterSpec": SpecOf("RayCluster"), "submitterPodTemplate": _STEERED}
OURS_RAY_SERVICE: Shape = {"rayClusterConfig": SpecOf("RayCluster")}
_FLAT: Shape = {
    "schedulerName": FREE,
    "annotations": FREE,
    "nodeSelector": FREE,
    "tolerations": FREE,
    "template": _STEERED,
}
OURS_SPARK: Shape = {"driver": _FLAT, "executor": _FLAT}
BY_HAND: dict[str, tuple[Shape, Shape]] = {
    "RayJob": (RAY_JOB, OURS_RAY_JOB),
    "RayCluster": (RAY_CLUSTER, OURS_RAY_CLUSTER),
    "RayService": (RAY_SERVICE, OURS_RAY_SERVICE),
    "SparkApplication": ({"timeToLiveSeconds": FREE}, OURS_SPARK),
}
"""{kind: (edits allowed while an object runs, Muster's writes)} of the kinds whose pods a function reads"""


def edits_of(data: Mapping[str, Any]) -> Shape:
    """The shape of a definition's edits: ``[name]`` means a list with these names, ``*`` for a mapping."""
    shape: dict[str, Edit] = {}
    for key, value in data.items():
        inner = edits_of(value) if isinstance(value, Mapping) else value
        if isinstance(inner, Mapping) and len(inner) == 1:
            [(first, rest)] = inner.items()
            if isinstance(rest, Mapping) and first[0] == "[":
                inner = Each(first[1:-1], rest)
            elif isinstance(rest, Mapping) and first == "*":
                inner = Values(rest)
        shape[key] = inner
    return shape


def steered(pods: Iterable[Pods]) -> Shape:
    """Muster's writes into the pod templates of a definition."""
    shape: dict[str, Any] = {}
    for set_of_pods in (set_of_pods for set_of_pods in pods if not set_of_pods.resources):
        steps = [*set_of_pods.each.replace("[]", f".[{set_of_pods.name}]").split("."), *set_of_pods.template.split(".")]
        _put(shape, [step for step in steps if step][1:])
    return edits_of(shape)


def _put(shape: dict[str, Any], steps: list[str]) -> None:
    for step in steps[:-1]:
        shape = shape.setdefault(step, {})
    if steps:
        shape[steps[-1]] = _STEERED
