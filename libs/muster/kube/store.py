"""The objects reported by a reflector with their versions, and the news against this store.

Pure; owned by one reflector, which feeds the results of lists and watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from msgspec import Raw, structs

from muster.kube.deltas import HEAD_BYTES, Delete, Delta, Unreadable, Upsert
from muster.kube.objects import Malformed, ObjectMeta


class ObjectStore:
    """{key: ObjectMeta} of everything reported and not deleted; the key is the uid, or the path without a uid.

    At most one object per path: a successor of the same name ends its predecessor.
    """

    def __init__(self, known: Iterable[ObjectMeta] = ()) -> None:
        self._objects: dict[str, ObjectMeta] = {}
        self._keys: dict[str, str] = {}
        """path -> key in _objects, of every object that has a name."""
        for meta in known:
            self.put(meta)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[ObjectMeta]:
        return iter(self._objects.values())

    def observe(self, given: ObjectMeta | Malformed, raw: Raw, seen: set[str] | None = None) -> list[Delta]:
        """The reports for an existing object in this state; the key goes into ``seen``."""
        deltas: list[Delta] = []
        malformed = given if isinstance(given, Malformed) else None
        meta = given.meta if isinstance(given, Malformed) else given
        if meta is not None:
            meta = self.identify(meta)
            if (before := self.predecessor(meta)) is not None:
                self.drop(before)
                deltas.append(Delete(before))
            held = self.get(meta)
            key = self.put(meta)
            if seen is not None:
                seen.add(key)
            if held is not None and meta.resource_version and held.resource_version == meta.resource_version:
                return deltas
        if malformed is not None:
            deltas.append(Unreadable(meta, malformed.reason, bytes(raw)[:HEAD_BYTES]))
        elif meta is not None:
            deltas.append(Upsert(meta, bytes(raw)))
        return deltas

    def remove(self, given: ObjectMeta | Malformed, raw: Raw) -> list[Delta]:
        """The reports for an object that ended in this state: none if the object was never reported."""
        meta = given.meta if isinstance(given, Malformed) else given
        if meta is None:
            return []
        meta = self.identify(meta)
        return [Delete(meta, bytes(raw))] if self.drop(meta) is not None else []

    def identify(self, meta: ObjectMeta) -> ObjectMeta:
        """``meta``; without a uid, with the uid of the holder of the path."""
        held = self._objects.get(self._keys.get(meta.path, "")) if not meta.uid else None
        return structs.replace(meta, uid=held.uid) if held is not None and held.uid else meta

    def get(self, meta: ObjectMeta) -> ObjectMeta | None:
        """The stored version of the object of ``meta``."""
        return self._objects.get(meta.uid or meta.path)

    def predecessor(self, meta: ObjectMeta) -> ObjectMeta | None:
        """Another object under the path of ``meta``, which must have ended before."""
        holder = self._keys.get(meta.path) if meta.name else None
        return self._objects[holder] if holder is not None and holder != (meta.uid or meta.path) else None

    def put(self, meta: ObjectMeta) -> str:
        """Hold ``meta`` as the newest; returns its key. A predecessor must have been dropped before."""
        key = meta.uid or meta.path
        self._objects[key] = meta
        if meta.name:
            self._keys[meta.path] = key
        return key

    def drop(self, meta: ObjectMeta) -> ObjectMeta | None:
        """Forget the object; returns what was held, None when nothing was."""
        key = meta.uid or meta.path
        held = self._objects.pop(key, None)
        if held is not None and self._keys.get(held.path) == key:
            del self._keys[held.path]
        return held

    def others(self, keys: AbstractSet[str]) -> list[ObjectMeta]:
        """What is held beyond ``keys``, oldest first."""
        return [meta for key, meta in self._objects.items() if key not in keys]
