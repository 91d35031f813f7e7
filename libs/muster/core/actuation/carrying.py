"""Carrying one decision out on the API server, without any I/O: the next request, and the meaning of the answers.

``carry_out`` yields requests and receives the replies; the return value is the effect, or a retry for later. A driver
only moves bytes: the actuator's runner over HTTP, a test's cell by function calls.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from heapq import merge
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.actuation import budgets, patches, podwrites, provisioning
from muster.core.actuation.intents import ActuatorState, Known, is_held, leaving, workers_leaving
from muster.core.actuation.orders import (
    Asking,
    Bind,
    Effect,
    Freeing,
    Gating,
    Looking,
    Order,
    Outstanding,
    Removing,
    Reread,
    RetryLater,
    Unbind,
    applied,
    deletion,
    message_of,
    patched,
    read_refusal,
)
from muster.core.actuation.patches import after_reread, patch_for, patch_gate
from muster.core.actuation.podwrites import (
    after_binding,
    after_unbind,
    before_deletion,
    binding_for,
    is_worker,
    read_binding,
    read_deletion,
)
from muster.core.objects.gpushares import RESERVATIONS
from muster.core.workloads.registry import resource_of
from muster.model.api import CONFIG_MAPS, DISRUPTION_BUDGETS, EVENTS, JSON, JSON_PATCH, MERGE_PATCH, PODS, RAYCLUSTERS
from muster.model.problem import problem

REREADS = 5
"""Rebuilds of a patch on the reread object, after failed tests of the patch, before the patch counts as refused."""

CHILDREN_READ = 8
"""The children of a job whose Events are read, the newest first."""


class Request(Struct, frozen=True):
    """One request to the API server."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    body: bytes | None = None
    content_type: str = JSON
    query: dict[str, str] = field(default_factory=dict)


class Reply(Struct, frozen=True):
    """The answer of the API server."""

    status: int
    body: bytes


Steps = Generator[Request, Reply, Effect | RetryLater]


def orders_of(state: ActuatorState) -> Iterator[Order]:
    """Every order to be carried out now, in the order of the decisions, one order for each object."""
    tables = _tables(state)
    for order in merge(*(table.values() for table in tables), key=lambda order: order.intent):
        if order_of(state, order.ref.uid) is order and not is_held(state, order):
            yield order


def order_of(state: ActuatorState, uid: str) -> Order | None:
    """The first order to be carried out for an object."""
    return next((table[uid] for table in _tables(state) if uid in table), None)


def is_due(order: Order, state: ActuatorState) -> bool:
    """Whether an order is still to be carried out."""
    return any(order == table.get(order.ref.uid) for table in _tables(state))


def _tables(state: ActuatorState) -> tuple[Mapping[str, Order], ...]:
    """Orders by uid of the object, in the order of precedence for one object.

    For a cluster that is a job, the order to run or to stop the job comes first.
    """
    return (
        state.outstanding,
        state.removing,
        state.freeing,
        state.asking,
        state.unbinds,
        state.binds,
        state.gating,
        state.reading,
    )


def carry_out(order: Order, state: Callable[[], ActuatorState], image: str = podwrites.IMAGE) -> Steps:
    """The requests for one order. ``state``: the actuator's state now; ``image``: of pods that keep shared GPUs."""
    match order:
        case Bind():
            return _bind(order, image)
        case Unbind():
            return _unbind(order)
        case Freeing():
            return _free(order)
        case Asking():
            return _ask(order)
        case Gating():
            return _gate(order, state)
        case Removing():
            return _remove(order)
        case Looking():
            return _read(order, state())
        case Outstanding():
            return _evict(order) if order.ref.kind == PODS.kind else _patch(order, state)
    raise AssertionError(f"there is no way to carry out {order}")


def first_request(order: Outstanding, known: Known) -> Request:
    """The patch of an order on the object as known."""
    path = resource_of(order.ref.kind, known.switch).path(order.ref.namespace, order.ref.name)
    return Request("PATCH", path, patch_for(order, known), JSON_PATCH)


def _patch(order: Outstanding, state: Callable[[], ActuatorState]) -> Steps:
    if order.evicts:
        stays = yield from _budgets_allow(order, leaving(state(), order))
        if stays is not None:
            return stays
    known = state().known.get(order.ref.uid, Known())
    gathered = order.together == 0
    for _ in range(REREADS):
        if not gathered and patches.groups(order, known):
            trouble = yield from _gather(order, known, state().seq)
            if trouble is not None:
                return trouble
            gathered = True
        request = first_request(order, known)
        reply = yield request
        answer = patched(order, reply.status, reply.body)
        if not isinstance(answer, Reread):
            return answer
        reread = yield Request("GET", request.path)
        after = after_reread(order, known, state().seq, reread.status, reread.body, message_of(reply.body))
        if not isinstance(after, Known):
            return after
        known = after
    return RetryLater("conflict", problem("", "keeps_changing"))


def _read(order: Looking, state: ActuatorState) -> Steps:
    """The refusal of a job's pods, by the Events about the children that were made last, or else about the job. The
    controller that makes the pods tells a refusal of its own object.
    """
    below: dict[str, list[str]] = {}
    for child, owner in state.children.items():
        if child != order.ref.uid:  # Owner references may go round.
            below.setdefault(owner, []).append(child)
    family = [order.ref.uid]
    for uid in family:
        family += below.get(uid, ())
    for uid in (*family[:0:-1][:CHILDREN_READ], order.ref.uid):
        query = {"fieldSelector": f"involvedObject.uid={uid},type=Warning", "limit": "100"}
        listed = yield Request("GET", EVENTS.path(order.ref.namespace), query=query)
        refusal = read_refusal(listed.status, listed.body, order.since)
        if refusal is not None:
            return replace(applied(order), problem=refusal)
    return applied(order)


def _gather(order: Outstanding, known: Known, end: int) -> Generator[Request, Reply, Effect | RetryLater | None]:
    """Create the PodGroup of the job's pods; None: the PodGroup exists.

    ``end``: sequence up to which our own log is known.
    """
    groups = patches.GROUPS
    path = groups.path(order.ref.namespace, patches.group_name(order.ref))
    made = yield Request("POST", groups.path(order.ref.namespace), patches.group_for(order, known))
    if made.status != 409:
        return patches.read_made(order, made.status, made.body)
    present = yield Request("GET", path)
    former = patches.read_former(order, end, present.status, present.body)
    if not isinstance(former, bytes):
        return former
    gone = yield Request("DELETE", path, former)
    return patches.read_removed(order, gone.status, gone.body)


def _budgets_allow(
    order: Outstanding | Gating, going: budgets.PodsLeaving
) -> Generator[Request, Reply, Effect | RetryLater | None]:
    """Whether PodDisruptionBudgets let the pods of a victim go; None when every budget allows the loss."""
    listed = yield Request("GET", DISRUPTION_BUDGETS.path(order.ref.namespace))
    limits = budgets.read_budgets(order, listed.status, listed.body)
    if not isinstance(limits, list):
        return limits
    if not limits:
        return None
    pods = yield Request("GET", PODS.path(order.ref.namespace))
    return budgets.refusing_budget(order, limits, going, pods.status, pods.body)


def _gate(order: Gating, state: Callable[[], ActuatorState]) -> Steps:
    path = RAYCLUSTERS.path(order.ref.namespace, order.ref.name)
    if order.decision.workers:
        stays = yield from _budgets_allow(order, workers_leaving(state(), order))
        if stays is not None:
            return stays
    for _ in range(REREADS):
        workers = yield from _workers(order)
        if isinstance(workers, RetryLater):
            return workers
        cluster = yield Request("GET", path)
        patch = patch_gate(order, cluster.status, cluster.body, workers)
        if not isinstance(patch, bytes):
            return patch
        reply = yield Request("PATCH", path, patch, JSON_PATCH)
        answer = patched(order, reply.status, reply.body)
        if not isinstance(answer, Reread):
            return answer
    return RetryLater("conflict", problem("", "keeps_changing"))


def _workers(order: Gating) -> Generator[Request, Reply, dict[str, list[str]] | RetryLater]:
    """Names of the chosen pods that are still workers of the cluster, by group."""
    names: dict[str, list[str]] = {}
    for group, pods in order.decision.workers.items():
        for pod in pods:
            reply = yield Request("GET", PODS.path(pod.namespace, pod.name))
            answer = is_worker(order.ref, group, pod, reply.status, reply.body)
            if isinstance(answer, RetryLater):
                return answer
            if answer:
                names.setdefault(group, []).append(pod.name)
    return names


def _bind(order: Bind, image: str) -> Steps:
    path = PODS.path(order.ref.namespace, order.ref.name)
    uuids: list[str] = []
    for group in order.groups:
        uuid = yield from _reserve(order, group, image)
        if not isinstance(uuid, str):
            return uuid
        uuids.append(uuid)
    trouble = (yield from _wire(order, tuple(uuids))) if uuids else None
    if trouble is not None:
        return trouble
    reply = yield Request("POST", f"{path}/binding", binding_for(order, tuple(uuids)))
    answer = read_binding(order, reply.status, reply.body)
    if not isinstance(answer, Reread):
        return answer
    reread = yield Request("GET", path)
    return after_binding(order, reread.status, reread.body, message_of(reply.body))


def _unbind(order: Unbind) -> Steps:
    pod = yield Request("GET", PODS.path(order.ref.namespace, order.ref.name))
    return after_unbind(order, pod.status, pod.body)


def _reserve(order: Bind, group: str, image: str) -> Generator[Request, Reply, str | Effect | RetryLater]:
    """Keep a device for a group; returns the UUID of the device."""
    path = PODS.path(RESERVATIONS, podwrites.keeper_name(group))
    reply = yield Request("GET", path)
    if reply.status == 404:
        reply = yield Request("POST", PODS.path(RESERVATIONS), podwrites.keeper_for(order, group, image))
        trouble = podwrites.read_kept(order, reply.status, reply.body)
        if trouble is not None:
            return trouble
        reply = yield Request("GET", path)
    return podwrites.read_uuid(order, reply.status, reply.body)


def _wire(order: Bind, uuids: tuple[str, ...]) -> Generator[Request, Reply, Effect | RetryLater | None]:
    """Write the shared devices to a pod and to the ConfigMaps of the pod; None: the pod has the wiring."""
    path = PODS.path(order.ref.namespace, order.ref.name)
    reply = yield Request("GET", path)
    wiring = podwrites.wiring_for(order, reply.status, reply.body, uuids)
    if not isinstance(wiring, podwrites.Wiring):
        return wiring
    for name, body in wiring.config_maps:
        reply = yield Request("POST", CONFIG_MAPS.path(order.ref.namespace), body)
        if reply.status == 409:
            reply = yield Request("PATCH", CONFIG_MAPS.path(order.ref.namespace, name), body, MERGE_PATCH)
        trouble = podwrites.read_written(order, reply.status, reply.body)
        if trouble is not None:
            return trouble
    reply = yield Request("PATCH", path, wiring.labels, MERGE_PATCH)
    return podwrites.read_written(order, reply.status, reply.body)


def _free(order: Freeing) -> Steps:
    path = PODS.path(order.ref.namespace, order.ref.name)
    reply = yield Request("DELETE", path, deletion(order))
    return podwrites.read_freed(order, reply.status, reply.body)


def _evict(order: Outstanding) -> Steps:
    """A pod of no job leaves by the eviction API, which knows the budgets of the pod's namespace."""
    path = PODS.path(order.ref.namespace, order.ref.name)
    reply = yield Request("POST", f"{path}/eviction", podwrites.eviction(order))
    return read_deletion(order, reply.status, reply.body)


def _remove(order: Removing) -> Steps:
    path = PODS.path(order.ref.namespace, order.ref.name)
    pod = yield Request("GET", path)
    known = before_deletion(order, pod.status, pod.body)
    if known is not None:
        return known
    reply = yield Request("DELETE", path, deletion(order))
    return read_deletion(order, reply.status, reply.body)


def _ask(order: Asking) -> Steps:
    for call in provisioning.calls(order):
        reply = yield Request(call.method, call.path(order.ref.namespace), call.body)
        answer = provisioning.read_call(order, call, reply.status, reply.body)
        if answer is not None:
            return answer
    return applied(order)
