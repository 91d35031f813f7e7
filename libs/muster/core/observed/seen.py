"""Which version of each object has been folded: duplicates and late facts change nothing.

Facts carry the whole observed object, so only the newest counts. An end is remembered for TOMBSTONE_MS of log time, so
that a fact that arrives even later does not bring the object back. A newer version than that of the end does: an
object may stop being what it was (the child of a workload, a pod of ours) and become it again.

The folder of a stage asks once for all that the stage is made of (``core.stage``): what says nothing new reaches no
arm of it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.events.base import Event
from muster.events.facts import (
    ChildObserved,
    KaiQueueObserved,
    NodeObserved,
    NodePoolsObserved,
    NodesRequestObserved,
    ObjectGone,
    ObjectUnreadable,
    PodGroupObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
    QueueUnitObserved,
    QuotaTreeObserved,
    WorkloadObserved,
)
from muster.model.keys import Ref

TOMBSTONE_MS = 15 * 60 * 1000

HOLES = 4_096
"""Ends that are forgotten before their table is made again: to find its first, Python passes each that was there."""

_SAID: dict[type[Event], str] = {
    WorkloadObserved: "workload",
    PodObserved: "pod",
    ChildObserved: "child",
    PodGroupObserved: "pod_group",
    NodeObserved: "node",
    KaiQueueObserved: "queue",
}
"""{fact: its field for the observed object}; each of the others is the observation itself"""
OBSERVATIONS: frozenset[type[Event]] = frozenset(
    (
        *_SAID,
        QuotaTreeObserved,
        QueueObserved,
        QueueUnitObserved,
        PriorityClassObserved,
        NodePoolsObserved,
        NodesRequestObserved,
        ObjectUnreadable,
    )
)
"""The facts that say how an object is."""


def said_of(event: Event) -> Any:
    """What has the name and the resourceVersion of an observed object: what was seen of it, or the fact itself."""
    field_of = _SAID.get(type(event))
    return event if field_of is None else getattr(event, field_of)


def about(event: Event) -> tuple[Ref, int]:
    """Of an observation: the object, and its resourceVersion."""
    said = said_of(event)
    return said.ref, said.rv


class End(Struct, frozen=True):
    """When an object ended, in log time, and from which version on; 0: no later version counts."""

    at: int
    rv: int


class Seen(Struct):
    """{uid: newest resourceVersion folded}, and the recently ended ones."""

    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[str, End] = field(default_factory=dict)
    """By uid, oldest first."""
    holes: int = 0
    """How many were forgotten since that table was made."""

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
                break
            del self.ended[oldest]
            self.holes += 1
        if self.holes >= HOLES:
            self.ended, self.holes = dict(self.ended), 0
        return before is None
