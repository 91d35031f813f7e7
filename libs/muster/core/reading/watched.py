"""One row per resource read by the watcher: the reader of an object, and the fact of the object's end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from muster.core.objects.kaiqueue import read_kai_queue
from muster.core.objects.meta import unreadable
from muster.core.objects.nodepools import NAME as POOLS_NAME
from muster.core.objects.nodepools import NAMESPACE as POOLS_NAMESPACE
from muster.core.objects.nodepools import REQUESTED, read_node_pools, read_nodes_request
from muster.core.reading.cluster import pod_group_reader, read_node, read_pod, read_priority_class
from muster.core.reading.kubequeue import CREATED_BY, QUEUE_NAMESPACE, read_queue, read_queue_unit
from muster.core.reading.quotatree import read_quota_tree
from muster.core.stage import SHOWN_KINDS
from muster.core.workloads import registry as workloads
from muster.core.workloads.definition import Definition
from muster.events.base import Event
from muster.events.facts import (
    ChildObserved,
    KaiQueueGone,
    KaiQueueObserved,
    NodeGone,
    NodeObserved,
    NodePoolsGone,
    NodePoolsObserved,
    NodesRequestGone,
    NodesRequestObserved,
    ObjectGone,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
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
from muster.model.workload import ChildState


class Watched(Struct, frozen=True):
    """The reader of one resource.

    ``read`` makes an ``observed`` fact of an object, or None for an object outside of muster's concern; raises
    UnreadableError for an unusable object. ``gone`` is built with (ref, rv).
    """

    resource: ApiResource
    read: Callable[[bytes], Event | None]
    observed: type[Event]
    gone: type[ObjectGone]
    namespace: str = ""
    label_selector: str = ""
    name: str = ""
    """The only object read; empty: all objects."""
    both: bool = False
    """The objects may also be children of other workloads."""
    alone: Callable[[bytes], Event] | None = None
    """Reads an object with a parent as an independent workload; None for objects that show their own role."""
    versions: tuple[ApiResource, ...] = ()
    """The resource in the understood versions, the preferred version first; empty: ``resource`` only."""
    ambiguous: bool = False
    """Another API group has a resource of the same name: shard and kind are qualified by the group."""

    @property
    def shard(self) -> str:
        """The watcher shard of the resource: the plural of the resource."""
        return qualified_shard(self.resource) if self.ambiguous else self.resource.plural

    @property
    def kind(self) -> str:
        """The kind of the objects in the log."""
        return qualified_kind(self.resource) if self.ambiguous else self.resource.kind


def qualified_shard(resource: ApiResource) -> str:
    """``podgroups_scheduling_x-k8s_io``: without dots, because dots separate the parts of a subject."""
    return f"{resource.plural}_{resource.group.replace('.', '_')}"


def qualified_kind(resource: ApiResource) -> str:
    """``PodGroup.scheduling.x-k8s.io``, as kubectl accepts."""
    return f"{resource.kind}.{resource.group}"


def _workload_reader(kind: str) -> Callable[[bytes], Event | None]:
    read = workloads.KINDS[kind].read

    def observed(raw: bytes) -> Event | None:
        fact = read(raw)
        if isinstance(fact, ChildState):
            return ChildObserved(child=fact)
        return WorkloadObserved(workload=fact) if fact is not None else None

    return observed


def _alone_reader(kind: workloads.Kind) -> Callable[[bytes], Event] | None:
    read = kind.alone
    return (lambda raw: WorkloadObserved(workload=read(raw))) if read is not None else None


def _kai_queue(raw: bytes) -> Event:
    return KaiQueueObserved(queue=read_kai_queue(raw))


KAI_QUEUES = qualified_shard(api.KAI_QUEUES)
NATIVE_POD_GROUP = api.NATIVE_POD_GROUPS[-1]
POD_GROUPS = tuple(qualified_shard(resource) for resource in (NATIVE_POD_GROUP, *api.POD_GROUPS))
CONFIGURING = "elasticquotatrees"
"""The shard that reports the enabled kinds: without this shard nothing is admitted."""
ALWAYS = (
    "configmaps",
    "elasticquotatrees",
    "nodes",
    "pods",
    "priorityclasses",
    "provisioningrequests",
    "queues",
    "queueunits",
    KAI_QUEUES,
    *POD_GROUPS,
)
"""The shards watched for any set of kinds."""


def shards_of(kinds: Iterable[str]) -> tuple[str, ...]:
    """The shards watched for these kinds."""
    return (*ALWAYS, *workloads.shards(kinds))


def required_of(kinds: Iterable[str]) -> tuple[str, ...]:
    """The shards that must have been listed before any admission."""
    return tuple(sorted(shard for shard in shards_of(kinds) if shard not in SHOWN_KINDS))


def _watched() -> dict[str, Watched]:
    rows: list[Watched] = [
        Watched(api.QUOTA_TREES, read_quota_tree, QuotaTreeObserved, QuotaTreeGone),
        Watched(api.PRIORITY_CLASSES, read_priority_class, PriorityClassObserved, PriorityClassGone),
        Watched(api.NODES, read_node, NodeObserved, NodeGone),
        Watched(api.PODS, read_pod, PodObserved, PodGone),
        Watched(
            api.QUEUES,
            read_queue,
            QueueObserved,
            QueueGone,
            namespace=QUEUE_NAMESPACE,
            label_selector=f"{CREATED_BY}=true",
        ),
        Watched(api.KAI_QUEUES, _kai_queue, KaiQueueObserved, KaiQueueGone, ambiguous=True),
        Watched(api.QUEUE_UNITS, read_queue_unit, QueueUnitObserved, QueueUnitGone),
        Watched(
            api.CONFIG_MAPS,
            read_node_pools,
            NodePoolsObserved,
            NodePoolsGone,
            namespace=POOLS_NAMESPACE,
            name=POOLS_NAME,
        ),
        Watched(
            api.PROVISIONING_REQUESTS,
            read_nodes_request,
            NodesRequestObserved,
            NodesRequestGone,
            label_selector=f"{REQUESTED}=true",
        ),
    ]
    for resource in (NATIVE_POD_GROUP, *api.POD_GROUPS):
        read = pod_group_reader(qualified_kind(resource))
        versions = api.NATIVE_POD_GROUPS if resource is NATIVE_POD_GROUP else ()
        rows.append(Watched(resource, read, PodGroupObserved, PodGroupGone, ambiguous=True, versions=versions))
    rows += [_of_kind(name) for name in workloads.KINDS]
    return {row.shard: row for row in rows}


def _of_kind(name: str) -> Watched:
    kind = workloads.KINDS[name]
    return Watched(
        kind.resource,
        _workload_reader(name),
        WorkloadObserved,
        WorkloadGone,
        both=bool(workloads.parents_of(name)),
        alone=_alone_reader(kind),
    )


def define(definition: Definition) -> None:
    """Watch one kind more, in this process. Raises UnreadableError naming the field that cannot be used."""
    plural = definition.plural or f"{definition.kind.lower()}s"
    if plural in WATCHED and WATCHED[plural].kind != definition.kind:
        raise unreadable("plural", "kind_taken", value=plural)
    workloads.define(definition)
    for name in (definition.kind, *(rule.kind for rule in definition.children)):
        WATCHED[workloads.KINDS[name].resource.plural] = _of_kind(name)


WATCHED: dict[str, Watched] = _watched()
"""{shard name: row}"""
