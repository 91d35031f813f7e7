"""The reports of a reflector: how the set of objects differs from its last report."""

from __future__ import annotations

from msgspec import Struct

from muster.kube.objects import ObjectMeta


class Upsert(Struct, frozen=True):
    """An object is new or changed.

    ``raw`` is the JSON. Objects of built-in kinds from a list lack ``kind`` and ``apiVersion``.
    """

    meta: ObjectMeta
    raw: bytes


class Delete(Struct, frozen=True):
    """An object that was reported is gone, or no longer matches the selectors."""

    meta: ObjectMeta
    """Of the deletion where the server told us; else the last one reported."""
    raw: bytes = b""
    """Its last state; empty when its end was not seen but concluded from a list or from a successor's name."""


class Unreadable(Struct, frozen=True):
    """An object with unreadable metadata exists. With a name or uid the object counts as reported."""

    meta: ObjectMeta | None
    reason: str
    head: bytes
    """The first bytes of its JSON, HEAD_BYTES at most."""


class ListSynced(Struct, frozen=True):
    """A complete list has been reported: everything before is the state at ``resource_version``."""

    count: int
    """Objects that exist now."""
    relist: bool
    """False for the first list of this reflector, True for every later one."""
    resource_version: str = ""


class Absent(Struct, frozen=True):
    """The server does not serve the resource (any more). Reported once; a ListSynced follows when the resource
    appears.

    Objects reported before are neither confirmed nor gone until this ListSynced.
    """

    known: int
    """Objects reported and not deleted so far."""


Delta = Upsert | Delete | Unreadable | ListSynced | Absent

HEAD_BYTES = 512
