"""Pods, nodes and priority classes as facts."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Int32, Meta, decode
from muster.core.objects.podrules import RawTaint, taints_of
from muster.core.objects.podspec import PodSpec, Quantity, amounts, pod_request, pod_rules
from muster.core.workloads.registry import POD_OWNERS
from muster.events.facts import NodeObserved, PodObserved, PriorityClassObserved
from muster.model.workload import NodeState, PodState

MAX_LABELS = 256
"""Labels kept of one object: far more than any has."""


class PodStatus(Struct, frozen=True):
    phase: str = ""


class Pod(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus | None = None


class OwnedObject(Struct, frozen=True):
    metadata: Meta


def read_pod(raw: bytes) -> PodObserved | None:
    """A pod: whom it belongs to, where it runs or may run, whether it still holds anything.

    None for a pod of no workload.
    """
    owned: OwnedObject = decode(raw, OwnedObject)
    if owned.metadata.controller.kind not in POD_OWNERS:
        return None
    return _pod(decode(raw, Pod), owned.metadata.controller.uid)


def read_any_pod(raw: bytes) -> PodObserved | None:
    """As :func:`read_pod`, and of everybody else's pods those that take room on a node, as nobody's own."""
    pod: Pod = decode(raw, Pod)
    owner = pod.metadata.controller
    if owner.kind in POD_OWNERS:
        return _pod(pod, owner.uid)
    over = pod.status is not None and pod.status.phase in ("Succeeded", "Failed")
    return None if over or not pod.spec.node_name else _pod(pod, "")


def _pod(pod: Pod, owner_uid: str) -> PodObserved:
    phase = pod.status.phase if pod.status else ""
    return PodObserved(
        pod=PodState(
            ref=pod.metadata.ref("Pod"),
            rv=pod.metadata.rv,
            owner_uid=owner_uid,
            node=pod.spec.node_name or "",
            over=phase in ("Succeeded", "Failed"),
            running=phase == "Running",
            request=pod_request(pod.spec, "spec"),
            labels=_labels(pod.metadata),
            rules=pod_rules(pod.spec, pod.metadata.labels),
        )
    )


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
