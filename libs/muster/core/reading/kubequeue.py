"""Queue and QueueUnit (scheduling.x-k8s.io/v1alpha1): the objects that muster creates, keeps and reads back.

A fingerprint shows whether an object is up to date. The fingerprint of a Queue is of its status; the fingerprint of a
QueueUnit is of the last written status, in an annotation (its numbers and times may have moved since).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from muster.core.objects.meta import PREFIX, SHOWN, Int32, Meta, UnreadableError, decode, digest, unreadable, unsealed
from muster.core.quota.trees.rules import RuleError, paused_parts
from muster.events.facts import QueueObserved, QueueUnitObserved
from muster.model.text import clean, shorten

QUEUE_NAMESPACE = "kube-queue"
CREATED_BY = "create-by-kubequeue"
MADE = f"{PREFIX}/made"
"""Annotation on a Queue made by Muster; a Queue of a kube-queue carries the same label."""
QUOTA_FULLNAME = "kube-queue/quota-fullname"
PARENT_FULLNAME = "kube-queue/parent-quota-fullname"
QUEUE_ARGS = "kube-queue/queue-args"
_BACKOFF = re.compile(r"pod(Initial|Max)BackoffSeconds[= ]([0-9]{1,5})(?![0-9])")
DEFAULT_POLICY = "Round"
POLICIES = (DEFAULT_POLICY, "Priority", "Block")
"""Values of spec.queuePolicy; a missing value means the first."""
MAX_ITEMS = 100
MAX_POD_SETS = 8
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class QueueItem(Struct, frozen=True, omit_defaults=True):
    """One line of queueItemDetails; ``position`` counts from 1 over the whole queue."""

    name: str
    namespace: str
    position: int
    priority: int = 0


class QueueItems(Struct, frozen=True):
    """``active``: waiting to be tried; ``backoff``: tried and refused, at rest until something changes."""

    active: tuple[QueueItem, ...] = ()
    backoff: tuple[QueueItem, ...] = ()


class QueueStatus(Struct, frozen=True, rename="camel"):
    queue_item_details: QueueItems = field(default_factory=QueueItems)
    waiting: int = 0
    """How many wait in all; the details show the first hundred."""


class QueueSpec(Struct, frozen=True, rename="camel"):
    queue_policy: str = ""
    priority: Int32 | None = None


class Queue(Struct, frozen=True):
    metadata: Meta
    spec: QueueSpec = field(default_factory=QueueSpec)
    status: QueueStatus | None = None


class Admission(Struct, frozen=True):
    """Admitted pods of a pod set, and running pods."""

    name: str
    replicas: int
    running: int = 0


class QueueUnitStatus(Struct, frozen=True, rename="camel"):
    """The status of a QueueUnit."""

    phase: str = ""
    message: str = ""
    admissions: tuple[Admission, ...] = ()
    last_update_time: str = ""


class QueueUnitSpec(Struct, frozen=True, rename="camel"):
    priority: Int32 | UnsetType | None = UNSET
    consumer_ref: Any = None
    pod_set: Any = None
    queue: Any = None
    request: Any = None
    resource: Any = None


class QueueUnit(Struct, frozen=True):
    metadata: Meta
    spec: QueueUnitSpec = field(default_factory=QueueUnitSpec)
    status: QueueUnitStatus | None = None


def read_queue(raw: bytes) -> QueueObserved:
    """A Queue: the quota path and a digest of the status."""
    queue: Queue = decode(raw, Queue)
    return QueueObserved(
        ref=queue.metadata.ref("Queue"),
        rv=queue.metadata.rv,
        path=queue.metadata.annotations.get(QUOTA_FULLNAME, "")[:1000],
        policy=_policy(queue.spec.queue_policy),
        priority=queue.spec.priority or 0,
        shown=digest(queue.status) if queue.status is not None else "",
        backoff_ms=_backoff(queue.metadata.annotations.get(QUEUE_ARGS, "")),
        paused=_paused(queue.metadata.annotations.get(f"{PREFIX}/paused", "")),
        paused_by=clean(queue.metadata.annotations.get(f"{PREFIX}/paused-by", "")[:200]),
        paused_reason=clean(queue.metadata.annotations.get(f"{PREFIX}/paused-reason", "")[:200]),
    )


def _policy(text: str) -> str:
    """The policy of a queue; raises UnreadableError for an unknown policy, so that the last good policy stays."""
    if text and text not in POLICIES:
        raise unreadable("spec.queuePolicy", "not_a_policy", value=shorten(text, 40), choices=tuple(POLICIES))
    return text


def _backoff(args: str) -> tuple[int, ...]:
    """Pauses between tries, from kube-queue's arguments of a queue; empty when the arguments have no pause."""
    pauses = {name: int(text) for name, text in _BACKOFF.findall(args[:500])}
    if not pauses:
        return ()
    first = max(1, pauses.get("Initial", 1))
    return first * 1000, max(first, pauses.get("Max", 20)) * 1000


def _paused(text: str) -> tuple[str, ...]:
    try:
        return paused_parts(text)
    except RuleError as err:
        raise UnreadableError(err.at(f"metadata.annotations[{PREFIX}/paused]")) from err


def unit_content(spec: QueueUnitSpec, status: QueueUnitStatus | None) -> str:
    """Digest of the fields that Muster alone writes: everything but the priority and the time."""
    named = (spec.consumer_ref, spec.pod_set, spec.queue, spec.request, spec.resource)
    return digest((named, (status.phase, status.message, status.admissions) if status is not None else None))


def read_queue_unit(raw: bytes) -> QueueUnitObserved:
    """A QueueUnit: the job and a digest of the status; no digest where another client has changed Muster's fields."""
    unit: QueueUnit = decode(raw, QueueUnit)
    priority = unit.spec.priority
    return QueueUnitObserved(
        ref=unit.metadata.ref("QueueUnit"),
        rv=unit.metadata.rv,
        owner_uid=next((owner.uid for owner in unit.metadata.owner_references), ""),
        priority=priority if isinstance(priority, int) else None,
        phase=unit.status.phase[:40] if unit.status else "",
        shown=unsealed(unit.metadata.annotations.get(SHOWN, ""), unit_content(unit.spec, unit.status)),
    )


def queue_name_prefix(path: str) -> str:
    """GenerateName of the Queue of a quota path: ``root/algorithm/video`` -> ``root-algorithm-video-``.

    kube-queue's rule: slashes and underscores become dashes, lower case, cut on the left to 58 characters. Other
    characters not allowed in names become dashes too; kube-queue leaves such names to the API server to refuse.
    """
    text = re.sub(r"[^a-z0-9.-]", "-", f"{path}-".lower())
    prefix = re.sub(r"[-.]*\.[-.]*", ".", text)[-58:].lstrip("-.")
    return f"{prefix[:-1]}-" if prefix.endswith(".") else prefix


def queue_name(path: str) -> str:
    """The whole name. The five letters are a hash of the path, so that two creations make one object."""
    number = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "big")
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        letters.append(_SUFFIX_LETTERS[letter])
    return queue_name_prefix(path) + "".join(letters)
