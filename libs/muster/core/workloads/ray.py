"""The specification of a Ray cluster: its pods, its needs, and the address of its head.

The address comes from the status, and from the spec where the status is incomplete. A headless service leads to the
ports of the pod, listed in ``status.endpoints``. For a service with its own address ``status.endpoints`` lists the node
ports, where any exist; there the ports of the head's container count.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.meta import (
    DRIVE,
    KAI_QUEUE,
    RAY_GROUP,
    RAY_HEAD,
    RAY_NODE,
    RAY_NODE_TYPE,
    RAY_PRIORITY,
    RAY_WORKER,
    START,
    Meta,
)
from muster.core.objects.podspec import (
    Container,
    PodSpec,
    PodTemplate,
    Resources,
    container_request,
    pod_request,
    pod_rules,
)
from muster.core.workloads.common import Needs, count
from muster.model.elastic import HeadService
from muster.model.placing import ANYWHERE, PodRules
from muster.model.resources import Vector, add_into, beyond, highest

# --- ray --------------------------------------------------------------------------------------------------------------


GROUP = "ray.io"
OPERATOR = "ray.io/kuberay-operator"

SIDECAR: Vector = {"cpu": 500, "memory": 512 * 2**20}
"""The autoscaler container KubeRay adds to the head: 500m, 512Mi unless autoscalerOptions.resources replaces the
request."""
COLLECTOR: Vector = {"cpu": 500, "memory": 512 * 2**20}
"""The container KubeRay (from 1.7 on) adds to every pod with historyServerOptions.collectorOptions: 500m, 512Mi unless
the resources of the options replace the request."""
WAIT_FOR_HEAD: Vector = {"cpu": 200, "memory": 256 * 2**20}
"""The init container KubeRay adds to every worker: matters only for workers smaller than this container."""
REDIS_CLEANUP: Vector = {"cpu": 200, "memory": 256 * 2**20}
"""The clean-up job after a cluster with GCS fault tolerance: runs after the head, so only the larger counts."""


class HeadContainer(Container, frozen=True, rename="camel"):
    env: object = None


class HeadPodSpec(PodSpec, frozen=True, rename="camel"):
    containers: tuple[HeadContainer, ...] = ()


class HeadTemplate(PodTemplate, frozen=True):
    spec: HeadPodSpec = field(default_factory=HeadPodSpec)


class HeadGroup(Struct, frozen=True, rename="camel"):
    template: HeadTemplate = field(default_factory=HeadTemplate)
    ray_start_params: dict[str, object] | None = None
    resources: dict[str, object] | None = None


class ScaleStrategy(Struct, frozen=True, rename="camel"):
    workers_to_delete: tuple[str, ...] | None = None
    scale_gate: object = None
    """Named entries of any client; the cluster is readable whatever the entries are."""


class WorkerGroup(Struct, frozen=True, rename="camel"):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: PodTemplate = field(default_factory=PodTemplate)
    ray_start_params: dict[str, object] | None = None
    resources: dict[str, object] | None = None
    labels: object = None
    """Labels of the nodes, for the choice of tasks and actors."""
    priority: object = None
    idle_timeout_seconds: int | None = None
    scale_strategy: ScaleStrategy | None = None


class AutoscalerOptions(Struct, frozen=True, rename="camel"):
    resources: Resources | None = None
    upscaling_mode: str | None = None
    idle_timeout_seconds: int | None = None
    version: object = None


class CollectorOptions(Struct, frozen=True):
    resources: Resources | None = None


class HistoryServerOptions(Struct, frozen=True, rename="camel"):
    collector_options: CollectorOptions | None = None


class RayClusterSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    idle_suspend: bool | None = None
    """Ray's autoscaler sets the field once no driver has used the cluster for a while (Ray 2.60,
    idleTerminationOptions)."""
    managed_by: str | None = None
    head_group_spec: HeadGroup = field(default_factory=HeadGroup)
    worker_group_specs: tuple[WorkerGroup, ...] | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    gcs_fault_tolerance_options: dict[str, object] | None = None
    history_server_options: HistoryServerOptions | None = None
    tls_options: object = None
    upgrade_strategy: object = None

    @property
    def rests(self) -> bool:
        """Whether the operator has to keep no pods of the cluster."""
        return bool(self.suspend or self.idle_suspend)


def add_cluster(
    needs: Needs, cluster: RayClusterSpec, at: str, *, meta: Meta, beside_head: Vector | None = None
) -> None:
    """Add a Ray cluster's pods.

    ``ack``: head + sum(replicas x hosts x worker), without KubeRay's own containers; an owner's additions to these
    containers count. ``full``: every container that KubeRay will run. ``beside_head``: containers in the head's pod
    beyond the request of the cluster.
    """
    elastic = starts_small(cluster, meta)
    template = cluster.head_group_spec.template
    extra, collector, scaler = dict(beside_head or {}), collector_of(cluster, at), autoscaler_of(cluster, at)
    add_into(extra, collector)
    add_into(extra, scaler)
    whole = pod_request(template.spec, f"{at}.headGroupSpec.template.spec", extra=extra)
    collects, beside = beyond(collector, COLLECTOR), beyond(scaler, SIDECAR)
    add_into(beside, collects)
    asked = pod_request(template.spec, f"{at}.headGroupSpec.template.spec", extra=beside) if beside else None
    rules = _rules(needs.steering.as_authored("head", template), "headgroup", RAY_HEAD)
    needs.add("head", 1, template, f"{at}.headGroupSpec", request=asked, whole=whole, rules=rules)
    needs.prioritize(meta.labels.get(RAY_PRIORITY))
    needs.prioritize(template.spec.priority_class_name, template.spec.priority)
    if cluster.gcs_fault_tolerance_options is not None:
        needs.reserve(highest(whole, REDIS_CLEANUP))
        needs.reserve(whole, -1)
    for index, group in enumerate(cluster.worker_group_specs or ()):
        path = f"{at}.workerGroupSpecs[{index}]"
        replicas, hosts = replicas_of(group, path), hosts_of(group, path)
        one = pod_request(group.template.spec, f"{path}.template.spec", extra=collects)
        whole = pod_request(group.template.spec, f"{path}.template.spec", extra=collector) if collector else one
        name = group.group_name or f"group-{index}"
        own = needs.steering.as_authored(name, group.template)
        needs.add(
            name,
            replicas * hosts,
            group.template,
            path,
            request=one,
            whole=highest(whole, WAIT_FOR_HEAD),
            rules=_rules(own, group.group_name, RAY_WORKER),
            minimum=least_of(group, cluster, replicas, path) * hosts if elastic else None,
        )


def autoscaler_of(cluster: RayClusterSpec, at: str) -> Vector:
    """The request of Ray's autoscaler beside the head; empty without an autoscaler."""
    if not cluster.enable_in_tree_autoscaling:
        return {}
    own = cluster.autoscaler_options.resources if cluster.autoscaler_options is not None else None
    return dict(SIDECAR) if own is None else container_request(own, f"{at}.autoscalerOptions")


def collector_of(cluster: RayClusterSpec, at: str) -> Vector:
    """The request of the history server's collector beside Ray in every pod; empty without a collector."""
    options = cluster.history_server_options
    if options is None or options.collector_options is None:
        return {}
    own = options.collector_options.resources
    return dict(COLLECTOR) if own is None else container_request(own, f"{at}.historyServerOptions.collectorOptions")


def template_labels(cluster: RayClusterSpec) -> dict[str, str]:
    """The labels of the pod templates; the head's labels win."""
    groups = cluster.worker_group_specs or ()
    labels: dict[str, str] = {}
    for template in (cluster.head_group_spec.template, *(group.template for group in groups)):
        for key, text in template.labels.items():
            labels.setdefault(key, text)
    return labels


def scales(cluster: RayClusterSpec, meta: Meta) -> bool:
    """Whether the size changes while the cluster runs: by Ray's autoscaler, or by Muster on the owner's wish."""
    return bool(cluster.enable_in_tree_autoscaling) or meta.annotations.get(DRIVE, "") == "true"


def starts_small(cluster: RayClusterSpec, meta: Meta) -> bool:
    """Whether worker groups need only their minimum to start.

    True in a queue of KAI Scheduler, and for a scaling cluster whose annotation asks for the minimum.
    """
    kai = any(labels.get(KAI_QUEUE) for labels in (meta.labels, template_labels(cluster)))
    return kai or (meta.annotations.get(START, "") == "minimum" and scales(cluster, meta))


def least_of(group: WorkerGroup, cluster: RayClusterSpec, replicas: int, path: str) -> int:
    """Replicas that a group needs to start, as KAI Scheduler counts.

    With in-tree autoscaling minReplicas, zero included; else minReplicas, or all replicas where minReplicas is zero.
    """
    low = count(group.min_replicas, 0, f"{path}.minReplicas")
    return min(low if low or cluster.enable_in_tree_autoscaling else replicas, replicas)


def _rules(template: PodTemplate, group: str, node_type: str) -> PodRules:
    """Where pods of a group may run; with KubeRay's labels where labels matter."""
    labels = template.labels
    rules = pod_rules(template.spec, labels)
    if not labels and rules == ANYWHERE:
        return rules
    known = {RAY_GROUP: group[:63], RAY_NODE: "yes", RAY_NODE_TYPE: node_type}
    labels = dict(sorted((labels | known).items()))
    return replace(pod_rules(template.spec, labels), labels=labels)


def hosts_of(group: WorkerGroup, path: str) -> int:
    """Number of pods in one replica."""
    return max(1, count(group.num_of_hosts, 1, f"{path}.numOfHosts"))


def replicas_of(group: WorkerGroup, path: str) -> int:
    """KubeRay's desired replicas: clamp(replicas, or min when absent, between min and max); 0 when suspended.

    Where the min is above the max, the max wins (KubeRay 1.4); later versions refuse such a cluster.
    """
    if group.suspend:
        return 0
    low = count(group.min_replicas, 0, f"{path}.minReplicas")
    high = count(group.max_replicas, 2**31 - 1, f"{path}.maxReplicas")
    return min(max(count(group.replicas, low, f"{path}.replicas"), low), high)


# --- where the head is served -----------------------------------------------------------------------------------------


PORTS = {"gcs-server": 6379, "dashboard": 8265}
"""{port: default number}"""
TRUE = ("1", "true")
MOST_PORT = 65_535


def served_at(cluster: str, spec: RayClusterSpec, head: object, endpoints: object) -> HeadService | None:
    """``cluster``: name of the cluster; ``head`` and ``endpoints``: from the status, of any shape.

    None: the usual address.
    """
    written = head if isinstance(head, dict) else {}
    name = written.get("serviceName")
    own = isinstance(name, str) and name not in ("", f"{cluster}-head-svc")
    headless = written.get("serviceIP", "") == written.get("podIP", "")
    ports = {**_container_ports(spec), **(_ports(endpoints) if headless else {})}
    params = spec.head_group_spec.ray_start_params or {}
    service = HeadService(
        name=str(name)[:253] if own else "",
        gcs=ports.get("gcs-server", PORTS["gcs-server"]),
        dashboard=0 if _is(params.get("include-dashboard"), "false") else ports.get("dashboard", PORTS["dashboard"]),
        tls=_tls(spec),
    )
    return service if service != HeadService() else None


def _ports(endpoints: object) -> dict[str, int]:
    return {name: port for name in PORTS if (port := _port(endpoints, name))} if isinstance(endpoints, dict) else {}


def _port(endpoints: Mapping[object, object], name: str) -> int:
    text = str(endpoints.get(name, ""))[:6]
    return int(text) if text.isascii() and text.isdigit() and int(text) <= MOST_PORT else 0


def _container_ports(spec: RayClusterSpec) -> dict[str, int]:
    containers = spec.head_group_spec.template.spec.containers
    ports = (containers[0].ports if containers else None) or ()
    return {
        port.name: port.container_port for port in ports if port.name in PORTS and 0 < port.container_port <= MOST_PORT
    }


def _tls(spec: RayClusterSpec) -> bool:
    """Whether the gRPC of the head uses TLS: by the environment of the head, or by KubeRay's own option."""
    if isinstance(spec.tls_options, dict) and spec.tls_options.get("enabled") is True:
        return True
    return head_env_is_true(spec, "RAY_USE_TLS")


def head_env_is_true(spec: RayClusterSpec, name: str) -> bool:
    """Whether the first container of the head sets this variable to ``1`` or ``true``."""
    containers = spec.head_group_spec.template.spec.containers
    env = containers[0].env if containers else None
    entries = [entry for entry in env if isinstance(entry, dict)] if isinstance(env, list) else []
    return any(entry.get("name") == name and _is(entry.get("value"), *TRUE) for entry in entries)


def _is(value: object, *words: str) -> bool:
    return str(value).strip().lower() in words
