"""The pods of RayJobs, RayClusters and RayServices, and why KubeRay could not run or suspend them.

KubeRay suspends only a RayJob with ``shutdownAfterJobFinishes``, which ``deletionRules`` exclude: suspending deletes
the RayCluster, and resuming is a full rerun. Ray's autoscaler may stop a RayCluster too, by ``spec.idleSuspend``: the
charge is free then, and the RayCluster is not queued until its owner unsets the field. For a changed
``spec.rayClusterConfig`` of a RayService KubeRay makes a second RayCluster, moves the traffic once the second one
serves, and deletes the first a minute later: both are charged.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.meta import KAI_QUEUE, Meta
from muster.core.objects.podspec import PodTemplate, pod_request, pod_rules
from muster.core.workloads.common import Needs, foreign_manager
from muster.core.workloads.defined import ObjectView, Parts, Special
from muster.core.workloads.ray import OPERATOR, RayClusterSpec, add_cluster, head_env_is_true, served_at
from muster.core.workloads.rayscaling import as_admitted, elastic_of
from muster.model.placing import ANYWHERE
from muster.model.problem import FieldProblem, problem
from muster.model.resources import Vector, add_into, beyond
from muster.model.workload import PodSet

K8S_JOB = "K8sJobMode"
"""spec.submissionMode by default."""
SUBMITTER: Vector = {"cpu": 500, "memory": 200 * 2**20}
"""KubeRay's submitter container: 500m, 200Mi."""
IDLE = problem("spec.idleSuspend", "idle_suspended")
_SELECTS = problem("spec.clusterSelector", "uses_existing_cluster")
OF_JOB, OF_SERVICE = "spec.rayClusterSpec", "spec.rayClusterConfig"


class DeletionStrategy(Struct, frozen=True, rename="camel"):
    deletion_rules: object = None


class RayJobSpec(Struct, frozen=True, rename="camel"):
    shutdown_after_job_finishes: bool | None = None
    submission_mode: str | None = None
    cluster_selector: dict[str, str] | None = None
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: PodTemplate | None = None
    entrypoint: object = None
    deletion_strategy: DeletionStrategy | None = None


def _job(view: ObjectView, meta: Meta, needs: Needs, suspended: bool) -> Parts:
    """Head, workers, and the owner's additions to the submitter; in ``full`` every pod of the submission too.

    With a ``clusterSelector`` only the submitter.
    """
    spec: RayJobSpec = view.get("spec")
    cluster, mode = spec.ray_cluster_spec, spec.submission_mode or K8S_JOB
    if spec.cluster_selector:
        return _on_a_cluster(spec, mode, needs)
    if cluster is None:
        return Parts(problem(OF_JOB, "ray_cluster_missing"))
    cluster = as_admitted(cluster, meta, OF_JOB) if suspended else cluster
    elastic = elastic_of(cluster, meta, OF_JOB)
    add_cluster(needs, cluster, OF_JOB, meta=meta, beside_head=SUBMITTER if mode == "SidecarMode" else None)
    needs.program = needs.program.running(spec.entrypoint)
    if mode == K8S_JOB:
        template = spec.submitter_pod_template
        own = pod_request(template.spec, "spec.submitterPodTemplate.spec") if template is not None else {}
        add_into(needs.full, own or SUBMITTER)
        add_into(needs.ack, beyond(own, SUBMITTER))
        if template is not None and template.spec.containers:
            needs.steering.add(template, "spec.submitterPodTemplate")
        where = pod_rules(template.spec, template.labels) if template is not None else ANYWHERE
        needs.auxiliary.append(PodSet("submitter", 1, own or SUBMITTER, where))
    kai = bool(needs.labels(meta).get(KAI_QUEUE))
    return Parts(_refusal(spec, mode, kai) or _never_runs(cluster, OF_JOB), elastic)


def _on_a_cluster(spec: RayJobSpec, mode: str, needs: Needs) -> Parts:
    """A RayJob on a cluster of others has one pod of its own, which runs what its owner says and counts in full."""
    if mode == K8S_JOB:
        template = spec.submitter_pod_template or PodTemplate()
        own = pod_request(template.spec, "spec.submitterPodTemplate.spec")
        at = "spec.submitterPodTemplate"
        needs.add("submitter", 1, template, at, template_at=at, request=own or SUBMITTER, steer=False)
    return Parts(_SELECTS, owns=False)


def _refusal(spec: RayJobSpec, mode: str, kai: bool) -> FieldProblem | None:
    """Why KubeRay could never suspend the RayJob again, or KubeRay with KAI Scheduler never starts the RayJob."""
    if spec.deletion_strategy is not None and spec.deletion_strategy.deletion_rules is not None:
        return problem("spec.deletionStrategy.deletionRules", "has_deletion_rules")
    if not spec.shutdown_after_job_finishes:
        return problem("spec.shutdownAfterJobFinishes", "keeps_its_cluster")
    return problem("spec.submissionMode", "submitter_in_kai_queue") if kai and mode == K8S_JOB else None


def _never_runs(cluster: RayClusterSpec, at: str) -> FieldProblem | None:
    """Why KubeRay would make no pods of the cluster that a RayJob or RayService describes."""
    for name, rests in (("suspend", cluster.suspend), ("idleSuspend", cluster.idle_suspend)):
        if rests:
            return problem(f"{at}.{name}", "suspends_its_cluster")
    strategy = cluster.upgrade_strategy
    if isinstance(strategy, dict) and strategy.get("type") is not None:
        return problem(f"{at}.upgradeStrategy", "upgrade_of_an_owned_cluster")
    return foreign_manager(f"{at}.managedBy", cluster.managed_by, OPERATOR) or _invalid(cluster, at)


def _invalid(cluster: RayClusterSpec, at: str) -> FieldProblem | None:
    """Why KubeRay leaves a cluster alone, in every version that has the field. Source: KubeRay's validation.go.

    Fields that exclude each other, of those that Muster reads; the rest shows when no pod comes.
    """
    options = cluster.autoscaler_options
    v2 = (options is not None and options.version == "v2") or head_env_is_true(cluster, "RAY_enable_autoscaler_v2")
    head, groups = cluster.head_group_spec, cluster.worker_group_specs or ()
    sized = [(f"{at}.headGroupSpec", head.ray_start_params, head.resources)]
    sized += [
        (f"{at}.workerGroupSpecs[{n}]", group.ray_start_params, group.resources) for n, group in enumerate(groups)
    ]
    for path, params, resources in sized:
        if resources and any((params or {}).get(name) for name in ("num-cpus", "num-gpus", "memory", "resources")):
            return problem(f"{path}.resources", "sizes_given_twice")
    for index, group in enumerate(groups):
        path = f"{at}.workerGroupSpecs[{index}]"
        for name, value in (("idleTimeoutSeconds", group.idle_timeout_seconds), ("priority", group.priority or None)):
            if value is not None and not v2:
                return problem(f"{path}.{name}", "needs_autoscaler_v2")
        if group.suspend and cluster.enable_in_tree_autoscaling:
            return problem(f"{path}.suspend", "suspended_beside_autoscaler")
    return None


def _cluster(view: ObjectView, meta: Meta, needs: Needs, suspended: bool) -> Parts:
    """The pods of a RayCluster, how the RayCluster scales itself, and the address of the head."""
    cluster: RayClusterSpec = view.get("spec")
    spec = as_admitted(cluster, meta, "spec") if suspended else cluster
    add_cluster(needs, spec, "spec", meta=meta)
    elastic = elastic_of(spec, meta, "spec")
    if elastic is not None:
        served = served_at(meta.name, spec, view.get("status.head"), view.get("status.endpoints"))
        elastic = replace(elastic, served=served) if served is not None else elastic
    return Parts(IDLE if cluster.idle_suspend else _invalid(cluster, "spec") if suspended else None, elastic)


def _service(view: ObjectView, meta: Meta, needs: Needs, suspended: bool) -> Parts:
    cluster: RayClusterSpec | None = view.get(OF_SERVICE)
    if cluster is None:
        return Parts(problem(OF_SERVICE, "ray_cluster_missing"))
    cluster = as_admitted(cluster, meta, OF_SERVICE) if suspended else cluster
    add_cluster(needs, cluster, OF_SERVICE, meta=meta)
    return Parts(_never_runs(cluster, OF_SERVICE), elastic_of(cluster, meta, OF_SERVICE))


JOB = Special(_job, {"spec": RayJobSpec}, OF_JOB)
CLUSTER = Special(_cluster, {"spec": RayClusterSpec, "status.head": object, "status.endpoints": object})
SERVICE = Special(_service, {OF_SERVICE: RayClusterSpec}, OF_SERVICE)
