"""Kubernetes resources by their addresses at the API server, and the words of the protocol in use here."""

from __future__ import annotations

from msgspec import Struct

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML."""


class ApiResource(Struct, frozen=True, gc=False):
    """One resource: ``ray.io/v1 rayjobs`` of kind RayJob. An empty group is the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """``/apis/ray.io/v1`` or ``/api/v1``: the discovery document of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of a collection or an object; an empty namespace means all of them."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


RAYJOBS = ApiResource("ray.io", "v1", "rayjobs", "RayJob")
RAYCLUSTERS = ApiResource("ray.io", "v1", "rayclusters", "RayCluster")
RAYSERVICES = ApiResource("ray.io", "v1", "rayservices", "RayService")
PODS = ApiResource("", "v1", "pods", "Pod")
NODES = ApiResource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = ApiResource("", "v1", "events", "Event")
LEASES = ApiResource("coordination.k8s.io", "v1", "leases", "Lease")
NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)
JOBS = ApiResource("batch", "v1", "jobs", "Job")
TFJOBS = ApiResource("kubeflow.org", "v1", "tfjobs", "TFJob")
PYTORCHJOBS = ApiResource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
MPIJOBS = ApiResource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
SPARKAPPLICATIONS = ApiResource("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication")
PRIORITY_CLASSES = ApiResource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
RUNTIME_CLASSES = ApiResource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
LIMIT_RANGES = ApiResource("", "v1", "limitranges", "LimitRange")
QUOTA_TREES = ApiResource("scheduling.sigs.k8s.io", "v1beta1", "elasticquotatrees", "ElasticQuotaTree")
QUEUES = ApiResource("scheduling.x-k8s.io", "v1alpha1", "queues", "Queue")
KAI_QUEUES = ApiResource("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
"""Queues of KAI Scheduler: another API group than ours, with the same plural and kind."""
KAI_POD_GROUPS = ApiResource("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup")
"""PodGroups of KAI Scheduler: written to be read, never read."""
QUEUE_UNITS = ApiResource("scheduling.x-k8s.io", "v1alpha1", "queueunits", "QueueUnit")
POD_GROUPS = tuple(
    ApiResource(group, "v1alpha1", "podgroups", "PodGroup")
    for group in ("scheduling.sigs.k8s.io", "scheduling.x-k8s.io")
)
"""PodGroups of both API groups: koordinator's and ACK's, the coscheduling plugin's and KubeRay's."""
NATIVE_POD_GROUPS = tuple(
    ApiResource("scheduling.k8s.io", version, "podgroups", "PodGroup")
    for version in ("v1", "v1beta1", "v1alpha3", "v1alpha2")
)
"""PodGroups of Kubernetes itself, which kube-scheduler knows; the newest version that a server has is read."""
NATIVE_WORKLOADS_OF_1_35 = ApiResource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
"""What pods name by ``spec.workloadRef`` in Kubernetes 1.35, and in no later one: not read."""
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
DISRUPTION_BUDGETS = ApiResource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
POD_TEMPLATES = ApiResource("", "v1", "podtemplates", "PodTemplate")
PROVISIONING_REQUESTS = ApiResource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
"""Of the Cluster Autoscaler: nodes for many pods at once."""
RESOURCE_FLAVORS = tuple(
    ApiResource("kueue.x-k8s.io", version, "resourceflavors", "ResourceFlavor", namespaced=False)
    for version in ("v1beta2", "v1beta1")
)
"""Flavors of Kueue: read by commands only."""
CRDS = ApiResource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

VERSIONS: dict[str, str] = {
    resource.kind: resource.api_version
    for resource in (
        PODS,
        NODES,
        PRIORITY_CLASSES,
        QUOTA_TREES,
        QUEUES,
        QUEUE_UNITS,
        CONFIG_MAPS,
        PROVISIONING_REQUESTS,
    )
}
"""{kind: apiVersion} of everything we read that is no job."""
