"""The narrator: tells the log with the state around each event, so that positions and quota are those of the moment.

Pure: it folds what it is fed, by the same view as presentation. ``muster up`` prints what it says; ``muster why``
keeps what concerns one job (core.story).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from muster.core import explain, telling, telling_nodes
from muster.core.presence import Presence
from muster.core.presentation.view import View, ViewState
from muster.core.queueing.state import Job
from muster.core.stage import Folder
from muster.core.takers import Takers
from muster.core.workloads.registry import KINDS, child_of, suspend_field
from muster.events import decisions as d
from muster.events import effects, facts, gangs, growing, system
from muster.events.base import Cause, Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.model.resources import Vector, format_quantity, format_vector
from muster.model.text import counted, span
from muster.model.workload import Workload

Weight = Literal["detail", "step", "turn"]
"""How much an entry matters: a ``turn`` changes where somebody stands, a ``step`` leads there, a ``detail`` is told
to whoever asks."""

MAX_CAUSES = 10_000
AHEAD_SHOWN = 3


class Entry(Struct, frozen=True):
    """One thing that happened, in words. ``ref`` is the job it happened to, None when it concerns all."""

    at: int
    seq: int
    item: int
    ref: Ref | None
    word: str
    text: str
    weight: Weight


class Narrator:
    """Folds a log from its beginning, and tells what each commit means."""

    def __init__(self) -> None:
        view = View()
        self._view = view
        self._folder = Folder(view)
        self.state: ViewState = view.initial()
        self.presence = Presence()
        self.admitted: dict[str, int] = {}
        """uid -> log time of the admission its charge stands on"""
        self.adopted: dict[str, d.AdoptionReason] = {}
        """uid -> why it is charged without an admission"""
        self.running: dict[str, int] = {}
        """uid -> log time at which it was seen running"""
        self.takers = Takers()
        """Who was given quota lately."""
        self.present = 0
        """When it is now, for spans of time up to now: at least the log's time; ms since the epoch."""
        self._causes: dict[Cause, str] = {}
        """positions of what makes others worth trying -> what it was, in words"""
        self._trees = 0
        self._synced = False

    def feed(self, stored: Stored) -> list[Entry]:
        """Fold one commit and tell it."""
        before = {
            event.workload.ref.uid: self.state.workloads.get(event.workload.ref.uid)
            for event in stored.commit.events
            if isinstance(event, facts.WorkloadObserved)
        }
        self._folder.fold(self.state, stored.seq, stored.commit)
        self.present = self.state.now
        # Nobody presents from here: what the view marks for that would only pile up.
        view = self._view
        for touched in (view.touched_jobs, view.touched_queues, view.touched_troubles, view.touched_gangs):
            touched.clear()
        entries = []
        for item, event in enumerate(stored.commit.events):
            for ref, word, text, weight in self._tell(event, before, Cause(stored.seq, item)):
                entries.append(Entry(self.state.now, stored.seq, item, ref, word, text, weight))
        if self.state.synced and not self._synced:
            jobs = counted(len(self.state.workloads), "job")
            known = f"the cluster is fully known ({jobs}): jobs are admitted from here on"
            last = len(stored.commit.events) - 1
            entries.append(Entry(self.state.now, stored.seq, last, None, "ready", known, "step"))
        self._synced = self.state.synced
        return entries

    def _tell(self, event: Event, before: Mapping[str, Workload | None], at: Cause) -> list[_Said]:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            return handler(self, event, at)
        if isinstance(event, facts.WorkloadObserved):
            return list(self._observed(before[event.workload.ref.uid], event.workload))
        if isinstance(event, facts.ChildObserved | facts.ChildGone | facts.PodObserved | facts.PodGone):
            return self._below(event)
        told = telling.tell(event)
        subject = f"{told.subject}: " if told.subject else ""
        if isinstance(event, gangs.NodesClaimed | gangs.NodesClaimEnded) and event.ref is not None:
            return [(event.ref, told.word, told.text, "turn")]
        return [(None, told.word, f"{subject}{told.text}", "detail")]

    # --- what is seen -----------------------------------------------------------------------------------------

    def _observed(self, old: Workload | None, new: Workload) -> list[_Said]:
        profile = self.state.ledger.tree.profile if self.state.ledger.tree else "ack"
        if old is None:
            stands = "suspended" if new.suspended else f"not suspended ({suspend_field(new.ref.kind)} is false)"
            detail = f", {new.detail}" if new.detail and new.detail != "Suspended" else ""
            return [(new.ref, "seen", f"{stands}{detail}; asks for {telling.asks(new, profile)}", "step")]
        said: list[_Said] = []
        if new.need != old.need:
            was = format_vector(old.need.get(profile, {}))
            edit = f"its spec was edited (generation {new.generation})"
            text = f"{edit}: asks for {telling.asks(new, profile)}, before {was}"
            said.append((new.ref, "edited", text, "step"))
        if new.deleting and not old.deleting:
            said.append((new.ref, "deleting", "it is being deleted", "step"))
        if new.suspended != old.suspended:
            said.append(
                (new.ref, "observed", f"{suspend_field(new.ref.kind)} is {str(new.suspended).lower()} now", "detail")
            )
        if new.detail != old.detail and new.detail:
            said.append((new.ref, "observed", f"{new.ref.kind} says {new.detail}", "detail"))
        return said

    def _below(self, event: facts.ChildObserved | facts.ChildGone | facts.PodObserved | facts.PodGone) -> list[_Said]:
        """News of what a job runs through."""
        ref = telling.ref_of(event)
        assert ref is not None
        match event:
            case facts.ChildObserved():
                known = ref.uid in self.presence.owner_of
                owner = self.presence.child_observed(event)
                text, weight = ("" if known else f"its {ref.kind} {ref.name} exists"), "detail"
            case facts.ChildGone():
                owner = self.presence.child_gone(event, self.state.now)
                left = self.presence.live_pods(owner) if owner is not None else 0
                pods = f"; {counted(left, 'pod')} left" if left else ""
                text, weight = f"its {ref.kind} {ref.name} is gone{pods}", "step"
            case facts.PodObserved():
                owner = self.presence.pod_observed(event)
                text, weight = "", "detail"
            case _:
                owner = self.presence.pod_gone(event, self.state.now)
                left = self.presence.live_pods(owner) if owner is not None else 0
                text, weight = ("" if left else "the last of its pods is gone"), "detail"
        workload = self.state.workloads.get(owner) if owner is not None else None
        return [(workload.ref, "observed", text, weight)] if workload is not None and text else []  # type: ignore[list-item]

    def _started(self, event: facts.WorkloadStarted, _at: Cause) -> list[_Said]:
        self.running[event.ref.uid] = self.state.now
        since = self.admitted.get(event.ref.uid)
        after = f", {span(self.state.now - since)} after its admission" if since else ""
        return [(event.ref, "running", f"it runs{after}", "turn")]

    def _finished(self, event: facts.WorkloadFinished, _at: Cause) -> list[_Said]:
        started = self.running.pop(event.ref.uid, None)
        ran = f" after {span(self.state.now - started)}" if started else ""
        kept = ""
        if event.ref.uid in self.state.ledger.charges:
            child = child_of(event.ref.kind)
            kept = f"; its quota stays charged until its {f'{child} and ' if child else ''}pods are gone"
        return [(event.ref, "finished", f"{telling.outcome(event)}{ran}{kept}", "turn")]

    def _deleted(self, event: facts.WorkloadGone, _at: Cause) -> list[_Said]:
        self.running.pop(event.ref.uid, None)
        charged = event.ref.uid in self.state.ledger.charges
        kept = "; what is left of it stays charged until it is gone" if charged else ""
        return [(event.ref, "gone", f"the object was deleted{kept}", "step")]

    def _unreadable(self, event: facts.ObjectUnreadable, _at: Cause) -> list[_Said]:
        if event.ref.kind not in KINDS:
            return [(None, "unreadable", f"{event.ref}: {event.reason}", "turn")]
        return [(event.ref, "unreadable", f"it cannot be read: {event.reason}", "turn")]

    # --- queueing ---------------------------------------------------------------------------------------------

    def _queued(self, event: d.WorkloadQueued, _at: Cause) -> list[_Said]:
        uid = event.ref.uid
        again = f" again (attempt {event.attempt})" if event.attempt > 1 else ""
        text = f"enters queue {event.queue}{again}, asks for {format_vector(event.request)}, priority {event.priority}"
        job = self.state.jobs.get(uid)
        if job is None:
            return [(event.ref, "queued", text, "turn")]
        if job.status == "charged":
            return [(event.ref, "queued", f"{text}; it is tried once its present quota is given back", "turn")]
        return [(event.ref, "queued", f"{text}: {self.place(job)}", "turn")]

    def place(self, job: Job) -> str:
        """Where a job stands in its queue, and who is ahead."""
        position, length = self.state.book.position(job.queue, job.place), self.state.book.length(job.queue)
        if job.status != "waiting":
            return "tried at once"
        if position == 1:
            return f"position 1 of {length}, nobody is ahead"
        ahead = [place[2] for place, _ in islice(self.state.book.in_order(job.queue), AHEAD_SHOWN)][: position - 1]
        more = f" and {position - 1 - len(ahead)} more" if position - 1 > len(ahead) else ""
        return f"position {position} of {length}, {position - 1} ahead: {', '.join(ahead)}{more}"

    def _left(self, event: d.WorkloadDequeued, _at: Cause) -> list[_Said]:
        return [(event.ref, "left", f"leaves queue {event.queue}: {explain.DEQUEUED[event.reason]}", "turn")]

    def _refused(self, event: d.WorkloadRefused, _at: Cause) -> list[_Said]:
        return [(event.ref, "refused", f"it is not queued: {event.message}", "turn")]

    def _proposed(self, event: d.CandidatesProposed, _at: Cause) -> list[_Said]:
        said: list[_Said] = []
        for candidate in event.candidates:
            cause = self._causes.get(candidate.cause, "")
            text = f"it is tried now because {cause}" if cause else "it is tried now"
            said.append((candidate.ref, "tried", text, "step" if cause else "detail"))
        return said

    # --- quota ------------------------------------------------------------------------------------------------

    def _tree(self, event: d.QuotaTreeAccepted, at: Cause) -> list[_Said]:
        self._remember(at, "the quota tree was changed")
        self._trees += 1
        again = "a new tree is in force" if self._trees > 1 else "in force"
        return [(None, "quota tree", f"{event.tree.ref.name} {again}: {telling.tree_summary(event)}", "turn")]

    def _tree_refused(self, event: d.QuotaTreeRejected, _at: Cause) -> list[_Said]:
        return [(None, "quota tree", f"{event.ref.name} is {telling.broken_rules(event)}", "turn")]

    def _tree_removed(self, event: d.QuotaTreeRemoved, _at: Cause) -> list[_Said]:
        text = f"{event.ref.name} was deleted: nothing is admitted until another is applied"
        return [(None, "quota tree", text, "turn")]

    def _reserved(self, event: d.QuotaReserved, _at: Cause) -> list[_Said]:
        used = self.usage(event.queue, event.request)
        text = f"{format_vector(event.request)} reserved; {event.queue} now uses {used}"
        self.takers.note(event, self.state.seq, self.state.jobs.get(event.ref.uid))
        return [(event.ref, "reserved", text, "step")]

    def usage(self, path: str, names: Vector) -> str:
        """``cpu 12 of 14, memory 12G of 14Gi``: what a node uses of what it may."""
        node, used = self.state.ledger.nodes.get(path), self.state.ledger.used.get(path, {})
        parts = []
        for name in sorted(names):
            limit = node.limit.get(name) if node is not None else None
            most = f" of {format_quantity(limit, name)}" if limit is not None else ""
            parts.append(f"{name} {format_quantity(used.get(name, 0), name)}{most}")
        return ", ".join(parts) or "nothing"

    def _denied(self, event: d.QuotaDenied, _at: Cause) -> list[_Said]:
        if event.reason == "stale":
            return [(event.ref, "stale", "what was proposed is no longer so: it is looked at again", "detail")]
        job = self.state.jobs.get(event.ref.uid)
        where = f"; {self.place(job)}" if job is not None and job.status == "waiting" else ""
        return [(event.ref, "waits", f"{telling.denied(event)}{where}", "turn")]

    def _adopted(self, event: d.WorkloadAdopted, _at: Cause) -> list[_Said]:
        self.adopted[event.ref.uid] = event.reason
        text = f"charged with {format_vector(event.request)} at {event.queue}: {explain.ADOPTED[event.reason]}"
        over = [path for path in _paths(event.queue) if self._over(path, event.request)]
        if over:
            text += f"; {over[0]} is over its limit by that ({self.usage(over[0], event.request)})"
        return [(event.ref, "adopted", text, "turn")]

    def _over(self, path: str, request: Vector) -> bool:
        return any((self.state.ledger.headroom(path, name) or 0) < 0 for name in request)

    def _suspended(self, event: d.SuspensionRecorded, _at: Cause) -> list[_Said]:
        return [(event.ref, "suspended", _lower(explain.SUSPENDED_OUTSIDE.text), "turn")]

    def _released(self, event: d.QuotaReleased, at: Cause) -> list[_Said]:
        given = format_vector(event.request)
        self._remember(at, f"{event.ref.key} gave back {given}")
        for kept in (self.admitted, self.adopted, self.running):
            kept.pop(event.ref.uid, None)
        used = self.usage(event.queue, event.request)
        text = f"gives back {given}: {explain.RELEASED[event.reason]}; {event.queue} now uses {used}"
        return [(event.ref, "released", text, "turn")]

    # --- admission --------------------------------------------------------------------------------------------

    def _admitted(self, event: d.GangAdmitted, _at: Cause) -> list[_Said]:
        self.admitted[event.ref.uid] = self.state.now
        job = self.state.jobs.get(event.ref.uid)
        waited = f", after waiting {span(max(0, self.state.now - job.queued_at))}" if job is not None else ""
        charge = self.state.ledger.charges.get(event.ref.uid)
        what = format_vector(charge.request) if charge is not None else "it"
        text = f"{what} at {event.queue}{waited}{telling_nodes.placed(event)}"
        return [(event.ref, "admitted", text, "turn")]

    def _lacks_nodes(self, event: d.GangAwaitingNodes, _at: Cause) -> list[_Said]:
        text = f"its quota is reserved, and it waits for nodes: {telling_nodes.lacks_nodes(event)}"
        return [(event.ref, "lacks nodes", text, "turn")]

    def _deferred(self, event: d.GangDeferred, _at: Cause) -> list[_Said]:
        return [(event.ref, "no nodes", telling_nodes.lacks_nodes(event), "turn")]

    def _nodes_asked(self, event: growing.NodesRequested | growing.NodesRequestWithdrawn, _at: Cause) -> list[_Said]:
        told = telling.tell(event)
        if event.ref is not None:
            return [(event.ref, told.word, told.text, "turn")]
        return [(None, told.word, f"{told.subject}: {told.text}", "step")]

    def _given_back(self, event: d.PlacesReleased, _at: Cause) -> list[_Said]:
        return [(event.ref, "places free", telling_nodes.given_back(event), "step")]

    def _placement(self, event: system.PlacementChosen, _at: Cause) -> list[_Said]:
        return [(None, "placement", telling.placement(event), "step")]

    def _resumed(self, event: effects.EffectApplied, _at: Cause) -> list[_Said]:
        told = telling.tell(event)
        if event.action in ("request_nodes", "withdraw_nodes"):
            return [(None, told.word, f"{told.subject}: {told.text}", "detail")]
        return [(event.ref, told.word, told.text, "step")]

    def _not_resumed(self, event: effects.EffectFailed, _at: Cause) -> list[_Said]:
        told = telling.tell(event)
        if event.action in ("request_nodes", "withdraw_nodes"):
            return [(None, told.word, f"{told.subject}: {told.text}", "turn")]
        return [(event.ref, told.word, told.text, "turn")]

    # --- claims and evictions ---------------------------------------------------------------------------------

    def _evicted(self, event: d.EvictionOrdered, _at: Cause) -> list[_Said]:
        said: list[_Said] = [(event.ref, "reclaims", telling.tell(event).text, "turn")]
        for victim in event.victims:
            reason = explain.leaving_for(event, victim)
            lost = (
                explain.work_lost(self.state.now - self.running[uid]) if (uid := victim.ref.uid) in self.running else ""
            )
            said.append((victim.ref, "evicted", f"{_lower(reason.text)}{lost}", "turn"))
        return said

    def _claimed(self, event: d.ClaimOpened | d.ClaimEnded | d.SuspensionOrdered, _at: Cause) -> list[_Said]:
        told = telling.tell(event)
        return [(event.ref, told.word, told.text, "turn")]

    def _not_reclaimed(self, event: d.ReclaimDeferred | d.PlanStale | d.PreemptionProposed, _at: Cause) -> list[_Said]:
        told = telling.tell(event)
        return [(event.ref, told.word, told.text, "step")]

    def _genesis(self, event: system.Genesis, _at: Cause) -> list[_Said]:
        text = f"log {event.log_id} begins, generation {event.generation}{telling.before(event)}"
        return [(None, "log", text, "step")]

    def _nearly_full(self, event: system.LogNearlyFull, _at: Cause) -> list[_Said]:
        return [(None, "log", f"it is {event.percent} % full: nothing is queued or admitted from here on", "turn")]

    def _remember(self, at: Cause, text: str) -> None:
        self._causes[at] = text
        if len(self._causes) > MAX_CAUSES:
            del self._causes[next(iter(self._causes))]


_Said = tuple[Ref | None, str, str, Weight]
_Handler = Callable[[Narrator, Any, Cause], list[_Said]]

_HANDLERS: Mapping[type[Event], _Handler] = {
    system.Genesis: Narrator._genesis,
    system.LogNearlyFull: Narrator._nearly_full,
    facts.WorkloadStarted: Narrator._started,
    facts.WorkloadFinished: Narrator._finished,
    facts.WorkloadGone: Narrator._deleted,
    facts.ObjectUnreadable: Narrator._unreadable,
    d.WorkloadQueued: Narrator._queued,
    d.WorkloadDequeued: Narrator._left,
    d.WorkloadRefused: Narrator._refused,
    d.CandidatesProposed: Narrator._proposed,
    d.QuotaTreeAccepted: Narrator._tree,
    d.QuotaTreeRejected: Narrator._tree_refused,
    d.QuotaTreeRemoved: Narrator._tree_removed,
    d.QuotaReserved: Narrator._reserved,
    d.QuotaDenied: Narrator._denied,
    d.WorkloadAdopted: Narrator._adopted,
    d.SuspensionRecorded: Narrator._suspended,
    d.QuotaReleased: Narrator._released,
    d.GangAdmitted: Narrator._admitted,
    d.EvictionOrdered: Narrator._evicted,
    d.ClaimOpened: Narrator._claimed,
    d.ClaimEnded: Narrator._claimed,
    d.SuspensionOrdered: Narrator._claimed,
    d.PreemptionProposed: Narrator._not_reclaimed,
    d.ReclaimDeferred: Narrator._not_reclaimed,
    d.PlanStale: Narrator._not_reclaimed,
    d.GangAwaitingNodes: Narrator._lacks_nodes,
    d.GangDeferred: Narrator._deferred,
    d.PlacesReleased: Narrator._given_back,
    growing.NodesRequested: Narrator._nodes_asked,
    growing.NodesRequestWithdrawn: Narrator._nodes_asked,
    system.PlacementChosen: Narrator._placement,
    effects.EffectApplied: Narrator._resumed,
    effects.EffectFailed: Narrator._not_resumed,
}


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _paths(queue: str) -> list[str]:
    parts = queue.split("/")
    return ["/".join(parts[:size]) for size in range(len(parts), 0, -1)]
