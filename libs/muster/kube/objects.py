"""The fields of Kubernetes JSON in use by this package, and their decoders.

Decoding takes two steps: an envelope whose objects stay raw, then the identity of each object alone, so that a
malformed object is a fact about the object and not the failure of a whole page. The code that converts the raw bytes
decides the meaning of an object; nothing here knows a kind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from muster.kube.nesting import NestingError, array_items, object_members

RESOURCE_VERSION_TOO_LARGE = "too large resource version"
"""In the message, lower-cased, of an API server that has not yet seen the resourceVersion asked for."""


class ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    """Identity and version of an object. ``generation`` is 0 if the server keeps none."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0

    @property
    def path(self) -> str:
        """``namespace/name``, or the name alone for an object of the cluster."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class MalformedError(ValueError):
    """Bytes that are no list, no watch event, or no object with a metadata we can read. Trying again is no use."""


class Malformed(Struct, frozen=True):
    """An object with metadata that does not decode: the readable part, and the fault."""

    meta: ObjectMeta | None
    """None when not even a name or uid was found."""
    reason: str


class ListPage(Struct, frozen=True):
    """A page of a list. ``items`` are views into the answer's bytes: copy items that outlive the page."""

    resource_version: str
    token: str
    """Asks for the next page; empty on the last one."""
    items: list[Raw]


class Status(Struct, frozen=True):
    """What a Kubernetes ``Status`` says about a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None


class WatchEvent(Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object (a Status for ERROR)."""

    type: str
    object: Raw


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    token: str = field(name="continue", default="")


class _List(Struct):
    metadata: _ListMeta
    items: list[Raw] | None = None  # Go writes null for an empty list


class _ListedObject(Struct):
    metadata: ObjectMeta


class _StatusDetails(Struct, rename="camel"):
    retry_after_seconds: float = 0


class _StatusBody(Struct):
    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_list = msgspec.json.Decoder(_List)
_event = msgspec.json.Decoder(WatchEvent)
_object = msgspec.json.Decoder(_ListedObject)
_list_meta = msgspec.json.Decoder(_ListMeta)
_status = msgspec.json.Decoder(_StatusBody)
_any = msgspec.json.Decoder()


def decode_page(body: bytes) -> ListPage:
    """The list in ``body``. Raises MalformedError when it is none (a proxy's page, a cut-off answer)."""
    try:
        page = _list.decode(body)
        return ListPage(page.metadata.resource_version, page.metadata.token, page.items or [])
    except RecursionError:
        pass  # one object nested beyond the decoder's depth must not take the whole page with it
    except ValueError as err:
        raise MalformedError(f"cannot read a list: {err}") from err
    try:
        parts = object_members(body)
        meta = _list_meta.decode(parts.get("metadata", b"{}"))
        return ListPage(
            meta.resource_version, meta.token, [Raw(item) for item in array_items(parts.get("items", b"[]"))]
        )
    except (NestingError, ValueError) as err:
        raise MalformedError(f"cannot read a list: {err}") from err


def decode_event(line: bytes) -> WatchEvent:
    """The watch event in ``line``. Raises MalformedError when it is none."""
    try:
        return _event.decode(line)
    except RecursionError:
        pass
    except ValueError as err:
        raise MalformedError(f"cannot read a watch event: {err}") from err
    try:
        parts = object_members(line)
        return WatchEvent(_any.decode(parts["type"]), Raw(parts["object"]))
    except (NestingError, ValueError, KeyError) as err:
        raise MalformedError(f"cannot read a watch event: {err}") from err


def decode_meta(raw: bytes | Raw) -> ObjectMeta | Malformed:
    """The identity of an object. Never raises: an unreadable object is a ``Malformed``."""
    try:
        meta = _object.decode(raw).metadata
    except RecursionError:
        return Malformed(_rescued(raw), "nested too deeply")
    except ValueError as err:
        return Malformed(_rescued(raw), str(err))
    if meta.uid or meta.name:
        return meta
    return Malformed(None, "neither metadata.uid nor metadata.name")


def decode_version(raw: bytes | Raw) -> str:
    """The resourceVersion of an object that need not have a name (a bookmark); empty when there is none."""
    try:
        return _object.decode(raw).metadata.resource_version
    except (ValueError, RecursionError):
        return ""


def decode_status(body: bytes | Raw) -> Status:
    """The ``Status`` in ``body``; an empty Status for any other body."""
    try:
        status = _status.decode(body)
    except (ValueError, RecursionError):
        return Status()
    if status.kind not in {"Status", ""}:
        return Status()
    seconds = status.details.retry_after_seconds if status.details else 0
    return Status(status.code, status.reason, status.message, seconds if seconds > 0 else None)


def _rescued(raw: bytes | Raw) -> ObjectMeta | None:
    """The strings of the metadata that can be read singly; None without a name or uid."""
    try:
        members = object_members(object_members(bytes(raw))["metadata"])
    except (NestingError, ValueError, KeyError):
        return None

    def text(name: str) -> str:
        value: Any = None
        with suppress(ValueError, RecursionError):
            value = _any.decode(members.get(name, b"null"))
        return value if isinstance(value, str) else ""

    if not text("uid") and not text("name"):
        return None
    return ObjectMeta(text("uid"), text("name"), text("namespace"), text("resourceVersion"))
