"""Pods, nodes and priority classes as facts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang.declare import MARKS, name_of, read_pod_group
from muster.core.objects.meta import GPU_DEVICE, Int32, Meta, decode
from muster.core.objects.podrules import FRACTION, RawTaint, shared, taints_of
from muster.core.objects.podspec import PodSpec, Quantity, amounts, pod_request, pod_rules
from muster.core.workloads.registry import POD_OWNERS
from muster.events.facts import NodeObserved, PodGroupObserved, PodObserved, PriorityClassObserved
from muster.model.placing import GPU
from muster.model.workload import DEFAULT_SCHEDULER, SCHEDULERS, NodeState, PodState

MAX_LABELS = 256
"""Labels kept of one object: far more than any has."""


class PodStatus(Struct, frozen=True):
    phase: str = ""


class Pod(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus | None = None


class _Seat(Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None


class _Glance(Struct, frozen=True):
    """As much of a pod as tells whether it is any concern of ours."""

    metadata: Meta
    spec: _Seat | None = None


def read_pod(raw: bytes) -> PodObserved | None:
    """A pod: whom it belongs to, where it runs or may run, whether it still holds anything, which gang it means.

    None for a pod that is no concern of ours: of no workload and no gang, and taking no room on a node.
    """
    glance: _Glance = decode(raw, _Glance)
    owner, seat = glance.metadata.controller, glance.spec or _Seat()
    owner_uid = owner.uid if owner.kind in POD_OWNERS else ""
    scheduler = seat.scheduler_name or ""
    marked = name_of(glance.metadata.labels, glance.metadata.annotations) is not None
    member = marked or scheduler in SCHEDULERS
    if not owner_uid and not member and not seat.node_name:
        return None
    pod: Pod = decode(raw, Pod)
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
        request=pod_request(pod.spec, "spec"),
        labels=_labels(pod.metadata),
        rules=pod_rules(pod.spec, pod.metadata.labels),
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
        )
        if state.ours and FRACTION in annotations:
            state = replace(
                state,
                rules=shared(state.rules, annotations[FRACTION], whole=state.request.get(GPU, 0)),
                devices=_devices(annotations.get(GPU_DEVICE, "")),
            )
    return PodObserved(pod=state)


def _devices(text: str) -> tuple[int, ...]:
    return (int(text),) if text.isascii() and text.isdigit() and len(text) < 5 else ()


def _labels(meta: Meta) -> dict[str, str]:
    """All labels, sorted: rules of others may look at any of them."""
    return dict(sorted(meta.labels.items())[:MAX_LABELS])


class Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class NodeStatus(Struct, frozen=True):
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeSpec(Struct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[RawTaint, ...] | None = None


class Node(Struct, frozen=True):
    metadata: Meta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus | None = None


def pod_group_reader(kind: str) -> Callable[[bytes], PodGroupObserved]:
    """Reads PodGroups of one API group: ``kind`` is qualified by it."""
    return lambda raw: PodGroupObserved(pod_group=read_pod_group(raw, kind))


def read_node(raw: bytes) -> NodeObserved:
    """A node: what it can give, and whether it takes pods."""
    node: Node = decode(raw, Node)
    status = node.status or NodeStatus()
    ready = any(c.type == "Ready" and c.status == "True" for c in status.conditions or ())
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
