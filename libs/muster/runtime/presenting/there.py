"""The objects that the presenter keeps, as they are on the API server: by uid and version, whichever client wrote.

The log tells of QueueUnits, Queues and the PodGroups of gangs. The statuses of quota trees and the PodGroups of KAI
Scheduler are in no fact: the presenter watches these objects itself. The own last write only answers for the time until
an observation has caught up with the write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.objects.meta import digest, version_of
from muster.kube import deltas
from muster.kube.reflector import Reflector
from muster.model.api import ApiResource
from muster.ports import ApiTransport
from muster.told.presentation.desired import ObjectVersion

UNSEEN_S = 60.0
"""How long a written object may stay unobserved: after this time the object counts as missing."""
LISTED_S = 5.0
"""How long the first list of a watched resource is waited for; without the right to list, the own writes count."""
_TIMES = ("lastTransitionTime", "lastUpdateTime")


class Content(Struct, frozen=True):
    """Digests of the two parts that are written apart where the server keeps the status apart."""

    body: str
    status: str


class Left(Struct, frozen=True):
    """The object as the presenter's last write left it."""

    seen: ObjectVersion
    shown: str
    """Fingerprint of the desired state."""
    wanted: Content
    content: Content
    at: float
    """Loop time."""


class _Object(Struct, frozen=True):
    metadata: dict[str, Any] = {}
    spec: Any = None
    status: Any = None


class WatchedObject(Struct, frozen=True):
    """An object of an own watch."""

    seen: ObjectVersion
    content: Content
    raw: _Object | None = None
    """The object itself, until the presenter has compared it once."""


def content_of(metadata: Mapping[str, Any], spec: Any, status: Any) -> Content:
    """Digests of the fields of an object that the presenter writes."""
    kept = {key: metadata.get(key) or None for key in ("labels", "ownerReferences")}
    return Content(digest((kept, spec or None)), digest(status or None))


def read(raw: bytes) -> tuple[ObjectVersion, _Object] | None:
    """The identity and the object; None for anything else."""
    try:
        written = msgspec.json.decode(raw, type=_Object)
        version = version_of(str(written.metadata.get("resourceVersion", "")))
    except (msgspec.DecodeError, ValueError):
        return None
    uid = written.metadata.get("uid")
    return (ObjectVersion(uid, version or 0), written) if isinstance(uid, str) else None


def covers(there: Any, wanted: Any) -> bool:
    """Whether a merge patch with the wanted fields would change nothing but times."""
    if not wanted and isinstance(wanted, dict | list):
        return isinstance(wanted, dict) or not there
    if isinstance(wanted, dict):
        fields = [key for key in wanted if key not in _TIMES]
        return isinstance(there, dict) and all(covers(there.get(key), wanted[key]) for key in fields)
    if isinstance(wanted, list):
        same = isinstance(there, list) and len(there) == len(wanted)
        return same and all(map(covers, there, wanted))
    return bool(there == wanted)


class There:
    """Keys are the presenter's: ``KIND/NAME``. ``changed`` is called with the key of each object that changed."""

    def __init__(self, transport: ApiTransport, changed: Callable[[str], None]) -> None:
        self._transport = transport
        self._changed = changed
        self._left: dict[str, Left] = {}
        self._present: dict[str, WatchedObject] = {}
        self._keys: dict[str, str] = {}
        """uid of an object that was written or is watched -> key"""
        self._watched: dict[str, float] = {}
        """path of a watched resource -> loop time since when the objects are known; before: until when to wait"""

    def left(self, key: str) -> Left | None:
        """The last write, until the object is gone."""
        return self._left.get(key)

    def seen(self, key: str) -> ObjectVersion | None:
        """Of an own watch."""
        present = self._present.get(key)
        return present.seen if present is not None else None

    def holds(self, key: str, shown: str, seen: ObjectVersion | None, now: float) -> bool:
        """Whether the last write shows this state, and is the newest. ``seen``: as the log knows the object."""
        left = self._left.get(key)
        if left is None or left.shown != shown:
            return False
        present = self._present.get(key)
        if present is not None:
            newer = present.seen.rv > left.seen.rv
            return present.seen.uid == left.seen.uid and not (newer and present.content != left.content)
        if seen is None:
            return now < left.at + UNSEEN_S
        return seen.uid == left.seen.uid and seen.rv <= left.seen.rv

    def differs(self, key: str, wanted: Mapping[str, Any]) -> tuple[bool, bool]:
        """Whether the body, and whether the status, must be written: the part differs from the last write, or another
        client has changed the part since.
        """
        left, present, new = self._left.get(key), self._present.get(key), _wanted(wanted)
        if left is None:
            return True, True
        there = left.content
        if present is not None and present.seen.rv > left.seen.rv:
            if present.seen.uid != left.seen.uid:
                return True, True
            there = present.content
        body = new.body != left.wanted.body or there.body != left.content.body
        return body, new.status != left.wanted.status or there.status != left.content.status

    def adopt(self, key: str, shown: str, wanted: Mapping[str, Any], now: float) -> bool:
        """Whether an object of an own watch, written by an earlier process, is as wanted already."""
        present = self._present.get(key)
        if present is None or present.raw is None:
            return False
        self._present[key] = msgspec.structs.replace(present, raw=None)
        if not covers(msgspec.to_builtins(present.raw), dict(wanted)):
            return False
        self._left[key] = Left(present.seen, shown, _wanted(wanted), present.content, now)
        return True

    def wrote(self, key: str, shown: str, wanted: Mapping[str, Any], answer: bytes, now: float) -> None:
        """The server took a write; ``answer`` is the object after the write."""
        written = read(answer)
        if written is None:
            return
        seen, there = written
        content = content_of(there.metadata, there.spec, there.status)
        self._left[key] = Left(seen, shown, _wanted(wanted), content, now)
        self._keys[seen.uid] = key

    def forget(self, uid: str) -> None:
        """The object with this uid is gone: what was written on it is void."""
        key = self._keys.pop(uid, None)
        if key is not None and self._left.get(key, _NOTHING).seen.uid == uid:
            del self._left[key]

    def drop(self, key: str) -> None:
        """Nothing is wanted there any more."""
        left = self._left.pop(key, None)
        if left is not None and key not in self._present:
            self._keys.pop(left.seen.uid, None)

    def unobserved(self, now: float) -> list[str]:
        """Keys of the objects that were written a while ago."""
        return [key for key, left in self._left.items() if left.at + UNSEEN_S <= now < left.at + 2 * UNSEEN_S]

    def known(self, resource: ApiResource, now: float) -> bool:
        """Whether the objects of a watched resource are known, or have been waited for long enough."""
        return now >= self._watched.setdefault(resource.path(), now + LISTED_S)

    async def watch(self, resource: ApiResource, keyed: Callable[[Mapping[str, Any]], str]) -> None:
        """Follow the objects of a resource, for ever. ``keyed``: metadata to key; empty for an object of others."""
        async with aclosing(Reflector(self._transport, resource).deltas()) as changes:
            async for delta in changes:
                match delta:
                    case deltas.ListSynced() | deltas.Absent():
                        self._watched[resource.path()] = 0.0
                    case deltas.Upsert():
                        self._observed(delta.raw, keyed)
                    case deltas.Delete():
                        self._gone(delta.meta.uid)
                    case _:
                        pass

    def _observed(self, raw: bytes, keyed: Callable[[Mapping[str, Any]], str]) -> None:
        observed = read(raw)
        key = keyed(observed[1].metadata) if observed is not None else ""
        if observed is None or not key:
            return
        seen, there = observed
        new = key not in self._present and key not in self._left
        content = content_of(there.metadata, there.spec, there.status)
        self._present[key] = WatchedObject(seen, content, there if new else None)
        self._keys[seen.uid] = key
        self._changed(key)

    def _gone(self, uid: str) -> None:
        key = self._keys.get(uid, "")
        present = self._present.get(key)
        if present is not None and present.seen.uid == uid:
            del self._present[key]
        self.forget(uid)
        if key:
            self._changed(key)


def _wanted(wanted: Mapping[str, Any]) -> Content:
    status = wanted.get("status")
    return Content(digest((wanted.get("metadata"), wanted.get("spec"))), digest(timeless(status)))


def timeless(value: Any) -> Any:
    """The value without its times."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in _TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


_NOTHING = Left(ObjectVersion("", 0), "", Content("", ""), Content("", ""), 0.0)
