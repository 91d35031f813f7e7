"""RayCluster (ray.io/v1): suspended by ``spec.suspend``; the RayCluster owns its pods and runs until its deletion.

Ray's autoscaler may stop a cluster too, by ``spec.idleSuspend``: the charge is free then, and the cluster is not queued
until its owner unsets the field. The RayCluster of a RayJob or a RayService is no workload but the child of the RayJob
or RayService.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.meta import Condition, Meta, UnreadableError, decode, is_true
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    child,
    foreign_manager,
    has_no_spec,
    workload,
)
from muster.core.workloads.ownership import belongs
from muster.core.workloads.ray import GROUP, OPERATOR, RayClusterSpec, add_cluster, served_at
from muster.core.workloads.rayscaling import as_admitted, elastic_of
from muster.model.elastic import Elastic
from muster.model.problem import problem
from muster.model.workload import ChildState, Phase, Workload

KIND = "RayCluster"
IDLE = problem("spec.idleSuspend", "idle_suspended")


class RayClusterStatus(Struct, frozen=True):
    head: object = None
    endpoints: object = None
    state: str | None = None
    conditions: tuple[Condition, ...] | None = None


class RayCluster(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "ray.io/v1"
    spec: RayClusterSpec | None = None
    status: RayClusterStatus | None = None


class _Owned(Struct, frozen=True):
    metadata: Meta


def read(raw: bytes) -> Workload | ChildState:
    """A RayCluster by itself, or as the child of the RayJob or RayService in its owner reference.

    The request of a child counts.
    """
    meta: Meta = decode(raw, _Owned).metadata
    if belongs(meta.controller, GROUP, "RayJob", "RayService"):
        return _child(raw, meta)
    return alone(raw)


def alone(raw: bytes) -> Workload:
    """A RayCluster by itself, whatever controller the RayCluster names."""
    cluster: RayCluster = decode(raw, RayCluster)
    if cluster.spec is None:
        raise has_no_spec()
    check_version(cluster.api_version, GROUP)
    needs, suspended = Needs(), cluster.spec.rests
    spec = as_admitted(cluster.spec, cluster.metadata, "spec") if suspended else cluster.spec
    add_cluster(needs, spec, "spec", meta=cluster.metadata)
    refusal = foreign_manager("spec.managedBy", spec.managed_by, OPERATOR)
    refusal = refusal or (IDLE if cluster.spec.idle_suspend else None)
    life = _life(suspended, cluster.status or RayClusterStatus())
    elastic = _elastic(cluster, spec)
    return workload(KIND, cluster.api_version, cluster.metadata, life, needs, refusal=refusal, elastic=elastic)


def _child(raw: bytes, meta: Meta) -> ChildState:
    """The request of a child's pods, and the scaling of the child; an unreadable RayCluster still is the child."""
    try:
        cluster: RayCluster = decode(raw, RayCluster)
        spec, needs = cluster.spec, Needs()
        if spec is None or spec.rests:
            return child(KIND, meta, rests=spec is not None)
        add_cluster(needs, spec, "spec", meta=cluster.metadata)
        full = needs.totals()["full"]
        elastic = _elastic(cluster, spec)
    except UnreadableError:
        return child(KIND, meta)
    return child(KIND, meta, asks=needs.runs or full, elastic=elastic)


def _elastic(cluster: RayCluster, spec: RayClusterSpec) -> Elastic | None:
    """How the cluster scales itself, and the address of the head."""
    elastic, status = elastic_of(spec, cluster.metadata, "spec"), cluster.status or RayClusterStatus()
    served = served_at(cluster.metadata.name, spec, status.head, status.endpoints) if elastic is not None else None
    return replace(elastic, served=served) if elastic is not None and served is not None else elastic


def _life(suspended: bool, status: RayClusterStatus) -> Life:
    """The phase, from the conditions; KubeRay before 1.3 writes no conditions.

    ``state`` is unreliable: ``ready`` stays while the cluster is being suspended, ``suspended`` stays during a new
    start, and the field is empty until the cluster was ready once.
    """
    word = status.state or ""
    conditions = status.conditions
    at_rest = is_true(conditions, "RayClusterSuspended") if conditions else suspended and word == "suspended"
    phase: Phase = "running" if word == "ready" else "starting"
    if suspended:
        going = not at_rest and (word != "" or is_true(status.conditions, "RayClusterSuspending"))
        phase = "suspending" if going else "waiting"
    return Life(phase=phase, suspended=suspended, detail=word, settled=at_rest)
