"""The end of objects: grace periods, finalizers, and the garbage collector that follows owner references.

Called by the verbs in `objects`. The collector works at once, inside the request; a real collector takes a moment
longer and does the same.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from msgspec import Struct

from muster.fakecluster.apiserver.names import moment, stamp
from muster.fakecluster.apiserver.pods import grace_s
from muster.fakecluster.apiserver.status import Obj, bad_request, wrong_precondition
from muster.fakecluster.apiserver.store import KindTable, Store
from muster.model.api import NAMESPACES

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

Propagation = Literal["", "Background", "Foreground", "Orphan"]


class DeleteOptions(Struct, frozen=True, kw_only=True):
    """What a DELETE may ask for. An empty propagation takes the kind's default."""

    propagation: Propagation = ""
    grace_s: int | None = None
    uid: str = ""
    """Refuse when the object has another uid."""
    version: str = ""
    """Refuse when the object has another resourceVersion."""


def delete_options(body: object, query: dict[str, str]) -> DeleteOptions:
    """The options of a DELETE request, from its body or its query."""
    given = body if isinstance(body, dict) else {}
    preconditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = given.get("propagationPolicy") or query.get("propagationPolicy", "")
    if propagation not in get_args(Propagation):
        raise bad_request(f'propagationPolicy: Unsupported value: "{propagation}"')
    return DeleteOptions(
        propagation=cast("Propagation", propagation),
        grace_s=None if grace is None else int(grace),
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
    )


class Deletion:
    """Deletes objects from a store and collects what they leave behind."""

    def __init__(self, store: Store, *, collect: bool) -> None:
        self._store = store
        self._collect = collect

    def delete(self, table: KindTable, obj: Obj, options: DeleteOptions, now: int) -> tuple[Obj, bool]:
        """Delete an object; returns the object of the answer, and whether this is the last state.

        An object that waits for finalizers or its grace period is shown marked, even if the collector takes the last
        finalizer off within this call.
        """
        resource, meta = table.kind.resource, obj["metadata"]
        if options.uid and options.uid != meta["uid"]:
            raise wrong_precondition(resource, meta["name"], "uid", options.uid, meta["uid"])
        if options.version and options.version != meta["resourceVersion"]:
            raise wrong_precondition(resource, meta["name"], "version", options.version, meta["resourceVersion"])
        finalizers = [name for name in meta.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
        propagation = options.propagation or ("Orphan" if table.kind.orphans else "Background")
        if propagation == "Orphan":
            finalizers.append(ORPHAN)
        elif propagation == "Foreground":
            finalizers.append(FOREGROUND)
        grace = self._grace(table, obj, options)
        if grace is None:
            return obj, False
        marked = obj
        if finalizers or table.kind.graceful:
            marked = self._mark(table, obj, finalizers, grace, now)
        if finalizers or grace > 0:
            self._collect_marked(marked, now)
            return marked, False
        return self.remove(table, marked, now), True

    def remove(self, table: KindTable, obj: Obj, now: int) -> Obj:
        """Remove an object, and everything that belongs to the object alone; returns the last state."""
        if table.kind.resource == NAMESPACES:
            self._empty_namespace(obj["metadata"]["name"], now)
        last = self._store.remove(table, obj)
        if self._collect:
            self._collect_dependents(obj["metadata"]["uid"], now)
            self._release_owners(obj, now)
        return last

    def emptied(self, old: Obj, new: Obj) -> bool:
        """Whether a change took the last finalizer of an object that was only waiting for that."""
        meta = old["metadata"]
        if not meta.get("deletionTimestamp") or new["metadata"].get("finalizers"):
            return False
        return not meta.get("deletionGracePeriodSeconds")

    def collect_if_abandoned(self, table: KindTable, obj: Obj, now: int) -> None:
        """Delete a new object whose owners were gone before it came."""
        if self._collect and not self._owned(obj):
            self.delete(table, obj, DeleteOptions(propagation="Background"), now)

    def _grace(self, table: KindTable, obj: Obj, options: DeleteOptions) -> int | None:
        """Seconds to wait before the object goes; None when it is going already and would not go sooner."""
        meta = obj["metadata"]
        if not table.kind.graceful:
            return None if meta.get("deletionTimestamp") and meta.get("finalizers") else 0
        wanted = grace_s(obj, options.grace_s)
        if not meta.get("deletionTimestamp"):
            return wanted
        left = meta.get("deletionGracePeriodSeconds", 0)
        if left == 0:
            return None if meta.get("finalizers") else 0
        return wanted if options.grace_s is not None and wanted < left else None

    def _mark(self, table: KindTable, obj: Obj, finalizers: list[str], grace: int, now: int) -> Obj:
        """The object marked as going. A second mark only brings the end forward."""
        meta = {**obj["metadata"]}
        first = not meta.get("deletionTimestamp")
        start = now if first else moment(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"] * 1000
        if first and "generation" in meta:
            meta["generation"] += 1
        meta["deletionTimestamp"] = stamp(max(start + grace * 1000, now))
        meta["deletionGracePeriodSeconds"] = grace
        meta["finalizers"] = finalizers
        if not finalizers:
            del meta["finalizers"]
        return self._store.put(table, {**obj, "metadata": meta})

    def _collect_marked(self, marked: Obj, now: int) -> None:
        """Do the collector's part for an object that waits for its dependents, or for their release."""
        if not self._collect:
            return
        uid, finalizers = marked["metadata"]["uid"], marked["metadata"].get("finalizers") or ()
        if ORPHAN in finalizers:
            for dependent in self._store.dependents(uid):
                self._disown(dependent, {uid}, now)
            self._drop_finalizer(uid, ORPHAN, now)
        if FOREGROUND in finalizers:
            for dependent in self._store.dependents(uid):
                self._delete_dependent(dependent, now, "Foreground")
            self._finish_foreground(uid, now)

    def _collect_dependents(self, uid: str, now: int) -> None:
        """Delete objects kept alive by the vanished owner alone; others only lose their reference."""
        for dependent in self._store.dependents(uid):
            place = self._store.by_uid(dependent)
            if place is not None and self._owned(place[1]):
                self._disown(dependent, {uid}, now)
            else:
                self._delete_dependent(dependent, now, "Background")

    def _release_owners(self, obj: Obj, now: int) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            self._finish_foreground(owner["uid"], now)

    def _finish_foreground(self, uid: str, now: int) -> None:
        place = self._store.by_uid(uid)
        waiting = place is not None and FOREGROUND in (place[1]["metadata"].get("finalizers") or ())
        if waiting and not self._store.dependents(uid):
            self._drop_finalizer(uid, FOREGROUND, now)

    def _owned(self, obj: Obj) -> bool:
        """Whether the object has an owner that exists, or has none at all."""
        owners = obj["metadata"].get("ownerReferences") or ()
        return not owners or any(self._store.by_uid(owner["uid"]) is not None for owner in owners)

    def _delete_dependent(self, uid: str, now: int, propagation: Propagation) -> None:
        place = self._store.by_uid(uid)
        if place is not None and not place[1]["metadata"].get("deletionTimestamp"):
            self.delete(place[0], place[1], DeleteOptions(propagation=propagation), now)

    def _disown(self, uid: str, owners: set[str], now: int) -> None:
        place = self._store.by_uid(uid)
        if place is None:
            return
        table, obj = place
        kept = [entry for entry in obj["metadata"]["ownerReferences"] if entry["uid"] not in owners]
        self._write_metadata(table, obj, "ownerReferences", kept, now)

    def _drop_finalizer(self, uid: str, name: str, now: int) -> None:
        place = self._store.by_uid(uid)
        if place is None:
            return
        table, obj = place
        kept = [entry for entry in obj["metadata"].get("finalizers") or () if entry != name]
        self._write_metadata(table, obj, "finalizers", kept, now)

    def _write_metadata(self, table: KindTable, obj: Obj, key: str, value: list[str] | list[Obj], now: int) -> None:
        meta = {**obj["metadata"], key: value}
        if not value:
            del meta[key]
        changed = {**obj, "metadata": meta}
        if self.emptied(obj, changed):
            self.remove(table, changed, now)
        else:
            self._store.put(table, changed)

    def _empty_namespace(self, namespace: str, now: int) -> None:
        """Delete everything in a namespace, finalizers or not: its controllers are not waited for."""
        for table in self._store.tables():
            if not table.kind.resource.namespaced:
                continue
            for obj in [obj for obj in table.objects.values() if obj["metadata"]["namespace"] == namespace]:
                if self._store.by_uid(obj["metadata"]["uid"]) is not None:
                    self.remove(table, obj, now)
