"""RayJob (ray.io/v1): suspended by ``spec.suspend``; runs through one RayCluster made by KubeRay.

Suspending deletes the RayCluster and forgets its state: resuming is a full rerun. KubeRay suspends only a RayJob with
``shutdownAfterJobFinishes``, and only in Initializing and Running; a suspended RayJob passes New, Initializing,
Suspending, Suspended.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from muster.core.objects.meta import KAI_QUEUE, Meta, decode
from muster.core.objects.podspec import PodTemplate, pod_request, pod_rules
from muster.core.workloads.common import Life, Needs, check_version, has_no_spec, workload
from muster.core.workloads.ray import GROUP, RayClusterSpec, add_cluster, beyond
from muster.core.workloads.rayscaling import as_admitted, elastic_of
from muster.model.placing import ANYWHERE
from muster.model.problem import FieldProblem, problem
from muster.model.resources import Vector, add_into
from muster.model.workload import Outcome, Phase, PodSet, Workload

KIND = "RayJob"
K8S_JOB = "K8sJobMode"
"""spec.submissionMode by default."""
SUSPENDABLE = ("", "New", "Initializing", "Running")
"""jobDeploymentStatus in which KubeRay acts on ``spec.suspend: true``."""

SUBMITTER: Vector = {"cpu": 500, "memory": 200 * 2**20}
"""KubeRay's submitter container: 500m, 200Mi."""


class RayJobSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    shutdown_after_job_finishes: bool | None = None
    submission_mode: str | None = None
    cluster_selector: dict[str, str] | None = None
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: PodTemplate | None = None
    entrypoint: object = None


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
    """The workload of a RayJob. Raises UnreadableError naming the unusable field."""
    job: RayJob = decode(raw, RayJob)
    status, spec = job.status or RayJobStatus(), job.spec
    if spec is None:
        raise has_no_spec()
    check_version(job.api_version, GROUP)
    if spec.ray_cluster_spec is not None and spec.suspend:
        spec = structs.replace(
            spec, ray_cluster_spec=as_admitted(spec.ray_cluster_spec, job.metadata, "spec.rayClusterSpec")
        )
    cluster = spec.ray_cluster_spec
    elastic = elastic_of(cluster, job.metadata, "spec.rayClusterSpec") if cluster is not None else None
    life, needs = _life(spec, status), _needs(spec, job.metadata)
    refusal = _refusal(spec) or _kai_refusal(spec, needs.labels(job.metadata))
    return workload(KIND, job.api_version, job.metadata, life, needs, refusal=refusal, elastic=elastic)


def _life(spec: RayJobSpec, status: RayJobStatus) -> Life:
    word, suspended = status.job_deployment_status or "", bool(spec.suspend)
    phase, outcome = _standing(word, status.job_status or "", suspended)
    return Life(
        phase=phase,
        suspended=suspended,
        outcome=outcome,
        detail=word,
        settled=word == "Suspended",
        busy=phase in ("starting", "running") and word not in SUSPENDABLE,
        child=status.ray_cluster_name or "",
    )


def _standing(word: str, job_status: str, suspended: bool) -> tuple[Phase, Outcome]:
    """KubeRay's jobDeploymentStatus and the request in the spec, in the words common to all kinds."""
    if word == "Complete":
        return "finished", "succeeded" if job_status in ("SUCCEEDED", "") else "failed"
    if word == "Failed":
        return "finished", "failed"
    if word == "ValidationFailed":
        return "finished", "invalid"
    if suspended:
        return ("waiting" if word in ("", "New", "Suspended") else "suspending"), ""
    return ("running" if word in ("Running", "Waiting") else "starting"), ""


def _refusal(spec: RayJobSpec) -> FieldProblem | None:
    """Why KubeRay could never suspend the RayJob again; None when KubeRay could."""
    if spec.cluster_selector:
        return problem("spec.clusterSelector", "uses_existing_cluster")
    if spec.ray_cluster_spec is None:
        return problem("spec.rayClusterSpec", "ray_cluster_missing")
    if not spec.shutdown_after_job_finishes:
        return problem("spec.shutdownAfterJobFinishes", "keeps_its_cluster")
    return None


def _kai_refusal(spec: RayJobSpec, labels: Mapping[str, str]) -> FieldProblem | None:
    """Why KubeRay with KAI Scheduler never starts this RayJob in a KAI queue; None when KubeRay starts the RayJob."""
    if not labels.get(KAI_QUEUE) or (spec.submission_mode or K8S_JOB) != K8S_JOB:
        return None
    return problem("spec.submissionMode", "submitter_in_kai_queue")


def _needs(spec: RayJobSpec, meta: Meta) -> Needs:
    """Head, workers, and the owner's additions to the submitter; in ``full`` every pod of the submission too."""
    needs, cluster = Needs("spec.rayClusterSpec"), spec.ray_cluster_spec
    if cluster is None:
        return needs
    mode = spec.submission_mode or K8S_JOB
    beside = SUBMITTER if mode == "SidecarMode" else None
    add_cluster(needs, cluster, "spec.rayClusterSpec", meta=meta, beside_head=beside)
    needs.program = needs.program.running(spec.entrypoint)
    if mode == K8S_JOB and not spec.cluster_selector:
        template = spec.submitter_pod_template
        own = pod_request(template.spec, "spec.submitterPodTemplate.spec") if template is not None else {}
        add_into(needs.full, own or SUBMITTER)
        add_into(needs.ack, beyond(own, SUBMITTER))
        if template is not None and template.spec.containers:
            needs.steering.add(template, "spec.submitterPodTemplate")
        where = pod_rules(template.spec, template.labels) if template is not None else ANYWHERE
        needs.auxiliary.append(PodSet("submitter", 1, own or SUBMITTER, where))
    return needs
