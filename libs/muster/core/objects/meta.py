"""The part every Kubernetes object shares, and how a broken object is told from a good one."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.model.keys import Ref

PREFIX = "muster.dev"
INTENT = f"{PREFIX}/intent"
QUEUED_AT = f"{PREFIX}/queued-at"
DEQUEUED_AT = f"{PREFIX}/dequeued-at"
ENQUEUE_STAMPS = ("kube-queue/job-enqueue-timestamp", "koord-queue/job-enqueue-timestamp")
DEQUEUE_STAMPS = ("kube-queue/job-dequeue-timestamp", "koord-queue/job-dequeue-timestamp")
MAX_REASON = 500


class UnreadableError(Exception):
    """An object cannot be used as input; the message names the field and what is wrong with it."""


class Owner(Struct, frozen=True):
    """One entry of metadata.ownerReferences."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel"):
    """metadata, as far as anybody here reads it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()

    @property
    def rv(self) -> int:
        """resourceVersion as an integer; raises UnreadableError when it is not one."""
        if not (self.resource_version.isascii() and self.resource_version.isdigit()):
            raise UnreadableError(f"metadata.resourceVersion: {self.resource_version[:40]!r} is not an integer")
        return int(self.resource_version)

    @property
    def controller(self) -> Owner:
        """The owner that controls it; an empty one when there is none."""
        return next((owner for owner in self.owner_references if owner.controller), Owner())

    def ref(self, kind: str) -> Ref:
        return Ref(kind, self.namespace, self.name, self.uid)


def decode(raw: bytes, shape: type[Any]) -> Any:
    """The object as ``shape``; raises UnreadableError naming the path of the first field that does not fit."""
    try:
        return _decoder(shape).decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as err:
        raise UnreadableError(_as_path(str(err))) from err


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(shape: type[Any]) -> msgspec.json.Decoder[Any]:
    found = _decoders.get(shape)
    if found is None:
        found = _decoders[shape] = msgspec.json.Decoder(shape)
    return found


def _as_path(message: str) -> str:
    """msgspec's ``Expected `int`, got `str` - at `$.spec.replicas``` as ``spec.replicas: expected int, got str``."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    text = message if match is None else f"{match[2] or 'object'}: {match[1][:1].lower()}{match[1][1:]}"
    return text.replace("`", "")[:MAX_REASON]


_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)? \+0000 UTC( m=.*)?")


def parse_time(text: str) -> int:
    """A timestamp as ms since the epoch, 0 when it cannot be read.

    Reads RFC 3339 and the text Go prints for a time, with or without its monotonic part
    (``2025-01-10 01:36:24.298639916 +0000 UTC m=+132100.25``), as the kube-queue annotations hold it.
    """
    if not text or len(text) > 80:
        return 0
    match = _GO_TIME.fullmatch(text)
    if match:
        text = f"{match[1]}T{match[2]}{(match[3] or '')[:7]}+00:00"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return max(0, (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int) -> str:
    """``2025-01-10T01:36:24.298Z``; whole seconds without a fraction."""
    seconds, rest = divmod(ms, 1000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{rest:03d}Z" if rest else f"{stamp}Z"


def go_time(ms: int) -> str:
    """``2025-01-10 01:36:24.298 +0000 UTC``: how Go prints a time, as the kube-queue annotations hold it."""
    seconds, rest = divmod(ms, 1000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    fraction = f".{rest:03d}".rstrip("0").rstrip(".")
    return f"{stamp}{fraction} +0000 UTC"


def first_stamp(annotations: dict[str, str], *keys: str) -> int:
    """The first readable timestamp among the annotations, ms since the epoch; 0 when there is none."""
    return next((ms for key in keys if (ms := parse_time(annotations.get(key, "")))), 0)


def digest(value: object) -> str:
    """A short stable fingerprint of a struct's content."""
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=8).hexdigest()
