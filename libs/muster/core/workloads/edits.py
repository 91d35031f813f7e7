"""The fields of an object that users may edit while the object runs: the rest of the spec stays as admitted.

A shape names the free fields, the fields that may only fall, and the fields to look into. Every other field is frozen,
so that an unknown field, or a field of a later version, is refused rather than missed. The same rule covers Muster's
own writes into a spec. ``muster_tools.guardcel`` makes the CEL of ``deploy/policies`` from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

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
JOB: Shape = {
    "activeDeadlineSeconds": FREE,
    "ttlSecondsAfterFinished": FREE,
    "backoffLimit": FREE,
    "parallelism": FALLS,
    "completions": FALLS,
}
KUBEFLOW: Shape = {
    "runPolicy": dict.fromkeys(
        ("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished"), FREE
    )
}
SPARK: Shape = {"timeToLiveSeconds": FREE}

# --- what Muster writes into the spec of a kind, besides the field that suspends it -----------------------------------

_STEERED: Shape = {
    "metadata": {"annotations": FREE},
    "spec": {"schedulerName": FREE, "schedulingGroup": FREE},
}
"""A pod template: the scheduler of the pods, and their gang."""
OURS_RAY_CLUSTER: Shape = {
    "headGroupSpec": {"template": _STEERED},
    "workerGroupSpecs": Each(
        "groupName", {"replicas": FREE, "maxReplicas": FREE, "scaleStrategy": FREE, "template": _STEERED}
    ),
}
OURS_RAY_JOB: Shape = {"rayClusterSpec": SpecOf("RayCluster"), "submitterPodTemplate": _STEERED}
OURS_RAY_SERVICE: Shape = {"rayClusterConfig": SpecOf("RayCluster")}
OURS_JOB: Shape = {"template": _STEERED}
OURS_REPLICAS: Shape = dict.fromkeys(
    ("tfReplicaSpecs", "pytorchReplicaSpecs", "mpiReplicaSpecs"), Values({"template": _STEERED})
)
_FLAT: Shape = {"schedulerName": FREE, "annotations": FREE, "template": _STEERED}
OURS_SPARK: Shape = {"driver": _FLAT, "executor": _FLAT}
