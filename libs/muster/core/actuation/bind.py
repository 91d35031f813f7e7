"""Binding a pod to its node, and what the API server's answer means.

The uid of the pod is a precondition: a new pod of that name is another pod. Binding a pod twice to one node is
refused the second time, and the pod itself then says that it is done.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from muster.core.actuation.answers import Answer, Effect, Reread, RetryLater, applied, failed, not_done, said, said_by
from muster.core.actuation.orders import Bind, Unbind
from muster.core.objects.meta import GPU_DEVICE, GPU_GROUPS, GPU_PORTION, GPU_UUIDS, Meta, UnreadableError, decode
from muster.events.effects import EffectFailed
from muster.model.problem import problem


class _BoundPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _BoundPod(Struct, frozen=True):
    metadata: Meta
    spec: _BoundPodSpec = _BoundPodSpec()


def binding_for(order: Bind, uuids: tuple[str, ...] = ()) -> bytes:
    """The Binding to create. The API server copies its annotations to the pod, before a kubelet can start it.

    ``uuids``: the devices as the driver knows them.
    """
    ref = order.ref
    metadata: dict[str, Any] = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
    if order.devices:
        notes = {GPU_DEVICE: ",".join(map(str, order.devices)), GPU_GROUPS: ",".join(order.groups)}
        notes |= {GPU_UUIDS: ",".join(uuids), GPU_PORTION: portion(order.share)}
        metadata["annotations"] = {key: text for key, text in sorted(notes.items()) if text}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
    }
    return msgspec.json.encode(body, order="deterministic")


def portion(share: int) -> str:
    """Thousandths of a device as a fraction: ``0.5``, ``0.125``."""
    return f"0.{share:03}".rstrip("0") if 0 < share < 1000 else "1" if share else ""


def read_binding(order: Bind, status: int, body: bytes) -> Answer:
    """What the answer to a Binding means."""
    if 200 <= status < 300:
        return applied(order)
    return Reread() if status == 409 else not_done(order, status, body)


def after_binding(order: Bind, status: int, body: bytes, refusal: str) -> Effect | RetryLater:
    """What the pod says about a binding that met a conflict.

    ``refusal``: the message of the refusal.
    """
    pod = _read(order, status, body)
    if not isinstance(pod, _BoundPod):
        return pod or RetryLater("conflict", said(refusal))
    settled = _settled(order, pod)
    if settled is not None:
        return settled
    gated = "schedulingGates" in refusal
    return failed(order, "refused", said(refusal)) if gated else RetryLater("conflict", said(refusal))


def after_unbind(order: Unbind, status: int, body: bytes) -> Effect | RetryLater:
    """What the pod says about a binding that was withdrawn, and may have been done before."""
    pod = _read(order, status, body)
    if not isinstance(pod, _BoundPod):
        return pod or RetryLater("unavailable", said_by(body))
    return _settled(order, pod) or failed(order, "withdrawn", problem("", "not_bound", node=order.node))


def _read(order: Bind | Unbind, status: int, body: bytes) -> _BoundPod | EffectFailed | None:
    """The pod; what it means that there is none; None when nothing was learnt."""
    if status == 404:
        return failed(order, "gone", problem("", "object_gone"))
    if not 200 <= status < 300:
        return None
    try:
        pod: _BoundPod = decode(body, _BoundPod)
    except UnreadableError as err:
        return failed(order, "refused", err.problem)
    return pod


def _settled(order: Bind | Unbind, pod: _BoundPod) -> Effect | None:
    """What a pod says for good about a binding; None for one that may be bound still."""
    if pod.metadata.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    if pod.spec.node_name == order.node:
        return applied(order, pod.metadata.rv)
    if pod.spec.node_name:
        return failed(order, "superseded", problem("", "bound_elsewhere", node=pod.spec.node_name))
    if pod.metadata.deletion_timestamp:
        return failed(order, "gone", problem("", "being_deleted"))
    return None
