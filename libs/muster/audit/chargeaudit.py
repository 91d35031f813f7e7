"""The audit of charges against the objects of the log (I30), with books of its own.

A charge is what may still run: for no longer than a minute more than the objects allow, and for no longer than a minute
less than the pods that are there. The audit says nothing where the objects prove nothing: of a suspended workload, of
one whose end is not certain, of a Ray cluster that scales itself or did, and while objects are being listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from muster.audit.auditbooks import Finding, Trees
from muster.audit.writeraudit import after_end
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadAdopted,
)
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.events.envelope import Stored
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectGone,
    PodGone,
    PodObserved,
    Synced,
    SyncStarted,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.keys import root_of
from muster.model.resources import Vector, add_into, beyond, highest, summed
from muster.model.workload import ChildState, Workload

LEFT_MS = 60_000
"""How long a charge may differ from its objects."""


class _Charged(Struct):
    queue: str
    request: Vector


class _Differs(Struct):
    seq: int
    """Sequence of the first event with the difference."""
    detail: str
    known_at: int = -1
    """Log time (ms) of the accountant's first decision that could know the difference; -1: none yet."""


class ChargeAudit:
    """Feed every commit in order, then call :meth:`finish`."""

    def __init__(self) -> None:
        self._trees = Trees()
        self._charges: dict[str, _Charged] = {}
        self._workloads: dict[str, Workload] = {}
        self._children: dict[str, ChildState] = {}
        """By uid: children with an object that is not over."""
        self._versions: dict[str, int] = {}
        self._owner: dict[str, str] = {}
        """uid of a child -> uid of its owner; also of a child that is gone, for its pods"""
        self._pods: dict[str, tuple[str, Vector]] = {}
        """uid of a live pod -> (uid of its owner, request)"""
        self._below: dict[str, dict[str, None]] = {}
        """uid of an owner -> its children and live pods"""
        self._grows: set[str] = set()
        """Charged workloads with a Ray cluster that scales itself, or did: the grant may be made."""
        self._differs: dict[str, _Differs] = {}
        self._judged = 0
        """Log time (ms) of the accountant's last commit."""

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        commit, touched = stored.commit, dict[str, None]()
        for event in commit.events:
            touched.update(dict.fromkeys(self._fold(event, stored.seq)))
        for uid in touched:
            if self._scales(uid):
                self._grows.add(uid)
            detail = self._detail(uid) if uid in self._charges else ""
            before = self._differs.pop(uid, None)
            if detail:
                self._differs[uid] = before if before is not None else _Differs(stored.seq, detail)
                self._differs[uid].detail = detail
        if commit.stage != "quota_accountant":
            return
        for difference in self._differs.values():
            if commit.kind != "decision":
                difference.known_at = -1  # Another leader has to catch up first.
            elif difference.known_at < 0 and difference.seq <= commit.in_seq:
                difference.known_at = commit.at
        self._judged = commit.at
        yield from self.finish()

    def finish(self) -> Iterator[Finding]:
        """The charges that had differed for too long when the accountant wrote last."""
        for difference in self._differs.values():
            late = 0 <= difference.known_at < self._judged - LEFT_MS
            yield "I30", not late, difference.detail

    # --- books ------------------------------------------------------------------------------------------------

    def _fold(self, event: Event, seq: int) -> Iterable[str]:  # noqa: C901 - a table of events
        """Take an event in; returns the workloads whose charge or objects changed."""
        match event:
            case QuotaTreeAccepted() | QuotaTreeRemoved():
                self._trees.note(event, seq)
            case Synced() | SyncStarted():
                self._differs.clear()  # Whatever was missed in between is listed again.
                return tuple(self._charges)
            case QuotaReserved() | WorkloadAdopted():
                self._grows.discard(event.ref.uid)
                self._charges[event.ref.uid] = _Charged(event.queue, event.request)
                return (event.ref.uid,)
            case ChargeChanged() | GrowthGranted() | GrowthWithdrawn():
                if not isinstance(event, ChargeChanged):
                    self._grows.add(event.ref.uid)
                if event.ref.uid in self._charges:
                    self._charges[event.ref.uid].request = event.request
                return (event.ref.uid,)
            case QuotaMoved():
                if event.ref.uid in self._charges:
                    self._charges[event.ref.uid].queue = event.queue
                return (event.ref.uid,)
            case QuotaReleased():
                self._charges.pop(event.ref.uid, None)
                return (event.ref.uid,)
            case WorkloadObserved(workload=seen) if self._is_new(seen.ref.uid, seen.rv):
                self._workloads[seen.ref.uid] = seen
                return (seen.ref.uid,)
            case ChildObserved(child=seen) if self._is_new(seen.ref.uid, seen.rv):
                return self._child(seen)
            case PodObserved(pod=seen) if self._is_new(seen.ref.uid, seen.rv):
                return self._pod(seen.ref.uid, seen.owner_uid, None if seen.over else seen.request)
            case WorkloadGone() | ChildGone() | PodGone():
                return self._gone(event)
            case _:
                pass
        return ()

    def _is_new(self, uid: str, version: int) -> bool:
        """Whether a fact is newer than the facts before; a late fact adds nothing."""
        new = version > self._versions.get(uid, -1)
        if new:
            self._versions[uid] = version
        return new

    def _gone(self, event: ObjectGone) -> Iterable[str]:
        uid = event.ref.uid
        self._versions[uid] = after_end(event, self._versions.get(uid, -1))
        self._workloads.pop(uid, None)
        self._children.pop(uid, None)
        return (self._root(uid), *self._pod(uid, "", None))

    def _child(self, child: ChildState) -> Iterable[str]:
        uid = child.ref.uid
        before = self._root(uid)
        if child.owner_uid:
            self._owner[uid] = child.owner_uid
            self._below.setdefault(child.owner_uid, {})[uid] = None
        if child.over:
            self._children.pop(uid, None)
        else:
            self._children[uid] = child
        return before, self._root(uid)

    def _pod(self, uid: str, owner: str, request: Vector | None) -> Iterable[str]:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._below[before[0]].pop(uid, None)
        if request is not None and owner:
            self._pods[uid] = owner, request
            self._below.setdefault(owner, {})[uid] = None
        return [self._root(one) for one in (before[0] if before is not None else "", owner) if one]

    def _root(self, uid: str) -> str:
        """The workload behind an object."""
        at, steps = uid, 0
        while at not in self._charges and at in self._owner and steps < len(self._owner):
            at, steps = self._owner[at], steps + 1
        return at

    def _family(self, uid: str) -> tuple[list[ChildState], Vector]:
        """(the children of a workload that are there, the request of all live pods)."""
        children, live, open_, known = list[ChildState](), Vector(), [uid], {uid}
        while open_:
            for below in self._below.get(open_.pop(), ()):
                if below in known:
                    continue
                known.add(below)
                if below in self._pods:
                    add_into(live, self._pods[below][1])
                open_.append(below)
                children += [self._children[below]] if below in self._children else []
        return children, live

    def _scales(self, uid: str) -> bool:
        """Whether the workload has a Ray cluster that scales itself now."""
        workload = self._workloads.get(uid)
        children = self._family(uid)[0] if uid in self._charges else []
        return any(seen is not None and seen.elastic is not None for seen in (workload, *children))

    # --- the rule ---------------------------------------------------------------------------------------------

    def _detail(self, uid: str) -> str:
        """The difference between a charge and its objects; empty for none."""
        charge, workload = self._charges[uid], self._workloads.get(uid)
        children, live = self._family(uid)
        tree = self._trees.by_root.get(root_of(charge.queue))
        profile = tree.profile if tree is not None else "ack"
        most = self._most(uid, workload, children, live, profile)
        total = {name: amount for name, amount in charge.request.items() if "@" not in name}
        parts = {name: amount for name, amount in charge.request.items() if "@" in name}
        above = _more(total, most) if most is not None else ""
        above = above or _more(parts, {name: total.get(name.partition("@")[0], 0) for name in parts})
        if above:
            return f"{uid} is charged {above}, and no more than {_of(most or {}, charge.request)} may still run"
        uncounted = _uncounted(workload, profile) if workload is not None else None
        below = _more(live, summed([charge.request, uncounted])) if uncounted is not None else ""
        return f"{uid} runs {below} and is charged {_of(charge.request, live)}" if below else ""

    def _most(
        self, uid: str, workload: Workload | None, children: list[ChildState], live: Vector, profile: str
    ) -> Vector | None:
        """The most that may still run; None where the objects do not tell."""
        wanted = summed(child.asks for child in children)
        if uid in self._grows or not all(child.asks for child in children):
            return None
        if workload is None or workload.phase == "finished":
            return highest(live, wanted) if any(live.values()) and (workload is None or not workload.child) else None
        if workload.suspended or workload.phase not in ("starting", "running"):
            return None
        need = workload.need.get(profile, {})
        if not workload.child:
            return highest(highest(need, workload.asks), live)
        if not wanted:
            return None
        helpers = summed(pods.request for pods in workload.auxiliary)
        return summed([highest(live, wanted), helpers, beyond(need, workload.asks)])


def _uncounted(workload: Workload, profile: str) -> Vector:
    """The part of a workload's pods that the profile leaves out."""
    return beyond(workload.asks, workload.need.get(profile, {}))


def _more(amounts: Mapping[str, int], limit: Mapping[str, int]) -> str:
    """The amounts above a limit, in words."""
    return ", ".join(f"{name} {amounts[name]}" for name in beyond(amounts, limit))


def _of(amounts: Mapping[str, int], names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {amounts.get(name, 0)}" for name in names)
