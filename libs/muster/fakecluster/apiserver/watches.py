"""Watch streams: the lines of a watcher, their order, and the first version.

Synchronous: a stream hands each line to a callback at once. `transport` makes a byte stream of the lines, with time
limits and faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.fakecluster.apiserver.lists import wanted_version
from muster.fakecluster.apiserver.selectors import Match, parse_selectors
from muster.fakecluster.apiserver.status import Obj, StatusError
from muster.fakecluster.apiserver.store import KindTable, Store, StoredChange, watch_line

INITIAL_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the objects a watch begins with."""


class WatchStream:
    """One watch. ``deliver`` gets each line; after ``close`` it gets none."""

    def __init__(
        self, store: Store, table: KindTable, namespace: str, query: Mapping[str, str], deliver: Callable[[bytes], None]
    ) -> None:
        self._store = store
        self._table = table
        self._namespace = namespace
        self._deliver = deliver
        self._matches: Match | None = parse_selectors(query, table.kind.fields)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        version = wanted_version(query)
        self._after = 0
        self.failed = False
        """The stream ended with an error line: nothing follows it."""
        self._stop = store.subscribe(self._on_change, table.kind.resource)
        try:
            self._begin(version, wants_all=query.get("sendInitialEvents") in ("true", "1"))
        except StatusError as err:
            self.fail(err)

    def close(self) -> None:
        """Deliver nothing more. May be called twice."""
        self._stop()
        self._stop = _nothing

    def fail(self, error: StatusError) -> None:
        """End the stream by an error line, as a server does that has forgotten what the watcher asks for."""
        self.failed = True
        self._deliver(watch_line("ERROR", error.body))
        self.close()

    def bookmark(self) -> None:
        """Send the watcher a bookmark, if it asked for them."""
        if self._bookmarks and not self.failed:
            self._deliver(self._bookmark({}))

    def _begin(self, version: int | None, *, wants_all: bool) -> None:
        if version and not wants_all:
            self._after = version
            for change in self._table.since(version):
                self._on_change(change)
            return
        # An unset version and 0 both begin with the existing objects, as made-up additions.
        self._after = self._store.version
        for key in sorted(self._table.objects):
            obj = self._table.objects[key]
            if self._wanted(obj):
                self._deliver(watch_line("ADDED", obj))
        if self._bookmarks and (wants_all or version == 0):
            self._deliver(self._bookmark({INITIAL_END: "true"}))

    def _wanted(self, obj: Obj) -> bool:
        if self._namespace and obj["metadata"].get("namespace") != self._namespace:
            return False
        return self._matches is None or self._matches(obj)

    def _on_change(self, change: StoredChange) -> None:
        """Deliver a change as this watcher sees it: an object can enter and leave its selection."""
        if change.version <= self._after:
            return
        before = change.previous is not None and self._wanted(change.previous)
        after = change.type != "DELETED" and self._wanted(change.object)
        if after and not before:
            kind = "ADDED"
        elif before and not after:
            kind = "DELETED"
        elif after:
            kind = "MODIFIED"
        else:
            return
        if kind == change.type:
            self._deliver(change.line)
        elif kind == "DELETED" and change.previous is not None:
            # What is seen last of an object that left the selection is how it was in it, with the new version.
            version = change.object["metadata"]["resourceVersion"]
            left = {**change.previous, "metadata": {**change.previous["metadata"], "resourceVersion": version}}
            self._deliver(watch_line(kind, left))
        else:
            self._deliver(watch_line(kind, change.object))

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        resource = self._table.kind.resource
        meta: Obj = {"resourceVersion": str(self._store.version)}
        if annotations:
            meta["annotations"] = annotations
        return watch_line("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta})


def _nothing() -> None:
    """What stopping a stopped stream does."""
