"""RayService (ray.io/v1): suspended by ``spec.suspend``; serves through one RayCluster, or two in an upgrade.

For a changed ``spec.rayClusterConfig`` KubeRay makes a second RayCluster, moves the traffic when the second one serves,
and deletes the first a minute later: both are charged. Suspending deletes every RayCluster, whatever the spec says
meanwhile; resuming makes a new RayCluster. A RayService runs until its deletion. ``spec.suspend`` exists from KubeRay
1.7 on: where the API server drops the field, the policies of ``deploy`` refuse the object.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Condition, Meta, decode, is_true
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    foreign_manager,
    has_no_spec,
    workload,
)
from muster.core.workloads.ray import GROUP, OPERATOR, RayClusterSpec, add_cluster
from muster.core.workloads.rayscaling import as_admitted, elastic_of
from muster.model.problem import FieldProblem, problem
from muster.model.workload import Phase, Workload

KIND = "RayService"
AT = "spec.rayClusterConfig"
READY, SUSPENDING, SUSPENDED, UPGRADING = "Ready", "Suspending", "Suspended", "UpgradeInProgress"
"""Conditions that KubeRay sets on a RayService."""


class RayServiceSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    managed_by: str | None = None
    ray_cluster_config: RayClusterSpec | None = None


class OneCluster(Struct, frozen=True, rename="camel"):
    ray_cluster_name: str | None = None


class RayServiceStatus(Struct, frozen=True, rename="camel"):
    active_service_status: OneCluster = field(default_factory=OneCluster)
    pending_service_status: OneCluster = field(default_factory=OneCluster)
    conditions: tuple[Condition, ...] | None = None


class RayService(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "ray.io/v1"
    spec: RayServiceSpec | None = None
    status: RayServiceStatus | None = None


def read(raw: bytes) -> Workload:
    """The workload of a RayService. Raises UnreadableError naming the unusable field."""
    service: RayService = decode(raw, RayService)
    spec, status = service.spec, service.status or RayServiceStatus()
    if spec is None:
        raise has_no_spec()
    check_version(service.api_version, GROUP)
    needs, cluster = Needs(AT), spec.ray_cluster_config
    if cluster is not None and spec.suspend:
        cluster = as_admitted(cluster, service.metadata, AT)
    if cluster is not None:
        add_cluster(needs, cluster, AT, meta=service.metadata)
    return workload(
        KIND,
        service.api_version,
        service.metadata,
        _life(bool(spec.suspend), status),
        needs,
        refusal=_refusal(spec),
        elastic=elastic_of(cluster, service.metadata, AT) if cluster is not None else None,
    )


def _life(suspended: bool, status: RayServiceStatus) -> Life:
    """The phase and the RayClusters in the status: the newer one is the child, the older one is on its way out."""
    serving = status.active_service_status.ray_cluster_name or ""
    coming = status.pending_service_status.ray_cluster_name or ""
    at_rest = is_true(status.conditions, SUSPENDED) and not (serving or coming)
    stops = is_true(status.conditions, SUSPENDING)
    phase: Phase = "running" if is_true(status.conditions, READY) and not stops else "starting"
    if suspended:
        phase = "suspending" if stops or ((serving or coming) and not at_rest) else "waiting"
    conditions = (
        condition for condition in (SUSPENDED, SUSPENDING, UPGRADING, READY) if is_true(status.conditions, condition)
    )
    return Life(
        phase=phase,
        suspended=suspended,
        detail=next(conditions, ""),
        settled=at_rest,
        child=coming or serving,
        outgoing=serving if coming else "",
    )


def _refusal(spec: RayServiceSpec) -> FieldProblem | None:
    """Why KubeRay would not suspend or run the RayService; None when KubeRay would."""
    if spec.ray_cluster_config is None:
        return problem(AT, "ray_cluster_missing")
    if spec.ray_cluster_config.suspend:
        return problem(f"{AT}.suspend", "suspends_its_cluster")
    return foreign_manager("spec.managedBy", spec.managed_by, OPERATOR)
