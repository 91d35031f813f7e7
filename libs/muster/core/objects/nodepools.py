"""Node pools declared by an operator, and answered ProvisioningRequests (autoscaling.x-k8s.io/v1).

One ConfigMap declares the pools, one key per pool with a JSON value. An unreadable pool is refused alone, with the key,
the value and the way out; the other pools count.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.core.objects.meta import (
    PREFIX,
    ExplainedCondition,
    Int32,
    Meta,
    UnreadableError,
    decode,
    is_name,
    unreadable,
)
from muster.core.objects.podspec import Quantity, amounts
from muster.events.facts import NodePoolsObserved, NodesRequestObserved
from muster.model.placing import Taint
from muster.model.pools import NodePool
from muster.model.problem import problem
from muster.model.text import clean, shorten

NAMESPACE = "muster-system"
NAME = "muster-node-pools"
"""The ConfigMap of the pools."""
REQUESTED = f"{PREFIX}/nodes-requested"
"""Label of the objects made by muster to request nodes."""
BY_PODS = "unschedulable-pods"
"""Class without a request: the autoscaler adds nodes for pods without a node."""
MAX_POOLS = 64
MAX_NODES = 10_000
MAX_WAIT_S = 86_400
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
KEYS = ("maxNodes", "allocatable", "labels", "taints", "class", "waitSeconds")
MAX_TEMPLATES = 64


class _Taint(Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    value: str = ""
    effect: str = "NoSchedule"


class _Pool(Struct, frozen=True, rename={"max_nodes": "maxNodes", "wait_s": "waitSeconds", "asked_by": "class"}):
    max_nodes: Int32 | None = None
    allocatable: dict[str, Quantity] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[_Taint, ...] = ()
    asked_by: str = ""
    wait_s: Int32 = 900


class _Strict(_Pool, frozen=True, forbid_unknown_fields=True):
    pass


class _ConfigMap(Struct, frozen=True):
    metadata: Meta
    data: dict[str, str] | None = None


def read_node_pools(raw: bytes) -> NodePoolsObserved | None:
    """The pools of the ConfigMap ``NAME``; None for any other ConfigMap."""
    config_map: _ConfigMap = decode(raw, _ConfigMap)
    if (config_map.metadata.namespace, config_map.metadata.name) != (NAMESPACE, NAME):
        return None
    data = config_map.data or {}
    if len(data) > MAX_POOLS:
        raise unreadable("data", "many_pools", count=len(data), most=MAX_POOLS)
    pools = tuple(_pool(name, data[name]) for name in sorted(data))
    return NodePoolsObserved(ref=config_map.metadata.ref("ConfigMap"), rv=config_map.metadata.rv, pools=pools)


def _pool(name: str, text: str) -> NodePool:
    where = f"data[{shorten(clean(name), 64)}]"
    try:
        pool: _Pool = decode(text.encode("utf-8", "replace"), _Strict)
    except UnreadableError as err:
        because = err.at("" if err.problem.path == "object" else err.problem.path)
        return NodePool(shorten(clean(name), 64), refusal=problem(where, "not_a_pool", because, keys=KEYS))
    try:
        if not is_name(name) or len(name) > 63:
            raise unreadable("", "not_a_pool_name")
        return _judged(name, pool)
    except UnreadableError as err:
        inside = err.problem.path
        return NodePool(shorten(clean(name), 64), refusal=err.at(f"{where}.{inside}" if inside else where))


def _judged(name: str, pool: _Pool) -> NodePool:
    most = pool.max_nodes
    if most is None or not 0 <= most <= MAX_NODES:
        if most is None:
            raise unreadable("maxNodes", "max_nodes_missing", most=MAX_NODES)
        raise unreadable("maxNodes", "max_nodes_out_of_range", value=most, most=MAX_NODES)
    if not pool.labels:
        raise unreadable("labels", "pool_labels_empty")
    if not pool.allocatable:
        raise unreadable("allocatable", "pool_allocatable_empty")
    if pool.asked_by != BY_PODS and not (is_name(pool.asked_by) and "." in pool.asked_by):
        if not pool.asked_by:
            raise unreadable("class", "pool_class_missing", other=BY_PODS)
        raise unreadable("class", "not_a_pool_class", value=shorten(pool.asked_by, 64), other=BY_PODS)
    if not 1 <= pool.wait_s <= MAX_WAIT_S:
        raise unreadable("waitSeconds", "wait_out_of_range", value=pool.wait_s, most=MAX_WAIT_S)
    for index, taint in enumerate(pool.taints):
        if taint.effect not in EFFECTS:
            raise unreadable(f"taints[{index}].effect", "none_of", value=shorten(taint.effect, 64), choices=EFFECTS)
    taints = [Taint(taint.key, taint.value, taint.effect) for taint in pool.taints if taint.effect in EFFECTS[:2]]
    return NodePool(
        name=name,
        most=most,
        allocatable=dict(sorted({"pods": 110_000, **amounts(pool.allocatable, "allocatable")}.items())),
        labels=dict(sorted(pool.labels.items())),
        taints=tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect))),
        provisioning="" if pool.asked_by == BY_PODS else pool.asked_by,
        wait_ms=pool.wait_s * 1000,
    )


# --- ProvisioningRequests ---------------------------------------------------------------------------------------


class _RequestStatus(Struct, frozen=True):
    conditions: tuple[ExplainedCondition, ...] | None = None


class _TemplateRef(Struct, frozen=True):
    name: str = ""


class _PodSet(Struct, frozen=True, rename="camel"):
    pod_template_ref: _TemplateRef = _TemplateRef()


class _RequestSpec(Struct, frozen=True, rename="camel"):
    pod_sets: tuple[_PodSet, ...] | None = None


class _Request(Struct, frozen=True):
    metadata: Meta
    spec: _RequestSpec | None = None
    status: _RequestStatus | None = None


def read_nodes_request(raw: bytes) -> NodesRequestObserved | None:
    """A ProvisioningRequest made by muster, with the autoscaler's progress; None for another client's request."""
    request: _Request = decode(raw, _Request)
    if REQUESTED not in request.metadata.labels:
        return None
    conditions = (request.status.conditions if request.status is not None else None) or ()
    holds = {condition.type: condition for condition in conditions if condition.status == "True"}
    pod_sets = (request.spec.pod_sets if request.spec is not None else None) or ()
    fact = NodesRequestObserved(
        ref=request.metadata.ref("ProvisioningRequest"),
        rv=request.metadata.rv,
        templates=tuple(pod_set.pod_template_ref.name[:253] for pod_set in pod_sets[:MAX_TEMPLATES]),
    )
    for phase, names in _PHASES:
        for name in names:
            if name in holds:
                condition = holds[name]
                text = shorten(clean(condition.message or condition.reason), 300)
                return NodesRequestObserved(
                    ref=fact.ref, rv=fact.rv, phase=phase, message=text, templates=fact.templates
                )
    return fact


_Phase = Literal["failed", "lapsed", "provisioned", "accepted"]
_PHASES: tuple[tuple[_Phase, tuple[str, ...]], ...] = (
    ("failed", ("Failed",)),
    ("lapsed", ("CapacityRevoked", "BookingExpired")),
    ("provisioned", ("Provisioned",)),
    ("accepted", ("Accepted",)),
)
"""The order of the conditions: a failed or lapsed request is over, at any earlier progress."""
