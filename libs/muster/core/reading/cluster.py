"""Pods, nodes and priority classes as facts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang.declare import MARKS, name_of, read_pod_group
from muster.core.gang.native import read_native_group
from muster.core.objects.conditions import Condition, is_true
from muster.core.objects.gpus import KEEPS, RESERVATIONS, devices_of, groups_of, with_share
from muster.core.objects.labels import RAY_NODE_TYPE, RAY_WORKER
from muster.core.objects.meta import Int32, Meta, decode
from muster.core.objects.podrules import RawTaint, taints_of
from muster.core.objects.podspec import (
    Container,
    PodSpec,
    Quantity,
    Resources,
    SchedulingGroup,
    amounts,
    container_names,
    names_resource,
    pod_request,
    pod_rules,
)
from muster.core.reading.podtrouble import PodStatus, trouble_of
from muster.core.workloads.ownership import counts_pod
from muster.core.workloads.registry import POD_OWNERS
from muster.events.facts import NodeObserved, PodGroupObserved, PodObserved, PriorityClassObserved
from muster.model.gang import NATIVE
from muster.model.placing import GPU
from muster.model.podtrouble import PodTrouble
from muster.model.resources import Vector, highest
from muster.model.workload import DEFAULT_SCHEDULER, SCHEDULERS, NodeState, PodState

MAX_LABELS = 256
"""Labels kept of one object: far more than any has."""


class PodObject(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus | None = None


def request_in_force(pod: PodObject) -> Vector:
    """What a pod asks for: the larger of its spec and what its node has set aside for it while it is resized in place,
    the latter alone where its node can never give what the spec wants now.
    """
    spec, status = pod.spec, pod.status
    asked = pod_request(spec, "spec")
    set_aside = {each.name: each.allocated_resources for each in (status.container_statuses if status else None) or ()}
    if not any(set_aside.values()):
        return asked
    containers = tuple(_given(each, set_aside.get(each.name) or {}) for each in spec.containers)
    given = pod_request(replace(spec, containers=containers), "spec")
    return given if _infeasible(status) else highest(asked, given)


def _given(container: Container, set_aside: dict[str, Quantity]) -> Container:
    own = container.resources or Resources()
    requests = {**(own.limits or {}), **(own.requests or {}), **set_aside}
    return replace(container, resources=Resources(requests=requests))


def _infeasible(status: PodStatus | None) -> bool:
    if status is None:
        return False
    pending = (each for each in status.conditions or () if each.type == "PodResizePending" and each.status == "True")
    return status.resize == "Infeasible" or any(each.reason == "Infeasible" for each in pending)


class _Seat(Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_group: SchedulingGroup | None = None


class _Glance(Struct, frozen=True):
    """As much of a pod as tells whether it is any concern of ours."""

    metadata: Meta
    spec: _Seat | None = None


def read_pod(raw: bytes) -> PodObserved | None:
    """A pod: what it belongs to, where it runs or may run, whether it still holds anything, which gang it means.

    None for a pod that is no concern of ours: of no workload and no gang, and taking no room on a node.
    """
    glance: _Glance = decode(raw, _Glance)
    owner, seat = glance.metadata.controller, glance.spec or _Seat()
    owner_uid = owner.uid if owner.kind in POD_OWNERS and counts_pod(glance.metadata) else ""
    scheduler = seat.scheduler_name or ""
    group = (seat.scheduling_group or SchedulingGroup()).pod_group_name or ""
    marked = name_of(glance.metadata.labels, glance.metadata.annotations) is not None
    member = marked or bool(group) or scheduler in SCHEDULERS
    if not owner_uid and not member and not seat.node_name:
        return None
    pod: PodObject = decode(raw, PodObject)
    phase = pod.status.phase if pod.status else ""
    over = phase in ("Succeeded", "Failed")
    if over and not owner_uid and not member:
        return None
    state = PodState(
        ref=pod.metadata.ref("Pod"),
        rv=pod.metadata.rv,
        owner_uid=owner_uid,
        node=pod.spec.node_name or "",
        over=over,
        running=phase == "Running",
        request=request_in_force(pod),
        labels=_labels(pod.metadata),
        rules=pod_rules(pod.spec, pod.metadata.labels),
        trouble=_trouble(pod) if owner_uid or member else None,
    )
    if member:
        annotations = pod.metadata.annotations
        state = replace(
            state,
            scheduler=scheduler or DEFAULT_SCHEDULER,
            priority=pod.spec.priority,
            created=pod.metadata.created,
            succeeded=phase == "Succeeded",
            deleting=bool(pod.metadata.deletion_timestamp),
            gated=bool(pod.spec.scheduling_gates),
            marks={key: annotations[key] for key in sorted(MARKS) if key in annotations},
            group=group,
        )
        rules = state.rules
        if state.ours:
            rules = with_share(rules, annotations, names_resource(pod.spec, GPU), container_names(pod.spec))
        if rules is not state.rules:
            devices, groups = devices_of(annotations), groups_of(annotations, pod.metadata.labels)
            state = replace(state, rules=rules, devices=devices, groups=groups if len(groups) == len(devices) else ())
    elif owner_uid and pod.metadata.labels.get(RAY_NODE_TYPE) == RAY_WORKER:  # One of a Ray cluster may be taken back.
        state = replace(state, created=pod.metadata.created, deleting=bool(pod.metadata.deletion_timestamp))
    elif pod.metadata.namespace == RESERVATIONS and KEEPS in pod.metadata.labels:
        state = replace(state, keeps=pod.metadata.labels[KEEPS])
    return PodObserved(pod=state)


def _trouble(pod: PodObject) -> PodTrouble | None:
    """Why it does not run; of a pod that is being deleted only why it failed."""
    over = pod.status is not None and pod.status.phase == "Failed"
    return trouble_of(pod.status) if over or not pod.metadata.deletion_timestamp else None


def _labels(meta: Meta) -> dict[str, str]:
    """All labels, sorted: rules of others may look at any of them."""
    return dict(sorted(meta.labels.items())[:MAX_LABELS])


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[RawTaint, ...] | None = None


class NodeObject(Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus | None = None


def pod_group_reader(kind: str) -> Callable[[bytes], PodGroupObserved]:
    """Reads PodGroups of one API group: ``kind`` is qualified by it."""
    if kind == NATIVE:
        return lambda raw: PodGroupObserved(pod_group=read_native_group(raw))
    return lambda raw: PodGroupObserved(pod_group=read_pod_group(raw, kind))


def read_node(raw: bytes) -> NodeObserved:
    """A node: what it can give, and whether it takes pods."""
    node: NodeObject = decode(raw, NodeObject)
    status = node.status or NodeStatus()
    ready = is_true(status.conditions, "Ready")
    return NodeObserved(
        node=NodeState(
            ref=node.metadata.ref("Node"),
            rv=node.metadata.rv,
            allocatable=dict(sorted(amounts(status.allocatable or {}, "status.allocatable").items())),
            schedulable=not node.spec.unschedulable,
            ready=ready,
            labels=_labels(node.metadata),
            taints=taints_of(node.spec.taints),
        )
    )


class PriorityClass(Struct, frozen=True, rename="camel"):
    metadata: Meta
    value: Int32 = 0
    global_default: bool = False


def read_priority_class(raw: bytes) -> PriorityClassObserved:
    """A PriorityClass and its value."""
    found: PriorityClass = decode(raw, PriorityClass)
    return PriorityClassObserved(
        ref=found.metadata.ref("PriorityClass"),
        rv=found.metadata.rv,
        value=found.value,
        is_default=found.global_default,
    )
