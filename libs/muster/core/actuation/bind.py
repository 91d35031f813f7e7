"""Binding a pod to its node, and what the API server's answer means.

The uid of the pod is a precondition: a pod of that name made anew is another pod. Binding a pod twice to one node is
refused the second time, and the pod itself then says that it is done.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from muster.core.actuation.answers import Answer, Reread, Retry, message_of, retry
from muster.core.objects.meta import GPU_DEVICE, Meta, UnreadableError, decode
from muster.events.base import Cause
from muster.events.effects import EffectApplied, EffectFailed, FailureReason
from muster.model.keys import Intent, Ref


class Bind(Struct, frozen=True):
    """One pod to be bound."""

    ref: Ref
    node: str
    intent: Intent
    cycle: int
    devices: tuple[int, ...] = ()
    """The shared GPU device it takes."""
    action: Literal["bind"] = "bind"

    @property
    def cause(self) -> Cause:
        return Cause(self.intent.seq, self.intent.item)


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _Pod(Struct, frozen=True):
    metadata: Meta
    spec: _Spec = _Spec()


def binding_for(order: Bind) -> bytes:
    """The Binding to create. The API server copies its annotations to the pod, before anybody can start it."""
    ref = order.ref
    metadata: dict[str, Any] = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
    if order.devices:
        metadata["annotations"] = {GPU_DEVICE: str(order.devices[0])}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
    }
    return msgspec.json.encode(body, order="deterministic")


def read_binding(order: Bind, status: int, body: bytes) -> Answer:
    """What the answer to a Binding means."""
    if 200 <= status < 300:
        return bound(order)
    message = message_of(body)
    if status == 404:
        return not_bound(order, "gone", message)
    if status == 409:
        return Reread()
    return retry(status, message) or not_bound(order, "refused", message)


def after_binding(order: Bind, status: int, body: bytes, refusal: str) -> EffectApplied | EffectFailed | Retry:
    """What the pod says about a binding that met a conflict.

    ``refusal``: the message of the refusal.
    """
    if status == 404:
        return not_bound(order, "gone", "it no longer exists")
    if not 200 <= status < 300:
        return Retry("conflict", refusal)
    try:
        pod: _Pod = decode(body, _Pod)
    except UnreadableError as err:
        return not_bound(order, "refused", str(err))
    if pod.metadata.uid != order.ref.uid:
        return not_bound(order, "gone", "another pod has taken its name")
    if pod.spec.node_name == order.node:
        return bound(order, pod.metadata.rv)
    if pod.spec.node_name:
        return not_bound(order, "superseded", f"it is bound to {pod.spec.node_name}")
    if pod.metadata.deletion_timestamp:
        return not_bound(order, "gone", "it is being deleted")
    return not_bound(order, "refused", refusal) if "schedulingGates" in refusal else Retry("conflict", refusal)


def bound(order: Bind, rv: int = 0) -> EffectApplied:
    """The effect of a binding that is in force."""
    return EffectApplied(cause=order.cause, ref=order.ref, attempt=order.cycle, rv=rv, action="bind")


def not_bound(order: Bind, reason: FailureReason, message: str) -> EffectFailed:
    """The effect of a binding that cannot be made."""
    return EffectFailed(
        cause=order.cause, ref=order.ref, attempt=order.cycle, reason=reason, message=message[:500], action="bind"
    )
