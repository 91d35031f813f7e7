"""Every field of the specs of Ray objects, by the state of the object in which the field is edited.

Data. ``FIELDS`` and ``OF_CLUSTERS`` have an edit for each field that changes what runs, and what KubeRay does about the
edit in each state; ``SAME`` has the fields that change nothing of what runs, with the reason. `kit.rayfieldsplayed`
makes the edits, and the page.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Object = dict[str, Any]

# What KubeRay does, as the pods and RayClusters of the object show it.
NOTHING = "nothing"
AGAIN = "all pods are made again"
MORE = "pods are added"
FEWER = "pods are removed"
SECOND = "a second RayCluster takes over"
GONE = "all pods are deleted"
STARTS = "pods start"
NEVER = "pods never start"
RESTARTS = "all pods are deleted, and made again after an admission"
ENDS = "the RayJob fails"
DIES = "ValidationFailed: KubeRay looks at the RayJob no more"
STUCK = "a second RayCluster is made, and never serves"

JOB_STATES = ("waits", "runs", "over")
"""Of a RayJob: suspended in its queue; its Ray job runs; its Ray job ended, and ttlSecondsAfterFinished runs."""
CLUSTER_STATES = ("waits", "runs")
SERVICE_STATES = ("waits", "serves")


class Field(Struct, frozen=True):
    """A field, an edit of it (None: it is removed), and what KubeRay does about the edit in each state."""

    path: str
    value: Any
    does: tuple[str, ...]
    record: str = ""
    """A recorded scenario of a real KubeRay with this edit or this field (tests/kit/records/kuberay)."""
    invalid: bool = False
    """KubeRay finds the whole spec invalid: by the other fields, this field may not have the value."""


def template(cpu: str, image: str = "ray") -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return {"metadata": {}, "spec": {"containers": [{"name": "ray", "image": image, "resources": resources}]}}


def group(name: str) -> Object:
    return {"groupName": name, "replicas": 1, "minReplicas": 0, "maxReplicas": 3, "template": template("1")}


SMALL: Object = {**group("small"), "replicas": 2, "numOfHosts": 1, "rayStartParams": {}}
"""The worker group of every object."""
WORKERS = "workerGroupSpecs[0]"
POLICY = {"policy": "DeleteCluster"}
ON_END = {"onSuccess": POLICY, "onFailure": POLICY}
COLLECTOR = {"collectorOptions": {"image": "collector", "env": [{"name": "STORAGE_BACKEND", "value": "S3"},
                                                              {"name": "S3_REGION", "value": "any"}]}}  # fmt: skip
RULES = {"deletionRules": [{"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 0}}]}

OF_CLUSTERS: tuple[tuple[Field, str], ...] = (
    # (the field, in the states of a RayCluster; what a serving RayService does about it)
    (Field("suspend", True, (STARTS, RESTARTS), "raycluster-suspended"), NOTHING),
    (Field("idleSuspend", True, (NEVER, GONE)), STUCK),
    (Field("managedBy", "kueue.x-k8s.io/multikueue", (NEVER, NOTHING), "raycluster-managed-by-other"), STUCK),
    (Field("upgradeStrategy", {"type": "Recreate"}, (STARTS, NOTHING), "raycluster-template-edit-recreate"), NOTHING),
    (Field("enableInTreeAutoscaling", True, (STARTS, NOTHING), "raycluster-autoscaling-v2"), SECOND),
    (Field("autoscalerOptions", {"resources": {"requests": {"cpu": "1"}}}, (STARTS, NOTHING)), SECOND),
    (Field("gcsFaultToleranceOptions", {"redisAddress": "redis:6379"}, (STARTS, NOTHING),
           "raycluster-gcs-fault-tolerance"), SECOND),
    (Field("historyServerOptions", COLLECTOR, (STARTS, NOTHING)), SECOND),
    (Field("headGroupSpec.template", template("2"), (STARTS, NOTHING), "raycluster-template-edit"), SECOND),
    (Field("headGroupSpec.rayStartParams", {"num-cpus": "0"}, (STARTS, NOTHING)), SECOND),
    (Field("headGroupSpec.resources", {"CPU": "0"}, (STARTS, NOTHING)), SECOND),
    (Field("workerGroupSpecs", [SMALL, group("more")], (STARTS, MORE), "rayservice-group-added"), MORE),
    (Field(f"{WORKERS}.groupName", "other", (STARTS, MORE)), SECOND),
    (Field(f"{WORKERS}.replicas", 3, (STARTS, MORE), "raycluster-scale-by-hand"), NOTHING),
    (Field(f"{WORKERS}.replicas", 1, (STARTS, FEWER), "raycluster-scale-by-hand"), NOTHING),
    (Field(f"{WORKERS}.minReplicas", 3, (STARTS, MORE), "raycluster-replicas-over-max-and-under-min"), NOTHING),
    (Field(f"{WORKERS}.maxReplicas", 1, (STARTS, FEWER), "raycluster-replicas-over-max-and-under-min"), NOTHING),
    (Field(f"{WORKERS}.numOfHosts", 2, (STARTS, MORE), "raycluster-multi-host"), SECOND),
    (Field(f"{WORKERS}.suspend", True, (STARTS, FEWER), "raycluster-group-suspended"), SECOND),
    (Field(f"{WORKERS}.scaleStrategy", {"workersToDelete": ["no-such-pod"]}, (STARTS, NOTHING),
           "raycluster-autoscaling-v1"), NOTHING),
    (Field(f"{WORKERS}.template", template("2"), (STARTS, NOTHING), "raycluster-template-edit"), SECOND),
    (Field(f"{WORKERS}.rayStartParams", {"num-cpus": "1"}, (STARTS, NOTHING)), SECOND),
    (Field(f"{WORKERS}.resources", {"CPU": "1"}, (STARTS, NOTHING)), SECOND),
    (Field(f"{WORKERS}.idleTimeoutSeconds", 5, (NEVER, NOTHING), invalid=True), NOTHING),
    (Field(f"{WORKERS}.priority", 5, (NEVER, NOTHING), invalid=True), NOTHING),
)  # fmt: skip

OF_JOBS: tuple[Field, ...] = (
    Field("suspend", True, (STARTS, RESTARTS, NOTHING), "rayjob-suspend-cycle"),
    Field("managedBy", "kueue.x-k8s.io/multikueue", (NEVER, NOTHING, NOTHING)),
    Field("submissionMode", "HTTPMode", (STARTS, NOTHING, NOTHING), "rayjob-httpmode"),
    Field("submissionMode", "SidecarMode", (STARTS, NOTHING, NOTHING), "rayjob-sidecarmode"),
    Field("submissionMode", "InteractiveMode", (STARTS, NOTHING, NOTHING), "rayjob-interactivemode"),
    Field("submitterPodTemplate", template("2"), (STARTS, NOTHING, NOTHING)),
    Field("submitterConfig", {"backoffLimit": 0}, (STARTS, NOTHING, NOTHING)),
    Field("clusterSelector", {"ray.io/cluster": "other"}, (DIES, NOTHING, NOTHING), "rayjob-clusterselector"),
    Field("activeDeadlineSeconds", 1, (STARTS, ENDS, NOTHING), "rayjob-active-deadline"),
    Field("preRunningDeadlineSeconds", 100, (STARTS, NOTHING, NOTHING)),
    Field("backoffLimit", 2, (STARTS, NOTHING, NOTHING), "rayjob-backofflimit-k8sjobmode"),
    Field("shutdownAfterJobFinishes", False, (DIES, DIES, DIES), "rayjob-suspended-no-shutdown"),
    Field("ttlSecondsAfterFinished", 0, (STARTS, NOTHING, GONE)),
    Field("deletionStrategy", ON_END, (STARTS, NOTHING, NOTHING), "rayjob-deletion-delete-workers"),
    Field("deletionStrategy", RULES, (DIES, DIES, DIES)),
    Field("entrypoint", "python other.py", (STARTS, NOTHING, NOTHING)),
    Field("jobId", "mine", (STARTS, NOTHING, NOTHING)),
    Field("rayClusterSpec", None, (DIES, DIES, DIES)),
)

OF_SERVICES: tuple[Field, ...] = (
    Field("suspend", True, (STARTS, RESTARTS), "rayservice-suspended"),
    Field("managedBy", "kueue.x-k8s.io/multikueue", (NEVER, NOTHING)),
    Field("serveConfigV2", "applications: [x]", (STARTS, NOTHING), "rayservice-edits-without-upgrade"),
    Field("rayClusterDeletionDelaySeconds", 5, (STARTS, NOTHING)),
    Field("upgradeStrategy", {"type": "None"}, (STARTS, NOTHING)),
)

SAME: tuple[tuple[str, str], ...] = (
    (r"(.*\.)?rayVersion", "KubeRay chooses commands by this version; the image of the template is what runs"),
    (r"(.*\.)?(authOptions|tlsOptions|networkPolicy)(\..*)?", "secrets and network rules beside the pods"),
    (r"(.*\.)?headServiceAnnotations", "annotations of a Service"),
    (r"(.*\.)?headGroupSpec\.(enableIngress|ingressOptions|serviceType|headService)", "Services and Ingresses"),
    (r"(.*\.)?(headGroupSpec|workerGroupSpecs\[0\])\.labels", "labels of Ray's own nodes, for tasks and actors"),
    (
        r"(.*\.)?idleTerminationOptions(\..*)?",
        "Ray's autoscaler sets idleSuspend, or deletes the cluster",
    ),
    (r"entrypoint(NumCpus|NumGpus|Resources)", "logical resources within Ray, for the driver"),
    (r"(metadata|runtimeEnvYAML)", "the environment of the Ray job within its pods"),
    (r"(serviceUnhealthySecondThreshold|deploymentUnhealthySecondThreshold)", "not read by KubeRay any more"),
    (r"(serveService|excludeHeadPodFromServeSvc)", "a Service"),
)
"""(pattern of fields, why an edit changes nothing of what runs)"""

SERVICE_FIELDS = (
    "deploymentUnhealthySecondThreshold", "excludeHeadPodFromServeSvc", "managedBy", "rayClusterConfig",
    "rayClusterDeletionDelaySeconds", "serveConfigV2", "serveService", "serviceUnhealthySecondThreshold", "suspend",
    "upgradeStrategy",
)  # fmt: skip
"""Of KubeRay's definition of a RayService (1.7), whose definition is not among deploy/crds."""
