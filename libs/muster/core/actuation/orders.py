"""Orders of the actuator, and the meaning of the API server's answers to orders."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import Struct, field

from muster.core.objects.meta import Meta, UnreadableError, decode, parse_time
from muster.events.base import Cause
from muster.events.effects import Action, EffectApplied, EffectFailed, FailureReason
from muster.events.elastic import GateSet
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.keys import Intent, Ref
from muster.model.problem import FieldProblem, problem
from muster.model.quota import FlavorNodes
from muster.model.text import shorten

# --- orders -----------------------------------------------------------------------------------------------------------


class Order(Struct, frozen=True):
    """The fields common to all orders."""

    ref: Ref
    attempt: int
    intent: Intent

    @property
    def action(self) -> Action:
        raise NotImplementedError

    @property
    def cause(self) -> Cause:
        """The decision behind the order."""
        return Cause(self.intent.seq, self.intent.item)


class Outstanding(Order, frozen=True):
    """One admission or eviction to be carried out."""

    basis: str | None
    """Digest of the decision's input; None for a write that does not depend on the spec."""
    queued_at: int
    at: int
    """Log time of the decision, ms since the epoch."""
    action: Action = "resume"
    placed: bool = False
    """The pods have held places: the pods are to name muster as their scheduler."""
    pod_group: str = ""
    """Name of the PodGroup that shows the admission of a job of a KAI queue; empty for other queues."""
    together: int = 0
    """Pods of the job that kube-scheduler is to place together; 0: kube-scheduler is not asked to."""
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """{pod set: what is added to its pods for the nodes of its flavors}."""
    evicts: bool = False
    """The job is suspended for other jobs: PodDisruptionBudgets are checked first."""


class Bind(Order, frozen=True):
    """One pod to be bound."""

    node: str
    devices: tuple[int, ...] = ()
    """The shared GPU devices of the pod."""
    groups: tuple[str, ...] = ()
    """The reservation groups of the devices."""
    share: int = 0
    """Thousandths of each device."""
    action: Literal["bind"] = "bind"


class Unbind(Order, frozen=True):
    """One pod whose binding is withdrawn: the order finds out whether the pod was bound before."""

    node: str
    cause: Cause
    """The decision behind the withdrawn place."""
    action: Literal["bind"] = "bind"


class Asking(Order, frozen=True):
    """A request for nodes to be made, or to be removed."""

    decision: NodesRequested | NodesRequestWithdrawn

    @property
    def action(self) -> Literal["request_nodes", "withdraw_nodes"]:
        return "request_nodes" if isinstance(self.decision, NodesRequested) else "withdraw_nodes"


class Freeing(Order, frozen=True):
    """One pod to be deleted: the pod keeps an unused device."""

    action: Literal["free_gpu"] = "free_gpu"


class Looking(Order, frozen=True):
    """The Events about a job that lacks pods to be read."""

    since: int
    """ms; an earlier Event may be about a pod that was made since."""
    action: Literal["read_refusal"] = "read_refusal"


class Gating(Order, frozen=True):
    """``maxReplicas`` to be written."""

    decision: GateSet
    action: Literal["gate"] = "gate"


class Removing(Order, frozen=True):
    """One worker pod to be deleted, because the operator of the cluster has not deleted the pod."""

    cluster: Ref
    group: str
    owner: str
    """uid of the charged workload"""
    action: Literal["remove_worker"] = "remove_worker"


# --- answers ----------------------------------------------------------------------------------------------------------


class _ApiAnswer(Struct, frozen=True):
    message: str = ""
    reason: str = ""


class _WrittenObject(Struct, frozen=True):
    metadata: Meta


class Reread(Struct, frozen=True):
    """The object differs from the assumption of the write: read the object, and compare it with the decision."""


class RetryLater(Struct, frozen=True):
    """Try again later: the API server is busy, unreachable, or forbids a legitimate request."""

    reason: Literal["unavailable", "throttled", "conflict", "forbidden"]
    problem: FieldProblem


Effect = EffectApplied | EffectFailed
Answer = Effect | Reread | RetryLater


def applied(order: Order, rv: int = 0) -> EffectApplied:
    """The effect of a completed decision. ``rv``: resourceVersion of the written object, 0 where unknown."""
    return EffectApplied(cause=order.cause, ref=order.ref, attempt=order.attempt, rv=rv, action=order.action)


def failed(order: Order, reason: FailureReason, why: FieldProblem) -> EffectFailed:
    """The effect of an impossible decision."""
    return EffectFailed(
        cause=order.cause,
        ref=order.ref,
        attempt=order.attempt,
        reason=reason,
        problem=why,
        action=order.action,
    )


def absent(order: Order, status: int, body: bytes) -> EffectFailed | RetryLater | None:
    """The meaning of a failed read of an object; None: the read succeeded."""
    if status == 404:
        return failed(order, "gone", said_by(body))
    return None if 200 <= status < 300 else RetryLater("unavailable", said_by(body))


def not_done(order: Order, status: int, body: bytes) -> EffectFailed | RetryLater:
    """The meaning of an answer other than 2xx to a write on one object."""
    return failed(order, "gone", said_by(body)) if status == 404 else refused(order, status, body)


def patched(order: Order, status: int, body: bytes) -> Answer:
    """The meaning of the answer to a fenced patch."""
    if 200 <= status < 300:
        return applied(order, rv_of(body))
    return Reread() if status == 422 else not_done(order, status, body)


def refused(order: Order, status: int, body: bytes) -> EffectFailed | RetryLater:
    """The meaning of an answer without a special meaning: try later, or never."""
    return retry(status, body) or failed(order, "refused", said_by(body))


def retry(status: int, body: bytes) -> RetryLater | None:
    """Whether an answer says to try again later."""
    if status in (409, 429) or status >= 500:
        return RetryLater({409: "conflict", 429: "throttled"}.get(status, "unavailable"), said_by(body))  # type: ignore[arg-type]
    verbs = ("patch", "create", "delete")
    if status == 401 or (status == 403 and any(f"cannot {verb} resource" in message_of(body) for verb in verbs)):
        return RetryLater("forbidden", said_by(body))
    return None


def said(message: str) -> FieldProblem:
    """The answer of the API server, quoted and cut: the only foreign text in an effect."""
    return problem("", "said", said=message)


def said_by(body: bytes) -> FieldProblem:
    """The API server's own words in an answer."""
    return said(message_of(body))


def message_of(body: bytes) -> str:
    """The message of a Status object, or the first 200 bytes of any other answer."""
    try:
        status: _ApiAnswer = decode(body, _ApiAnswer)
    except UnreadableError:
        return body[:200].decode("utf-8", "replace")
    return status.message or status.reason


def meta_of(body: bytes) -> Meta:
    """The metadata of an object; raises UnreadableError."""
    written: _WrittenObject = decode(body, _WrittenObject)
    return written.metadata


def rv_of(body: bytes) -> int:
    """ResourceVersion of an object; 0 where the body is none."""
    try:
        return meta_of(body).rv
    except UnreadableError:
        return 0


def deletion(order: Order) -> bytes:
    """The options of the deletion of an object: another object of the same name, with another uid, stays."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": order.ref.uid}}
    return msgspec.json.encode(body, order="deterministic")


# --- the refusal of a job's pods --------------------------------------------------------------------------------------


MAX_WORDS = 400
"""Characters kept of a refusal."""
SKEW_MS = 10_000
"""How far the clocks of the controllers and of the log may differ, and the second to which an Event is rounded."""
REPEATS_MS = 1_800_000
"""How often client-go writes an Event with a series again while the controller repeats the report."""
_NOT_CREATED = re.compile("Failed(To)?Create|[A-Za-z]*CreationFailed")
"""Beginning of the reason of an Event about a pod, or an object with pods, that was not created."""


class _Series(Struct, frozen=True, rename="camel"):
    last_observed_time: str | None = None


class _Event(Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    event_time: str | None = None
    last_timestamp: str | None = None
    series: _Series | None = None

    @property
    def at(self) -> int:
        """Time of the last written occurrence, ms since the epoch; 0 where the time cannot be read."""
        last = self.series.last_observed_time if self.series is not None else None
        return parse_time(self.last_timestamp or last or self.event_time or "")

    @property
    def until(self) -> int:
        """Log time (ms) until which the report may still be repeated without a write."""
        return self.at + (REPEATS_MS if self.at and self.series is not None else SKEW_MS)

    @property
    def refuses(self) -> bool:
        """By its reason, or by the API server's own words in an Event of any other reason."""
        by_server = "is forbidden: " in self.message or "denied the request" in self.message
        return bool(self.message) and (by_server or _NOT_CREATED.match(self.reason) is not None)


class _Events(Struct, frozen=True):
    items: tuple[_Event, ...] | None = None


def read_refusal(status: int, body: bytes, since: int) -> FieldProblem | None:
    """The newest refusal of a pod in a list of Events; None: the list has none, or cannot be read.

    The controller of a job reports the refusal in an Event about the job or a child: ``FailedCreate`` of the Job
    controller, ``FailedToCreateHeadPod`` of KubeRay, ``JobCreationFailed`` of JobSets, or another reason with the API
    server's words. The words are data of others. ``since``: ms; earlier Events, but for SKEW_MS, do not count. An Event
    with a series (``events.k8s.io``) is written at the second report, and then every REPEATS_MS alone.
    """
    if not 200 <= status < 300:
        return None
    try:
        events: _Events = decode(body, _Events)
    except UnreadableError:
        return None
    refused = [event for event in events.items or () if event.refuses and event.until >= since]
    if not refused:
        return None
    return problem("", "pods_refused", said=shorten(max(refused, key=lambda event: event.at).message, MAX_WORDS))
