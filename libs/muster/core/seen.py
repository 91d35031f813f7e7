"""Which version of each object has been folded: duplicates and late facts change nothing.

Facts carry the whole observed object, so only the newest counts. After an object's end its uid is remembered for
TOMBSTONE_MS of log time, so that a fact of it that arrives even later does not bring it back.
"""

from __future__ import annotations

from msgspec import Struct, field

TOMBSTONE_MS = 15 * 60 * 1000


class Seen(Struct):
    """{uid: newest resourceVersion folded}, and the recently ended ones."""

    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    """uid -> log time of its end, oldest first."""

    def newer(self, uid: str, rv: int) -> bool:
        """Whether a fact about ``uid`` at ``rv`` says something new; remembers it if so."""
        if uid in self.ended or rv <= self.versions.get(uid, -1):
            return False
        self.versions[uid] = rv
        return True

    def end(self, uid: str, now: int) -> bool:
        """The object is gone; False when that was known."""
        if uid in self.ended:
            return False
        self.versions.pop(uid, None)
        self.ended[uid] = now
        while True:
            oldest = next(iter(self.ended))
            if self.ended[oldest] >= now - TOMBSTONE_MS:
                return True
            del self.ended[oldest]
