"""Which version of each object has been folded: duplicates and late facts change nothing.

Facts carry the whole observed object, so only the newest fact counts. An end is remembered for TOMBSTONE_MS of log
time: a fact that arrives late does not restore the object. A version newer than the end does restore the object: an
object may change its role (a child of a workload, a pod of muster) and return to the former role.

The folder of a stage asks once for all parts of the stage (``core.stage``): a stale fact reaches no arm of the stage.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.events.base import Event
from muster.events.decisions import WorkloadAdopted
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
from muster.model.keys import Ref, root_of
from muster.model.quota import QuotaTree

TOMBSTONE_MS = 15 * 60 * 1000

HOLES = 4_096
"""Forgotten ends before the table is rebuilt: to find the first entry, Python passes every deleted entry."""

_SAID: dict[type[Event], str] = {
    WorkloadObserved: "workload",
    PodObserved: "pod",
    ChildObserved: "child",
    PodGroupObserved: "pod_group",
    NodeObserved: "node",
    KaiQueueObserved: "queue",
}
"""{fact: field of the observed object}; every other fact is the observation itself"""
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
"""The facts about the state of an object."""


def said_of(event: Event) -> Any:
    """The value with the name and the resourceVersion of an observed object: the observation, or the fact itself."""
    field_of = _SAID.get(type(event))
    return event if field_of is None else getattr(event, field_of)


def about(event: Event) -> tuple[Ref, int]:
    """The observed object, and its resourceVersion."""
    observed = said_of(event)
    return observed.ref, observed.rv


class End(Struct, frozen=True):
    """The end of an object in log time, and the version of the end; 0: no later version counts."""

    at: int
    rv: int


class Seen(Struct):
    """{uid: newest resourceVersion folded}, and the recently ended objects."""

    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[str, End] = field(default_factory=dict)
    """By uid, oldest first."""
    holes: int = 0
    """Ends forgotten since the table was rebuilt."""

    def stale(self, uid: str, rv: int) -> bool:
        """Whether ``rv`` of ``uid`` adds nothing new."""
        end = self.ended.get(uid)
        if end is not None:
            return not end.rv or rv <= end.rv
        return rv <= self.versions.get(uid, -1)

    def newer(self, uid: str, rv: int) -> bool:
        """Whether a fact about ``uid`` at ``rv`` is new; a new version is remembered."""
        if self.stale(uid, rv):
            return False
        self.ended.pop(uid, None)
        self.versions[uid] = rv
        return True

    def end(self, event: ObjectGone, now: int) -> bool:
        """Note the end of an object; False when the end, or a newer version, is known."""
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


# --- the first sight of the cluster -----------------------------------------------------------------------------------


class FirstSight(Struct):
    """What was found at the first sight of the cluster."""

    over: bool = False
    """All required kinds have been listed once: work found running later started without an admission."""
    found: dict[str, None] = field(default_factory=dict)
    """uids of workloads without an intent of Muster, found at first sight of the cluster"""
    foreign: dict[str, None] = field(default_factory=dict)
    """Roots of trees with charged work that ran without an admission at first sight of the cluster."""

    def observed(self, event: WorkloadObserved) -> None:
        if not self.over and not event.workload.intent:
            self.found[event.workload.ref.uid] = None

    def synced(self, *, everything: bool) -> None:
        """A kind has been listed. ``everything``: no required kind is missing."""
        self.over = self.over or everything

    def adopted(self, event: WorkloadAdopted) -> None:
        if event.reason == "already_running" and event.ref.uid in self.found:
            self.foreign[root_of(event.queue)] = None

    def reclaims(self, tree: QuotaTree | None) -> bool:
        """Whether evictions are on in a tree: by its rules; without a rule, unless foreign work ran at first sight."""
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.rules.reclaim == "enabled" or tree.root not in self.foreign
