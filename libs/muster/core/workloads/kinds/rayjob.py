"""RayJob (ray.io/v1): suspended by ``spec.suspend``; runs through one RayCluster that KubeRay makes.

Suspending deletes the RayCluster and forgets it: resuming is a full rerun. KubeRay suspends only what it may shut
down and only in Initializing and Running; a suspended RayJob passes New, Initializing, Suspending, Suspended.
"""

from __future__ import annotations

import re

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.labels import KEPT
from muster.core.objects.meta import (
    DEQUEUE_STAMPS,
    DEQUEUED_AT,
    ENQUEUE_STAMPS,
    INTENT,
    MAX_NAME,
    QUEUED_AT,
    Meta,
    UnreadableError,
    decode,
    first_stamp,
    wishes,
)
from muster.core.objects.podspec import (
    PodTemplate,
    Resources,
    check_total,
    container_request,
    pod_request,
    pod_rules,
)
from muster.model.placing import ANYWHERE, PodRules
from muster.model.resources import Vector, add_into, highest, scaled
from muster.model.workload import Outcome, Phase, PodSet, Workload

KIND = "RayJob"
SUSPENDABLE = ("", "New", "Initializing", "Running")
"""jobDeploymentStatus in which KubeRay acts on ``spec.suspend: true``."""
MAX_PODS = 1_000_000
_API_VERSION = re.compile(r"ray\.io/v[0-9][a-z0-9]{0,30}")

SIDECAR: Vector = {"cpu": 500, "memory": 512 * 2**20}
"""The autoscaler container KubeRay adds to the head: 500m, 512Mi unless autoscalerOptions.resources replaces it."""
SUBMITTER: Vector = {"cpu": 500, "memory": 200 * 2**20}
"""KubeRay's submitter container: 500m, 200Mi."""
WAIT_FOR_HEAD: Vector = {"cpu": 200, "memory": 256 * 2**20}
"""The init container KubeRay adds to every worker: matters only for workers smaller than it."""
REDIS_CLEANUP: Vector = {"cpu": 200, "memory": 256 * 2**20}
"""The clean-up job after a cluster with GCS fault tolerance: runs after the head, so only the larger counts."""


class HeadGroup(Struct, frozen=True):
    template: PodTemplate = field(default_factory=PodTemplate)


class WorkerGroup(Struct, frozen=True, rename="camel"):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class AutoscalerOptions(Struct, frozen=True):
    resources: Resources | None = None


class RayClusterSpec(Struct, frozen=True, rename="camel"):
    head_group_spec: HeadGroup = field(default_factory=HeadGroup)
    worker_group_specs: tuple[WorkerGroup, ...] | None = None
    enable_in_tree_autoscaling: bool | None = None
    autoscaler_options: AutoscalerOptions | None = None
    gcs_fault_tolerance_options: dict[str, object] | None = None


class RayJobSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    shutdown_after_job_finishes: bool | None = None
    submission_mode: str | None = None
    cluster_selector: dict[str, str] | None = None
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: PodTemplate | None = None


class RayJobStatus(Struct, frozen=True, rename="camel"):
    job_deployment_status: str | None = None
    job_status: str | None = None
    ray_cluster_name: str | None = None


class RayJob(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "ray.io/v1"
    spec: RayJobSpec | None = None
    status: RayJobStatus | None = None


def read(raw: bytes) -> Workload:
    """The workload a RayJob is. Raises UnreadableError naming the field that makes it unusable."""
    job: RayJob = decode(raw, RayJob)
    meta, status, spec = job.metadata, job.status or RayJobStatus(), job.spec
    if spec is None:
        raise UnreadableError("spec: is missing, so nothing says what to run")
    if not _API_VERSION.fullmatch(job.api_version):
        raise UnreadableError(f"apiVersion: {job.api_version[:64]!r} is not a version of ray.io")
    word = status.job_deployment_status or ""
    suspended = bool(spec.suspend)
    phase, outcome = _standing(word, status.job_status or "", suspended)
    cluster = spec.ray_cluster_spec
    pod_sets: tuple[PodSet, ...] = ()
    beside: tuple[PodSet, ...] = ()
    need: dict[str, Vector] = {"ack": {}, "full": {}}
    if cluster is not None:
        pod_sets, beside, need = _needs(spec, cluster)
    head = cluster.head_group_spec.template.spec if cluster is not None else None
    return Workload(
        ref=meta.ref(KIND),
        api_version=job.api_version,
        rv=meta.rv,
        generation=meta.generation,
        created=meta.created,
        phase=phase,
        suspended=suspended,
        need=need,
        pod_sets=pod_sets,
        beside=beside,
        priority_class=(head.priority_class_name or "")[:MAX_NAME] if head else "",
        priority=head.priority if head else None,
        outcome=outcome,
        detail=word[:64],
        settled=word == "Suspended",
        child=(status.ray_cluster_name or "")[:253],
        deleting=bool(meta.deletion_timestamp),
        busy=phase in ("starting", "running") and word not in SUSPENDABLE,
        wishes=wishes(meta.annotations),
        refusal=_refusal(spec),
        labels={key: meta.labels[key] for key in KEPT if key in meta.labels},
        annotated=bool(meta.annotations),
        intent=meta.annotations.get(INTENT, "")[:64],
        queued_at=first_stamp(meta.annotations, QUEUED_AT, *ENQUEUE_STAMPS),
        dequeued_at=first_stamp(meta.annotations, DEQUEUED_AT, *DEQUEUE_STAMPS),
    )


def _standing(word: str, job_status: str, suspended: bool) -> tuple[Phase, Outcome]:
    """KubeRay's jobDeploymentStatus and what the spec asks for, in the words all kinds share."""
    if word == "Complete":
        return "finished", "succeeded" if job_status in ("SUCCEEDED", "") else "failed"
    if word == "Failed":
        return "finished", "failed"
    if word == "ValidationFailed":
        return "finished", "invalid"
    if suspended:
        return ("waiting" if word in ("", "New", "Suspended") else "suspending"), ""
    return ("running" if word in ("Running", "Waiting") else "starting"), ""


def _refusal(spec: RayJobSpec) -> str:
    """Why KubeRay could never suspend it again, naming the field; empty when it could."""
    if spec.cluster_selector:
        return (
            "spec.clusterSelector: KubeRay cannot suspend a RayJob that uses an existing cluster; "
            "describe the cluster in spec.rayClusterSpec instead"
        )
    if spec.ray_cluster_spec is None:
        return "spec.rayClusterSpec is missing: without it there is nothing to queue; add it"
    if not spec.shutdown_after_job_finishes:
        return (
            "spec.shutdownAfterJobFinishes must be true: KubeRay suspends only RayJobs whose cluster it may "
            "shut down; set it to true"
        )
    return ""


def _needs(
    spec: RayJobSpec, cluster: RayClusterSpec
) -> tuple[tuple[PodSet, ...], tuple[PodSet, ...], dict[str, Vector]]:
    """The pod sets, the pods beside them, and the whole request by profile.

    ``ack``: head + sum(replicas x worker), as kube-queue counts. ``full``: every container KubeRay will run.
    """
    at = "spec.rayClusterSpec"
    head_template = cluster.head_group_spec.template
    head_spec = head_template.spec
    head_path = f"{at}.headGroupSpec.template.spec"
    head = pod_request(head_spec, head_path)
    whole_head = pod_request(head_spec, head_path, extra=_beside_head(spec, cluster))
    ack, full = dict(head), dict(whole_head)
    if cluster.gcs_fault_tolerance_options is not None:
        full = highest(full, REDIS_CLEANUP)
    rules = _rules(head_template, "headgroup", "head")
    sets = [PodSet("head", 1, head, rules, takes=whole_head if whole_head != head else None)]
    beside: tuple[PodSet, ...] = ()
    for index, group in enumerate(cluster.worker_group_specs or ()):
        path = f"{at}.workerGroupSpecs[{index}]"
        replicas, hosts = _replicas(group, path), _count(group.num_of_hosts, 1, f"{path}.numOfHosts")
        pods = replicas * max(1, hosts)
        if pods > MAX_PODS:
            raise UnreadableError(f"{path}: {pods} pods are more than the {MAX_PODS} one group may have")
        one = pod_request(group.template.spec, f"{path}.template.spec")
        add_into(ack, scaled(one, replicas))
        whole = dict(sorted(highest(one, WAIT_FOR_HEAD).items()))
        add_into(full, scaled(whole, pods))
        name = (group.group_name or f"group-{index}").lower()[:253]
        rules = _rules(group.template, group.group_name, "worker")
        sets.append(PodSet(name, pods, one, rules, takes=whole if whole != one else None))
    if (spec.submission_mode or "K8sJobMode") == "K8sJobMode" and not spec.cluster_selector:
        template = spec.submitter_pod_template
        own = pod_request(template.spec, "spec.submitterPodTemplate.spec") if template is not None else {}
        add_into(full, own or SUBMITTER)
        where = pod_rules(template.spec, template.labels) if template is not None else ANYWHERE
        beside = (PodSet("submitter", 1, own or SUBMITTER, where),)
    for vector in (ack, full):
        check_total(vector, at)
    return tuple(sets), beside, {"ack": dict(sorted(ack.items())), "full": dict(sorted(full.items()))}


def _rules(template: PodTemplate, group: str, node_type: str) -> PodRules:
    """Where pods of a group may run; with the labels KubeRay gives them where labels matter."""
    labels = template.labels
    rules = pod_rules(template.spec, labels)
    if not labels and rules == ANYWHERE:
        return rules
    known = {"ray.io/group": group[:63], "ray.io/is-ray-node": "yes", "ray.io/node-type": node_type}
    labels = dict(sorted((labels | known).items()))
    return replace(pod_rules(template.spec, labels), labels=labels)


def _beside_head(spec: RayJobSpec, cluster: RayClusterSpec) -> Vector:
    """Containers KubeRay adds to the head pod."""
    beside: Vector = {}
    if cluster.enable_in_tree_autoscaling:
        options = cluster.autoscaler_options
        own = options.resources if options is not None else None
        path = "spec.rayClusterSpec.autoscalerOptions"
        add_into(beside, SIDECAR if own is None else container_request(own, path))
    if spec.submission_mode == "SidecarMode":
        add_into(beside, SUBMITTER)
    return beside


def _replicas(group: WorkerGroup, path: str) -> int:
    """KubeRay's desired replicas: clamp(replicas, or min when absent, between min and max); 0 when suspended."""
    if group.suspend:
        return 0
    low = _count(group.min_replicas, 0, f"{path}.minReplicas")
    high = _count(group.max_replicas, 2**31 - 1, f"{path}.maxReplicas")
    return min(max(_count(group.replicas, low, f"{path}.replicas"), low), max(low, high))


def _count(value: int | None, default: int, path: str) -> int:
    if value is None:
        return default
    if not 0 <= value < 2**31:
        raise UnreadableError(f"{path}: {str(value)[:24]} is not a count")
    return value
