"""Pods, nodes and priority classes as facts, and the trouble of a pod.

The trouble of a pod is one closed code with a few numbers, from the pod's status. The only free text is the scheduler's
causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang.declare import MARKS, name_of, read_native_group, read_pod_group
from muster.core.objects.gpushares import KEEPS, RESERVATIONS, devices_of, groups_of, with_share
from muster.core.objects.meta import (
    RAY_NODE_TYPE,
    RAY_WORKER,
    Condition,
    ExplainedCondition,
    Int32,
    Meta,
    decode,
    is_true,
)
from muster.core.objects.podspec import (
    Container,
    PodSpec,
    Quantity,
    RawTaint,
    Resources,
    SchedulingGroup,
    amounts,
    container_names,
    names_resource,
    pod_request,
    pod_rules,
    taints_of,
)
from muster.core.workloads.ownership import counts_pod
from muster.core.workloads.registry import POD_OWNERS
from muster.events.facts import NodeObserved, PodGroupObserved, PodObserved, PriorityClassObserved
from muster.model.gang import NATIVE
from muster.model.placing import GPU
from muster.model.podtrouble import NodesRefuse, PodCode, PodTrouble
from muster.model.resources import Vector, highest
from muster.model.text import clean, shorten
from muster.model.workload import DEFAULT_SCHEDULER, SCHEDULERS, NodeState, PodState

# --- podtrouble -------------------------------------------------------------------------------------------------------


MAX_CAUSES = 8
MAX_WORD = 64
MAX_WORDS = 160
MAX_IMAGE = 256

WAITING: dict[str, PodCode] = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "InvalidImageName": "ImagePullBackOff",
    "ErrImageNeverPull": "ImagePullBackOff",
    "ImageInspectError": "ImagePullBackOff",
    "RegistryUnavailable": "ImagePullBackOff",
    "SignatureValidationFailed": "ImagePullBackOff",
    "CrashLoopBackOff": "CrashLoopBackOff",
    "CreateContainerConfigError": "ContainerNotCreated",
    "CreateContainerError": "ContainerNotCreated",
    "RunContainerError": "ContainerNotCreated",
    "PreCreateHookError": "ContainerNotCreated",
    "PreStartHookError": "ContainerNotCreated",
    "PostStartHookError": "ContainerNotCreated",
}
"""The kubelet's reason of a waiting container -> muster's code. A container being created is no trouble."""

FAILED: dict[str, PodCode] = {
    "Evicted": "Evicted",
    "Preempting": "Evicted",
    "TerminationByKubelet": "Evicted",
    "DeadlineExceeded": "DeadlineExceeded",
    "NodeLost": "NodeLost",
    "NodeShutdown": "NodeLost",
    "Shutdown": "NodeLost",
    "Terminated": "NodeLost",
}
"""Why a pod failed as a whole, as ``status.reason`` says."""

DISRUPTED: dict[str, PodCode] = {
    "EvictionByEvictionAPI": "Evicted",
    "PreemptionByScheduler": "Evicted",
    "TerminationByKubelet": "Evicted",
    "DeletionByTaintManager": "NodeLost",
    "DeletionByPodGC": "NodeLost",
}
"""The cause of a pod's end, as the reason of its condition ``DisruptionTarget`` says: its exit codes say nothing."""

_AVAILABLE = re.compile(r"0/(\d+) nodes\b")
_CAUSE = re.compile(r"^(\d+) (.+)$", re.DOTALL)


class ContainerWaits(Struct, frozen=True):
    reason: str = ""


class ContainerEnded(Struct, frozen=True, rename="camel"):
    reason: str = ""
    exit_code: Int32 = 0


class ContainerState(Struct, frozen=True):
    waiting: ContainerWaits | None = None
    terminated: ContainerEnded | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources: dict[str, Quantity] | None = None
    """The resources set aside by the kubelet for the container; behind the spec during a resize in place."""


class PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[ExplainedCondition, ...] | None = None
    resize: str = ""
    """Servers before 1.33 say here how far a resize is."""


NO_STATE = ContainerState()
BY_SIGNAL = (137, 143)
"""Exit codes of a container that the kubelet stops, politely or not."""
DELETED = "Deleted"
"""The word for a pod that failed because of its deletion."""
OOM = "OOMKilled"


def trouble_of(status: PodStatus | None, *, deleting: bool = False) -> PodTrouble | None:
    """Why a pod does not run, or failed; None for a pod that runs, succeeded, or is starting."""
    if status is None or status.phase == "Succeeded":
        return None
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    if status.phase == "Failed":
        code = FAILED.get(status.reason)
        if code is not None:
            return PodTrouble(code)
        for condition in status.conditions or ():
            if condition.type == "DisruptionTarget" and condition.status == "True" and condition.reason in DISRUPTED:
                return PodTrouble(DISRUPTED[condition.reason], word=condition.reason)
        ends = [*_ended(containers)]
        if deleting and all(end.exit_code in BY_SIGNAL and end.code != OOM for end in ends):
            return PodTrouble("PodFailed", word=DELETED)
        return next(iter(ends), PodTrouble("PodFailed", word=shorten(clean(status.reason), MAX_WORD)))
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            nodes, refused = refusals(condition.message)
            return PodTrouble("Unschedulable", nodes=nodes, refused=refused)
    return next(_broken(containers), None) or _initializing(status)


def _ended(containers: Iterable[ContainerStatus]) -> Iterator[PodTrouble]:
    """Failed containers; a container out of memory comes first."""
    ends = [(container, (container.state or NO_STATE).terminated) for container in containers]
    bad = [(container, end) for container, end in ends if end is not None and (end.exit_code or end.reason == OOM)]
    for container, end in sorted(bad, key=lambda pair: pair[1].reason != OOM):
        yield _exited(container, end, "ContainerFailed")


def _exited(status: ContainerStatus, end: ContainerEnded, otherwise: PodCode) -> PodTrouble:
    code: PodCode = "OOMKilled" if end.reason == OOM else otherwise
    return PodTrouble(code, container=shorten(clean(status.name), MAX_WORD), exit_code=end.exit_code)


def _broken(containers: tuple[ContainerStatus, ...]) -> Iterator[PodTrouble]:
    for container in containers:
        waiting, before = (container.state or NO_STATE).waiting, (container.last_state or NO_STATE).terminated
        code = WAITING.get(waiting.reason) if waiting is not None else None
        if waiting is None or code is None:
            continue
        if code == "CrashLoopBackOff" and before is not None:
            yield _exited(container, before, code)
        else:
            word = "" if waiting.reason == code else waiting.reason
            image = shorten(clean(container.image), MAX_IMAGE) if code == "ImagePullBackOff" else ""
            yield PodTrouble(code, word=word, container=shorten(clean(container.name), MAX_WORD), image=image)
    yield from _ended(containers)


def _initializing(status: PodStatus) -> PodTrouble | None:
    """The first init container of the pod that has not ended."""
    if status.phase == "Pending":
        for container in status.init_container_statuses or ():
            if (container.state or NO_STATE).terminated is None:
                return PodTrouble("InitWaiting", container=shorten(clean(container.name), MAX_WORD))
    return None


def refusals(message: str) -> tuple[int, tuple[NodesRefuse, ...]]:
    """``0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.`` as numbers."""
    head, _, rest = clean(message).partition(": ")
    available = _AVAILABLE.match(head)
    if available is None:
        return 0, (NodesRefuse(0, shorten(clean(message), MAX_WORDS)),) if message else ()
    listed = rest.partition(". ")[0].removesuffix(".")
    causes = [_CAUSE.match(cause.strip()) for cause in re.split(r", (?=\d+ )", listed)]
    kept = [NodesRefuse(int(cause[1][:9]), shorten(cause[2], MAX_WORDS)) for cause in causes if cause is not None]
    return int(available[1][:9]), tuple(sorted(kept, key=lambda refuse: refuse.text)[:MAX_CAUSES])


# --- cluster ----------------------------------------------------------------------------------------------------------


MAX_LABELS = 256
"""Most labels kept of one object: far more than any object has."""


class PodObject(Struct, frozen=True):
    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus | None = None


def request_in_force(pod: PodObject) -> Vector:
    """The request of a pod in force: the larger of the spec and the resources set aside by the node during a resize.

    Where the node can never give the resources of the spec, the resources set aside count alone.
    """
    spec, status = pod.spec, pod.status
    asked = pod_request(spec, "spec")
    set_aside = {
        container.name: container.allocated_resources
        for container in (status.container_statuses if status else None) or ()
    }
    if not any(set_aside.values()):
        return asked
    containers = tuple(_given(container, set_aside.get(container.name) or {}) for container in spec.containers)
    given = pod_request(replace(spec, containers=containers), "spec")
    return given if _infeasible(status) else highest(asked, given)


def _given(container: Container, set_aside: dict[str, Quantity]) -> Container:
    own = container.resources or Resources()
    requests = {**(own.limits or {}), **(own.requests or {}), **set_aside}
    return replace(container, resources=Resources(requests=requests))


def _infeasible(status: PodStatus | None) -> bool:
    if status is None:
        return False
    pending = (
        condition
        for condition in status.conditions or ()
        if condition.type == "PodResizePending" and condition.status == "True"
    )
    return status.resize == "Infeasible" or any(condition.reason == "Infeasible" for condition in pending)


class _Seat(Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_group: SchedulingGroup | None = None


class _Glance(Struct, frozen=True):
    """The part of a pod that decides whether the pod concerns muster."""

    metadata: Meta
    spec: _Seat | None = None


def read_pod(raw: bytes) -> PodObserved | None:
    """A pod: its workload, its node or allowed nodes, whether the pod still holds resources, and its gang.

    None for a pod outside of muster's concern: of no workload and no gang, and without room on a node.
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
    unbound = bool(pod.metadata.deletion_timestamp) and not pod.spec.node_name
    over = phase in ("Succeeded", "Failed") or unbound  # The API server binds no pod that is being deleted.
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
    """Why the pod does not run; for a pod in deletion only a failure."""
    over = pod.status is not None and pod.status.phase == "Failed"
    deleting = bool(pod.metadata.deletion_timestamp)
    return trouble_of(pod.status, deleting=deleting) if over or not deleting else None


def _labels(meta: Meta) -> dict[str, str]:
    """All labels, sorted: rules of other pods may use any label."""
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
    """The reader of PodGroups of one API group: ``kind`` is qualified by the group."""
    if kind == NATIVE:
        return lambda raw: PodGroupObserved(pod_group=read_native_group(raw))
    return lambda raw: PodGroupObserved(pod_group=read_pod_group(raw, kind))


def read_node(raw: bytes) -> NodeObserved:
    """A node: its allocatable resources, and whether the node takes pods."""
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
    """A PriorityClass with its value."""
    priority_class: PriorityClass = decode(raw, PriorityClass)
    return PriorityClassObserved(
        ref=priority_class.metadata.ref("PriorityClass"),
        rv=priority_class.metadata.rv,
        value=priority_class.value,
        is_default=priority_class.global_default,
    )
