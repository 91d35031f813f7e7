"""One shard of the watcher: what it has reported of one resource, and which facts an observation adds to that.

The state is folded from the shard's own past facts, so a restarted or newly elected watcher reports exactly what
changed since the last fact in the log, and says of everything that vanished meanwhile that it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.meta import MAX_NAME, MAX_NAMESPACE, MAX_REASON, UnreadableError, as_path, digest
from muster.core.objects.registry import WATCHED, Watched
from muster.core.seen import Seen
from muster.core.stage import Arm, StageState, Violation
from muster.core.workloads.registry import KINDS
from muster.events.base import Decision, Event
from muster.events.facts import (
    ChildGone,
    ChildObserved,
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
    WorkloadFinished,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.events.registry import encode
from muster.model.keys import Position, Ref
from muster.model.text import clean, shorten

MAX_FACT_BYTES = 256 * 1024
"""A fact longer than this is refused: nothing a decision needs is that long."""


MAX_UID = MAX_NAMESPACE + 1 + MAX_NAME
"""An object without a uid goes by its namespace and name."""


class Reported(Struct):
    """What was reported of one object last."""

    ref: Ref
    rv: int
    fingerprint: str
    phase: str = ""
    own: bool = False
    """It was reported as a workload, and may also be what another one runs through."""


class WatchState(StageState):
    """uid -> what was reported of it last, for the objects of one shard that exist."""

    objects: dict[str, Reported] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)


class Watcher:
    """The stage ``watcher``, one shard of it. It decides nothing: facts are input, made by :meth:`observe`."""

    name: ClassVar[str] = "watcher"

    def __init__(self, shard: str, kinds: Collection[str] = KINDS) -> None:
        """``kinds``: the workload kinds that are on; of another kind only what those run through is reported."""
        self.row: Watched = WATCHED[shard]
        self._read = self.row.read
        self.kind = self.row.kind
        self._off = self.kind in KINDS and self.kind not in kinds

    def initial(self) -> WatchState:
        return WatchState()

    def arms(self) -> Mapping[type[Event], Arm]:
        arms: dict[type[Event], Arm] = {ObjectUnreadable: self._observed}
        for observed, gone in self._roles():
            arms |= {observed: self._observed, gone: self._gone}
        return arms

    def _roles(self) -> Iterator[tuple[type[Event], type[ObjectGone]]]:
        yield self.row.observed, self.row.gone
        if self.row.both:
            yield ChildObserved, ChildGone

    def _observed(self, state: WatchState, _at: Position, event: Event) -> None:
        ref, rv, fingerprint, phase = subject(event)
        if ref.kind == self.kind and state.seen.newer(ref.uid, rv):
            known = state.objects.get(ref.uid)
            own = isinstance(event, WorkloadObserved) and self.row.both
            if isinstance(event, ObjectUnreadable):
                own = known is not None and known.own
            state.objects[ref.uid] = Reported(ref, rv, fingerprint, phase, own)

    def _gone(self, state: WatchState, at: Position, event: ObjectGone) -> None:
        if event.ref.kind == self.kind and state.seen.end(event.ref.uid, at.at):
            state.objects.pop(event.ref.uid, None)

    def decide(self, state: WatchState) -> list[Decision]:
        return []

    def next_deadline(self, state: WatchState) -> int | None:
        return None

    def check(self, state: WatchState) -> list[Violation]:
        return []

    # --- observations -----------------------------------------------------------------------------------------

    def observe(self, state: WatchState, ref: Ref, rv: int, raw: bytes) -> list[Event]:
        """The facts an object adds to what was reported: none when nothing we declare has changed."""
        ref = bounded(ref)
        known = state.objects.get(ref.uid)
        if known is not None and known.own and self._off:
            return self.vanished(state, ref, rv)
        if ref.uid in state.seen.ended or (known is not None and rv <= known.rv):
            return []
        try:
            fact = self._read(raw)
            if fact is None or (self._off and isinstance(fact, WorkloadObserved)):
                return self.vanished(state, ref, rv)
            size = len(encode(fact))
            if size > MAX_FACT_BYTES:
                raise UnreadableError(f"object: what is needed of it takes {size} bytes, over {MAX_FACT_BYTES}")
        except UnreadableError as err:
            return self.unreadable(state, ref, rv, str(err))
        return self.report(state, fact)

    def unreadable(self, state: WatchState, ref: Ref, rv: int, reason: str) -> list[Event]:
        """The fact that an object cannot be used, unless it was reported with this very reason."""
        text = shorten(clean(as_path(reason)), MAX_REASON)
        return self.report(state, ObjectUnreadable(ref=bounded(ref), rv=rv, reason=text))

    def report(self, state: WatchState, fact: Event) -> list[Event]:
        """The fact and what follows from it, unless it says what was reported already."""
        ref, _, fingerprint, phase = subject(fact)
        known = state.objects.get(ref.uid)
        if known is not None and known.fingerprint == fingerprint:
            return []
        return [fact, *self._lifecycle(known, fact, phase)]

    @staticmethod
    def _lifecycle(known: Reported | None, fact: Event, phase: str) -> Iterator[Event]:
        if not isinstance(fact, WorkloadObserved) or (known is not None and known.phase == phase):
            return
        workload = fact.workload
        if phase == "running":
            yield WorkloadStarted(ref=workload.ref, detail=workload.detail)
        elif phase == "finished":
            yield WorkloadFinished(ref=workload.ref, outcome=workload.outcome, detail=workload.detail)

    def vanished(self, state: WatchState, ref: Ref, rv: int = 0) -> list[Event]:
        """The fact that an object is gone, if it was reported."""
        ref = bounded(ref)
        known = state.objects.get(ref.uid)
        if known is None:
            return []
        gone = ChildGone if self.row.both and not known.own else self.row.gone
        return [gone(ref=ref, rv=rv)]


def bounded(ref: Ref) -> Ref:
    """The reference itself; cut where no API server lets a name or a uid be as long."""
    if len(ref.uid) <= MAX_UID and len(ref.name) <= MAX_NAME and len(ref.namespace) <= MAX_NAMESPACE:
        return ref
    return Ref(ref.kind, ref.namespace[:MAX_NAMESPACE], ref.name[:MAX_NAME], ref.uid[:MAX_UID])


def subject(event: Event) -> tuple[Ref, int, str, str]:
    """Of a fact: the object, its resourceVersion, a fingerprint of everything else, and a workload's phase."""
    match event:
        case WorkloadObserved():
            workload = event.workload
            return workload.ref, workload.rv, digest(replace(workload, rv=0)), workload.phase
        case PodObserved():
            return event.pod.ref, event.pod.rv, digest(replace(event.pod, rv=0)), ""
        case ChildObserved():
            return event.child.ref, event.child.rv, digest(replace(event.child, rv=0)), ""
        case PodGroupObserved():
            return event.pod_group.ref, event.pod_group.rv, digest(replace(event.pod_group, rv=0)), ""
        case NodeObserved():
            return event.node.ref, event.node.rv, digest(replace(event.node, rv=0)), ""
        case QuotaTreeObserved() | QueueObserved() | QueueUnitObserved() | PriorityClassObserved() | ObjectUnreadable():
            return event.ref, event.rv, digest(replace(event, rv=0)), ""
        case NodePoolsObserved() | NodesRequestObserved():
            return event.ref, event.rv, digest(replace(event, rv=0)), ""
    raise AssertionError(f"{type(event).__name__} says nothing about one object")
