"""What may be edited on an object while it runs: the rest of its spec stays as it was admitted.

A shape names what is free, what may only fall, and where to look inside; what it does not name is frozen, so that an
unknown field, or one that a later version brings, is refused rather than missed. The same goes for Muster's own writes
into a spec. ``deploy/policies`` makes CEL of both (``muster_tools.guardcel``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

FREE: Literal["free"] = "free"
"""Says nothing of how many pods there are, what they ask for, or where they run."""
FALLS: Literal["falls"] = "falls"
"""A number of pods: it may fall, where it was set before and still is."""
GRANTED: Literal["granted"] = "granted"
"""As FALLS; and it may rise as far as Muster has granted to its worker group (``muster.dev/granted``)."""
CEILING: Literal["ceiling"] = "ceiling"
"""As FALLS; and it may be anything where its worker group stays within what is granted."""


class Each(Struct, frozen=True):
    """A list of objects with a name: none comes, none goes, and each stays within the shape."""

    key: str
    shape: Mapping[str, Edit]


class Values(Struct, frozen=True):
    """A mapping of names to objects: none comes, none goes, and each stays within the shape."""

    shape: Mapping[str, Edit]


class SpecOf(Struct, frozen=True):
    """The spec of an object of another kind, which the controller makes of it: what may be edited there may be here."""

    kind: str


Edit = Literal["free", "falls", "granted", "ceiling"] | Each | Values | SpecOf | Mapping[str, "Edit"]
"""What may become of a field; a mapping: of the fields of an object."""
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
"""A pod template: the scheduler of its pods, and their gang."""
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
