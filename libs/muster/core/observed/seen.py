"""Which version of each object has been folded: duplicates and late facts change nothing.

Facts carry the whole observed object, so only the newest counts. An end is remembered for TOMBSTONE_MS of log time, so
that a fact that arrives even later does not bring the object back. A newer version than that of the end does: an
object may stop being what it was (the child of a workload, a pod of ours) and become it again.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.facts import ObjectGone

TOMBSTONE_MS = 15 * 60 * 1000


class End(Struct, frozen=True):
    """When an object ended, in log time, and from which version on; 0: no later version counts."""

    at: int
    rv: int


class Seen(Struct):
    """{uid: newest resourceVersion folded}, and the recently ended ones."""

    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[str, End] = field(default_factory=dict)
    """By uid, oldest first."""

    def stale(self, uid: str, rv: int) -> bool:
        """Whether ``rv`` of ``uid`` says nothing that is not known."""
        end = self.ended.get(uid)
        if end is not None:
            return not end.rv or rv <= end.rv
        return rv <= self.versions.get(uid, -1)

    def newer(self, uid: str, rv: int) -> bool:
        """Whether a fact about ``uid`` at ``rv`` says something new; remembers it if so."""
        if self.stale(uid, rv):
            return False
        self.ended.pop(uid, None)
        self.versions[uid] = rv
        return True

    def end(self, event: ObjectGone, now: int) -> bool:
        """The object is gone; False when that was known, or when something newer is."""
        uid, rv = event.ref.uid, event.rv
        if 0 < rv < self.versions.get(uid, 0):
            return False
        self.versions.pop(uid, None)
        before = self.ended.pop(uid, None)
        if event.unwatched:
            return before is None
        self.ended[uid] = End(now, rv if before is None else min(rv, before.rv) and max(rv, before.rv))
        while True:
            oldest = next(iter(self.ended))
            if self.ended[oldest].at >= now - TOMBSTONE_MS:
                return before is None
            del self.ended[oldest]
