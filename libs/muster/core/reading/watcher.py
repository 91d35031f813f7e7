"""One shard of the watcher: the reported state of one resource, and the facts that an observation adds.

The state is folded from the shard's own past facts. So a restarted or newly elected watcher reports exactly the changes
since the last fact in the log, and reports the end of every object that vanished meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.meta import MAX_NAME, MAX_NAMESPACE, UnreadableError, digest, unreadable
from muster.core.observed.seen import about, said_of
from muster.core.reading.watched import WATCHED, Watched
from muster.core.stage import Arm, Stage, StageState
from muster.core.workloads.ownership import Parents
from muster.core.workloads.registry import KINDS, parents_of
from muster.events.base import Event
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectGone,
    ObjectUnreadable,
    WorkloadFinished,
    WorkloadGone,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.events.registry import encode
from muster.model.keys import Position, Ref
from muster.model.problem import FieldProblem
from muster.model.workload import PodState, Workload

MAX_FACT_BYTES = 256 * 1024
"""Longest fact: a longer fact is refused; no decision needs more."""


MAX_UID = MAX_NAMESPACE + 1 + MAX_NAME
"""An object without a uid is identified by its namespace and name."""


class Reported(Struct):
    """The last report of one object."""

    ref: Ref
    rv: int
    fingerprint: str
    phase: str = ""
    own: bool = False
    """The object was reported as a workload, and may also be a child of another workload."""
    child: bool = False
    """The object was reported as a child."""


class WatchState(StageState):
    """uid -> last report, for the existing objects of one shard."""

    objects: dict[str, Reported] = field(default_factory=dict)
    parents: Parents = field(default_factory=Parents)
    """The parents' statements about their children in this shard."""


class Watcher(Stage[WatchState]):
    """The stage ``watcher``, one shard. The stage decides nothing: facts are input, made by :meth:`observe`."""

    name: ClassVar[str] = "watcher"
    kept: ClassVar[type[WatchState]] = WatchState
    judges_versions: ClassVar[bool] = True
    """The watcher keeps the versions of its own objects: each shard hears of all workloads."""

    def __init__(self, shard: str, kinds: Collection[str] = KINDS) -> None:
        """``kinds``: the enabled workload kinds; of other kinds only children of enabled kinds are reported."""
        self.row: Watched = WATCHED[shard]
        self._read = self.row.read
        self.kind = self.row.kind
        self._off = self.kind in KINDS and self.kind not in kinds
        self._parents = parents_of(self.kind) if self.row.alone is not None else ()

    def arms(self) -> Mapping[type[Event], Arm]:
        arms: dict[type[Event], Arm] = {ObjectUnreadable: self._observed}
        for observed, gone in self._roles():
            arms |= {observed: self._observed, gone: self._gone}
        if self._parents:
            arms |= {WorkloadObserved: self._workload_observed, WorkloadGone: self._workload_gone}
        return arms

    def _workload_observed(self, state: WatchState, at: Position, event: WorkloadObserved) -> None:
        if event.workload.ref.kind in self._parents:
            state.parents.observed(event.workload)
        else:
            self._observed(state, at, event)

    def _workload_gone(self, state: WatchState, at: Position, event: WorkloadGone) -> None:
        if event.ref.kind in self._parents:
            state.parents.gone(event.ref.uid)
        else:
            self._gone(state, at, event)

    def _roles(self) -> Iterator[tuple[type[Event], type[ObjectGone]]]:
        yield self.row.observed, self.row.gone
        if self.row.both:
            yield ChildObserved, ChildGone

    def _observed(self, state: WatchState, _at: Position, event: Event) -> None:
        ref, rv = about(event)
        if ref.kind == self.kind and state.seen.newer(ref.uid, rv):
            fingerprint, phase = gist(event)
            known = state.objects.get(ref.uid)
            own = isinstance(event, WorkloadObserved) and self.row.both
            child = isinstance(event, ChildObserved)
            if isinstance(event, ObjectUnreadable) and known is not None:
                own, child = known.own, known.child
            state.objects[ref.uid] = Reported(ref, rv, fingerprint, phase, own, child)

    def _gone(self, state: WatchState, at: Position, event: ObjectGone) -> None:
        known = state.objects.get(event.ref.uid)
        if known is not None and (known.own if isinstance(event, ChildGone) else known.child):
            return  # It has been reported in another role just before; see _changed_role.
        if event.ref.kind == self.kind and state.seen.end(event, at.at):
            state.objects.pop(event.ref.uid, None)

    # --- observations -----------------------------------------------------------------------------------------

    def observe(self, state: WatchState, ref: Ref, rv: int, raw: bytes) -> list[Event]:
        """The new facts from an object: none when no declared field has changed."""
        ref = bounded(ref)
        known = state.objects.get(ref.uid)
        if known is not None and known.own and self._off:
            return self.vanished(state, ref, rv, unwatched=True)
        if state.seen.stale(ref.uid, rv) or (known is not None and rv <= known.rv):
            return []
        try:
            fact = self._read(raw)
            if isinstance(fact, ChildObserved) and self.row.alone is not None and state.parents.disown(fact.child):
                fact = self.row.alone(raw)
            off = self._off and isinstance(fact, WorkloadObserved)
            if fact is None or off:
                return self.vanished(state, ref, rv, unwatched=off)
            size = len(encode(fact))
            if size > MAX_FACT_BYTES:
                raise unreadable("object", "fact_too_large", count=size, most=MAX_FACT_BYTES)
        except UnreadableError as err:
            return self.unreadable(state, ref, rv, err.problem)
        return self.report(state, fact)

    def doubtful(self, state: WatchState, ref: Ref, raw: bytes) -> bool:
        """Whether a new object names a parent without any known relation to the object.

        The parent's own news may still be on its way. So such an object is observed PATIENCE_MS later, before it counts
        as a workload of its own.
        """
        if self.row.alone is None or bounded(ref).uid in state.objects:
            return False
        try:
            fact = self._read(raw)
        except UnreadableError:
            return False
        return isinstance(fact, ChildObserved) and state.parents.disown(fact.child)

    def unreadable(self, state: WatchState, ref: Ref, rv: int, problem: FieldProblem) -> list[Event]:
        """The fact of an unusable object, unless reported with the same problem before."""
        return self.report(state, ObjectUnreadable(ref=bounded(ref), rv=rv, problem=problem))

    def report(self, state: WatchState, fact: Event) -> list[Event]:
        """The fact and its consequences, unless the same fact was reported before."""
        ref, _ = about(fact)
        fingerprint, phase = gist(fact)
        known = state.objects.get(ref.uid)
        if known is not None and known.fingerprint == fingerprint:
            return []
        return [fact, *self._changed_role(known, fact), *self._lifecycle(known, fact, phase)]

    def _changed_role(self, known: Reported | None, fact: Event) -> Iterator[Event]:
        """A reported child of a parent proves to be independent, or the other way round."""
        if known is None or not self.row.both or isinstance(fact, ObjectUnreadable):
            return
        if known.own and isinstance(fact, ChildObserved):
            yield WorkloadGone(ref=known.ref, rv=fact.child.rv)
        elif not known.own and isinstance(fact, WorkloadObserved) and known.child:
            yield ChildGone(ref=known.ref, rv=fact.workload.rv)

    @staticmethod
    def _lifecycle(known: Reported | None, fact: Event, phase: str) -> Iterator[Event]:
        if not isinstance(fact, WorkloadObserved) or (known is not None and known.phase == phase):
            return
        workload = fact.workload
        if phase == "running":
            yield WorkloadStarted(ref=workload.ref, detail=workload.detail)
        elif phase == "finished":
            yield WorkloadFinished(ref=workload.ref, outcome=workload.outcome, detail=workload.detail)

    def passed(self, state: WatchState, ref: Ref, rv: int, last: bytes) -> list[Event]:
        """The facts of an object that is gone; ``last``: the object's last state.

        A child that came and went between two reports is reported all the same: its workload's charge waits for a
        proof that the child is gone.
        """
        ref = bounded(ref)
        if ref.uid in state.objects or not self.row.both or state.seen.stale(ref.uid, rv):
            return self.vanished(state, ref, rv)
        try:
            fact = self._read(last)
        except UnreadableError:
            return []
        return [fact, ChildGone(ref=ref, rv=max(rv, fact.child.rv))] if isinstance(fact, ChildObserved) else []

    def vanished(self, state: WatchState, ref: Ref, rv: int = 0, *, unwatched: bool = False) -> list[Event]:
        """The fact of an object's end, if reported before; ``unwatched``: only the watch of the object ends."""
        ref = bounded(ref)
        known = state.objects.get(ref.uid)
        if known is None:
            return []
        gone = ChildGone if self.row.both and not known.own else self.row.gone
        return [gone(ref=ref, rv=max(rv, known.rv), unwatched=unwatched)]


def bounded(ref: Ref) -> Ref:
    """The reference; cut where longer than any API server allows."""
    if len(ref.uid) <= MAX_UID and len(ref.name) <= MAX_NAME and len(ref.namespace) <= MAX_NAMESPACE:
        return ref
    return Ref(ref.kind, ref.namespace[:MAX_NAMESPACE], ref.name[:MAX_NAME], ref.uid[:MAX_UID])


def gist(event: Event) -> tuple[str, str]:
    """Of a fact: a fingerprint of everything but the resourceVersion, and a workload's phase."""
    observed = said_of(event)
    if isinstance(observed, PodState):
        trouble = observed.trouble
        return digest(replace(observed, rv=0, trouble=trouble.gist if trouble is not None else None)), ""
    return digest(replace(observed, rv=0)), observed.phase if isinstance(observed, Workload) else ""
