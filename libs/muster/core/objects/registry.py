"""One row per resource the watcher reads: how an object becomes a fact, and which fact says that it is gone."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from muster.core.objects.cluster import read_node, read_pod, read_priority_class, read_raycluster
from muster.core.objects.kubequeue import CREATED_BY, QUEUE_NAMESPACE, read_queue, read_queue_unit
from muster.core.objects.quotatree import NAMESPACE as TREE_NAMESPACE
from muster.core.objects.quotatree import read_quota_tree
from muster.core.workloads import registry as workloads
from muster.events.base import Event
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeGone,
    NodeObserved,
    ObjectGone,
    PodGone,
    PodObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    QueueUnitGone,
    QueueUnitObserved,
    QuotaTreeGone,
    QuotaTreeObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model import api
from muster.model.api import ApiResource


class Watched(Struct, frozen=True):
    """How one resource is read.

    ``read`` makes an ``observed`` fact of an object; it raises UnreadableError for one that cannot be used.
    ``gone`` is built with (ref, rv).
    """

    resource: ApiResource
    read: Callable[[bytes], Event]
    observed: type[Event]
    gone: type[ObjectGone]
    namespace: str = ""
    label_selector: str = ""

    @property
    def shard(self) -> str:
        """The watcher shard that reads it: the plural of the resource."""
        return self.resource.plural


def _workload_reader(kind: str) -> Callable[[bytes], Event]:
    read = workloads.KINDS[kind].read

    def observed(raw: bytes) -> Event:
        return WorkloadObserved(workload=read(raw))

    return observed


def _watched() -> dict[str, Watched]:
    rows: list[Watched] = [
        Watched(api.QUOTA_TREES, read_quota_tree, QuotaTreeObserved, QuotaTreeGone, namespace=TREE_NAMESPACE),
        Watched(api.PRIORITY_CLASSES, read_priority_class, PriorityClassObserved, PriorityClassGone),
        Watched(api.NODES, read_node, NodeObserved, NodeGone),
        Watched(api.RAYCLUSTERS, read_raycluster, ChildObserved, ChildGone),
        Watched(api.PODS, read_pod, PodObserved, PodGone, label_selector="ray.io/is-ray-node=yes"),
        Watched(
            api.QUEUES,
            read_queue,
            QueueObserved,
            QueueGone,
            namespace=QUEUE_NAMESPACE,
            label_selector=f"{CREATED_BY}=true",
        ),
        Watched(api.QUEUE_UNITS, read_queue_unit, QueueUnitObserved, QueueUnitGone),
    ]
    rows += [
        Watched(kind.resource, _workload_reader(name), WorkloadObserved, WorkloadGone)
        for name, kind in workloads.KINDS.items()
    ]
    return {row.shard: row for row in rows}


WATCHED: dict[str, Watched] = _watched()
"""{shard name: row}"""
