"""The data of the simulated server: objects by key, a counter for all versions, and a bounded history of changes.

The store knows no verbs and no rules. Stored objects are never changed in place: every write stores a new object,
which may share parts with the old one, so a history of whole objects costs little and readers may keep their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.fakecluster.apiserver.status import Obj, StatusError, expired, too_old
from muster.model.api import ApiResource

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
Key = str
"""``namespace/name``, or ``/name`` for objects of the cluster: sorts as the server lists."""

FIRST_VERSION = 100
"""The counter starts over 1, so that 1 is a version from before everything: too old to be watched from."""

encode = msgspec.json.Encoder().encode


class StoredChange:
    """A write: the new (or last) object, and the object before."""

    __slots__ = ("_line", "object", "previous", "resource", "type", "version")

    def __init__(self, kind: ChangeType, version: int, resource: ApiResource, obj: Obj, previous: Obj | None) -> None:
        self.type = kind
        self.version = version
        self.resource = resource
        self.object = obj
        self.previous = previous
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """The change as a line of a watch stream, without its line feed; encoded once for all watchers."""
        if self._line is None:
            self._line = watch_line(self.type, self.object)
        return self._line


def watch_line(kind: str, obj: Obj) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), encode(obj))


def key_of(obj: Obj) -> Key:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


class KindTable:
    """The objects of one kind and the changes to them that are still remembered."""

    def __init__(self, kind: ResourceRules, version: int, history: int) -> None:
        self.kind = kind
        self.objects: dict[Key, Obj] = {}
        self.changes: deque[StoredChange] = deque()
        self.compacted = version
        """Changes up to this version are forgotten."""
        self._limit = history

    def remember(self, change: StoredChange) -> None:
        self.changes.append(change)
        if len(self.changes) > self._limit:
            self.compacted = self.changes.popleft().version

    def forget(self, version: int) -> None:
        """Drop the changes up to and including ``version``."""
        while self.changes and self.changes[0].version <= version:
            self.changes.popleft()
        self.compacted = max(self.compacted, version)

    def since(self, version: int) -> list[StoredChange]:
        """The changes after ``version``, in order; raises StatusError 410 when some of them are forgotten."""
        if version < self.compacted:
            raise too_old(version, self.compacted)
        if not self.changes or self.changes[-1].version <= version:
            return []
        newer = [change for change in reversed(self.changes) if change.version > version]
        newer.reverse()
        return newer

    def at(self, version: int) -> dict[Key, Obj]:
        """The objects as they were at ``version``; raises StatusError 410 when that is forgotten."""
        try:
            newer = self.since(version)
        except StatusError:
            raise expired("The resourceVersion for the provided list is too old.") from None
        if not newer:
            return self.objects
        objects = dict(self.objects)
        for change in reversed(newer):
            if change.previous is None:
                objects.pop(key_of(change.object), None)
            else:
                objects[key_of(change.object)] = change.previous
        return objects


class Store:
    """All tables, the version counter, which objects depend on which, and the listeners."""

    def __init__(self, history: int) -> None:
        self.version = FIRST_VERSION
        self._history = history
        self._tables: dict[ApiResource, KindTable] = {}
        self._paths: dict[tuple[str, str], KindTable] = {}
        """(root path of the group version, plural) -> table: the same tables."""
        self._places: dict[str, tuple[KindTable, Key]] = {}
        """uid -> where the object is."""
        self._dependents: dict[str, dict[str, None]] = {}
        """uid of an owner -> uids of the objects that name it as owner, whether or not the owner exists."""
        self._listeners: dict[ApiResource | None, list[Callable[[StoredChange], None]]] = {}
        self._telling = False

    def add_table(self, kind: ResourceRules) -> None:
        """Begin to keep a kind, or change its rules."""
        table = self._tables.get(kind.resource)
        if table is None:
            table = self._tables[kind.resource] = KindTable(kind, self.version, self._history)
            self._paths[kind.resource.root, kind.resource.plural] = table
        else:
            table.kind = kind

    def drop_table(self, resource: ApiResource) -> None:
        """Forget a kind with all its objects."""
        table = self._tables.pop(resource)
        del self._paths[resource.root, resource.plural]
        for obj in table.objects.values():
            self._places.pop(obj["metadata"]["uid"], None)

    def tables(self) -> Iterator[KindTable]:
        return iter(list(self._tables.values()))

    def table(self, resource: ApiResource) -> KindTable:
        return self._tables[resource]

    def find_table(self, root: str, plural: str) -> KindTable | None:
        """The table that serves a path, if any does."""
        return self._paths.get((root, plural))

    def load(self, objects: Iterable[Obj], version: int) -> None:
        """Hold these objects as they are, and nothing else; whatever happened up to ``version`` is forgotten."""
        for table in self._tables.values():
            table.objects.clear()
            table.forget(version)
        self._places.clear()
        self._dependents.clear()
        by_kind = {(resource.api_version, resource.kind): table for resource, table in self._tables.items()}
        for obj in objects:
            table = by_kind[obj["apiVersion"], obj["kind"]]
            uid, key = obj["metadata"]["uid"], key_of(obj)
            table.objects[key] = obj
            self._places[uid] = (table, key)
            self._reown(uid, (), obj["metadata"].get("ownerReferences") or ())
        self.version = version

    def subscribe(
        self, listener: Callable[[StoredChange], None], resource: ApiResource | None = None
    ) -> Callable[[], None]:
        """Call ``listener`` after each change of a resource, or of all; returns how to stop that.

        Called at once, in the order of the changes. A listener must not write: a listener takes a note and acts later.
        """
        listeners = self._listeners.setdefault(resource, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def by_uid(self, uid: str) -> tuple[KindTable, Obj] | None:
        place = self._places.get(uid)
        return None if place is None else (place[0], place[0].objects[place[1]])

    def dependents(self, uid: str) -> list[str]:
        """Uids of the objects that name this one as an owner, oldest first."""
        return list(self._dependents.get(uid, ()))

    def put(self, table: KindTable, obj: Obj) -> Obj:
        """Store a new version of an object, whose metadata the caller has just made; returns it."""
        key = key_of(obj)
        previous = table.objects.get(key)
        self.version += 1
        meta = obj["metadata"]
        meta["resourceVersion"] = str(self.version)
        table.objects[key] = obj
        before = [] if previous is None else previous["metadata"].get("ownerReferences") or ()
        if previous is None:
            self._places[meta["uid"]] = (table, key)
        after = meta.get("ownerReferences") or ()
        if before != after:
            self._reown(meta["uid"], before, after)
        kind: ChangeType = "ADDED" if previous is None else "MODIFIED"
        self._tell(table, StoredChange(kind, self.version, table.kind.resource, obj, previous))
        return obj

    def remove(self, table: KindTable, obj: Obj) -> Obj:
        """Forget an object; returns it as the watchers see it last, with the version of its end."""
        previous = table.objects.pop(key_of(obj))
        uid = obj["metadata"]["uid"]
        del self._places[uid]
        self._reown(uid, previous["metadata"].get("ownerReferences") or (), ())
        self.version += 1
        last = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self._tell(table, StoredChange("DELETED", self.version, table.kind.resource, last, previous))
        return last

    def _reown(self, uid: str, before: list[Obj] | tuple[()], after: list[Obj] | tuple[()]) -> None:
        for owner in before:
            dependents = self._dependents.get(owner["uid"])
            if dependents is not None:
                dependents.pop(uid, None)
                if not dependents:
                    del self._dependents[owner["uid"]]
        for owner in after:
            self._dependents.setdefault(owner["uid"], {})[uid] = None

    def _tell(self, table: KindTable, change: StoredChange) -> None:
        assert not self._telling, f"a listener wrote to {change.resource}: it must do that after its call"
        table.remember(change)
        self._telling = True
        try:
            for listener in (*self._listeners.get(change.resource, ()), *self._listeners.get(None, ())):
                listener(change)
        finally:
            self._telling = False
