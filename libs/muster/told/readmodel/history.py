"""From events to the histories of jobs and of gangs, and the historian that writes the histories.

One function for each type of event makes entries for the histories of jobs from the event and the state. The historian
calls the function after the queues have folded the event, and before the read model forgets ended jobs.

Other functions make entries for the histories of gangs of pods, and of pods in no gang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import structs

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.queueing.queues import Job
from muster.core.stage import Arm
from muster.core.workloads.registry import is_job
from muster.events import alarms, claims, effects, elastic, facts, gangs, growing
from muster.events import decisions as d
from muster.events.base import Cause, Event
from muster.events.charges import ChargeChanged
from muster.events.facts import WorkloadObserved
from muster.model.keys import Position, Ref, path_chain
from muster.model.resources import Vector
from muster.model.workload import Workload
from muster.told.codes.codetable import HeldUp
from muster.told.codes.happenings import Happening, Release, Said, SetAsked, Taker, Used, Weight, Where
from muster.told.readmodel.readstate import (
    GONE_KEPT,
    GONE_KEPT_MS,
    GangRecord,
    ReadState,
    leaving_for,
    record_of,
    refused_by,
    waits_since,
)

# --- of jobs ----------------------------------------------------------------------------------------------------------


AHEAD = 3
"""Positions are noted only in queues with at most this many shapes: a position costs a look at every shape."""
RELEASES = 1_000
TAKERS = 2_000
SETS = 8
NODES = 5
VICTIMS = 5

History = Callable[[ReadState, Position, Any], Iterable[Said]]


def happened(at: Position, code: str, weight: Weight, **numbers: Any) -> Happening:
    return Happening(at=at.at, seq=at.seq, item=at.item, what=code, weight=weight, **numbers)


def tag_of(event: Event) -> str:
    """The name of an event's type in the log."""
    return str(event.__struct_config__.tag)


def where(state: ReadState, job: Job) -> Where:
    """The place of a job in its queue."""
    if job.status != "waiting":
        return Where()
    book = state.queues.book
    position = book.position(job.queue, job.place)
    return Where(position, book.length(job.queue), book.ahead(job.queue, min(AHEAD, position - 1)))


def usage(state: ReadState, path: str, names: Iterable[str]) -> tuple[Used, ...]:
    """The usage and the limits of a node of the tree."""
    node, used = state.queues.ledger.nodes.get(path), state.queues.ledger.used.get(path, {})
    limits = node.limit if node is not None else {}
    return tuple(Used(name, used.get(name, 0), limits.get(name, -1)) for name in sorted(names))


# --- what is seen -------------------------------------------------------------------------------------------------


def observed(state: ReadState, at: Position, old: Workload | None, new: Workload) -> Iterator[Said]:
    """A job looks otherwise than before."""
    profile = state.queues.ledger.tree.profile if state.queues.ledger.tree else "ack"
    need = new.need.get(profile) or next(iter(new.need.values()), {})
    sets = tuple(SetAsked(pods.name, pods.count, pods.request) for pods in new.pod_sets[:SETS])
    asked: dict[str, Any] = {"request": need, "sets": sets, "more": max(0, len(new.pod_sets) - SETS)}
    if old is None:
        words = new.detail if new.detail != "Suspended" else ""
        yield new.ref, happened(at, "seen", "step", flag=new.suspended, words=words, kind=new.ref.kind, **asked)
        return
    if new.need != old.need:
        before = old.need.get(profile, {})
        yield new.ref, happened(at, "edited", "step", number=new.generation, before=before, **asked)
    if new.deleting and not old.deleting:
        yield new.ref, happened(at, "deleting", "step")
    if new.suspended != old.suspended:
        yield new.ref, happened(at, "switched", "detail", kind=new.ref.kind, flag=new.suspended)
    if new.detail != old.detail and new.detail:
        yield new.ref, happened(at, "said", "detail", kind=new.ref.kind, words=new.detail)


def _started(state: ReadState, at: Position, event: facts.WorkloadStarted) -> Iterator[Said]:
    record = state.records.get(event.ref.uid)
    after = state.now - record.admitted_at if record is not None and record.admitted_at else -1
    yield event.ref, happened(at, "workload_started", "turn", event=event, span=after)


def _finished(state: ReadState, at: Position, event: facts.WorkloadFinished) -> Iterator[Said]:
    uid, record = event.ref.uid, state.records.get(event.ref.uid)
    ran = state.now - record.running_at if record is not None and record.running_at else -1
    charged = uid in state.queues.ledger.charges
    yield event.ref, happened(at, "workload_finished", "turn", event=event, span=ran, flag=charged)


def _gone(state: ReadState, at: Position, event: facts.WorkloadGone) -> Iterator[Said]:
    charged = event.ref.uid in state.queues.ledger.charges
    yield event.ref, happened(at, "workload_gone", "step", event=event, flag=charged)


def _unreadable(_state: ReadState, at: Position, event: facts.ObjectUnreadable) -> Iterator[Said]:
    if is_job(event.ref.kind):
        yield event.ref, happened(at, "object_unreadable", "turn", event=event)


# --- queueing -----------------------------------------------------------------------------------------------------


def _queued(state: ReadState, at: Position, event: d.WorkloadQueued) -> Iterator[Said]:
    job = state.queues.jobs.get(event.ref.uid)
    charged = job is not None and job.status == "charged"
    place = where(state, job) if job is not None and not charged else None
    yield event.ref, happened(at, "workload_queued", "turn", event=event, flag=charged, where=place)
    if job is None or charged:
        return
    shape = state.queues.book.shapes[job.shape]
    if shape.denial is None:
        state.unanswered.setdefault(job.shape, {})[event.ref.uid] = None
    elif (refusal := refused_by(state, job, shape, shape.denial)) is not None:
        yield event.ref, happened(at, "parked", "turn", refusal=refusal, where=place)


def _proposed(state: ReadState, at: Position, event: d.CandidatesProposed) -> Iterator[Said]:
    for candidate in event.candidates:
        release = state.releases.get(f"{candidate.cause.seq}-{candidate.cause.item}")
        if release is None:
            yield candidate.ref, happened(at, "candidates_proposed", "detail")
        else:
            told = {"name": release.job, "request": release.request, "flag": True}
            yield candidate.ref, happened(at, "candidates_proposed", "step", **told)


def _tree(state: ReadState, at: Position, _event: d.QuotaTreeAccepted) -> Iterator[Said]:
    _remember(state, at, Release())
    return iter(())


# --- quota --------------------------------------------------------------------------------------------------------


def _reserved(state: ReadState, at: Position, event: d.QuotaReserved) -> Iterator[Said]:
    job = state.queues.jobs.get(event.ref.uid)
    place = job.place if job is not None else None
    if not _handed_on(state, event.ref.uid):
        state.takers.append(Taker(at.seq, event.ref.key, event.queue, event.request, place))
    if len(state.takers) >= 2 * TAKERS:
        del state.takers[:-TAKERS]
    yield from _charged(state, at, event)


def _handed_on(state: ReadState, uid: str) -> bool:
    """Whether the job had the quota before: the job moves to other nodes."""
    record = state.records.get(uid)
    kept = record.past.all() if record is not None else []
    last = kept[-1].event if kept else None
    return isinstance(last, d.QuotaReleased) and last.reason == "moved"


def _charged(state: ReadState, at: Position, event: d.QuotaReserved | d.QuotaMoved) -> Iterator[Said]:
    yield event.ref, happened(at, tag_of(event), "step", event=event, used=usage(state, event.queue, event.request))


def _denied(state: ReadState, at: Position, event: d.QuotaDenied) -> Iterator[Said]:
    if event.short is None:
        yield event.ref, happened(at, "stale", "detail", event=event)
        return
    job = state.queues.jobs.get(event.ref.uid)
    place = where(state, job) if job is not None and job.status == "waiting" else None
    yield event.ref, happened(at, "quota_denied", "turn", event=event, where=place)
    if job is None:
        return
    for uid in state.unanswered.pop(job.shape, ()):
        other = state.queues.jobs.get(uid)
        if other is not None and (other.shape, other.status) == (job.shape, "waiting") and other is not job:
            yield other.ref, happened(at, "parked", "turn", refusal=event.short, where=where(state, other))
    if len(state.unanswered) > 2 * len(state.queues.book.shapes) + 100:
        state.unanswered = {key: uids for key, uids in state.unanswered.items() if key in state.queues.book.shapes}


def _adopted(state: ReadState, at: Position, event: d.WorkloadAdopted) -> Iterator[Said]:
    over = next((path for path in path_chain(event.queue) if _is_over(state, path, event.request)), "")
    used = usage(state, over, event.request) if over else ()
    yield event.ref, happened(at, "workload_adopted", "turn", event=event, path=over, used=used)


def _recharged(state: ReadState, at: Position, event: ChargeChanged) -> Iterator[Said]:
    used = usage(state, event.queue, event.request)
    yield event.ref, happened(at, "charge_changed", "turn", event=event, used=used)


def _is_over(state: ReadState, path: str, request: Vector) -> bool:
    return any((state.queues.ledger.headroom(path, name) or 0) < 0 for name in request)


def _released(state: ReadState, at: Position, event: d.QuotaReleased) -> Iterator[Said]:
    _remember(state, at, Release(event.ref.key, event.request))
    used = usage(state, event.queue, event.request)
    yield event.ref, happened(at, "quota_released", "turn", event=event, used=used)


def _remember(state: ReadState, at: Position, release: Release) -> None:
    state.releases[f"{at.seq}-{at.item}"] = release
    if len(state.releases) > RELEASES:
        del state.releases[next(iter(state.releases))]


# --- admission ----------------------------------------------------------------------------------------------------


def _admitted(state: ReadState, at: Position, event: d.GangAdmitted) -> Iterator[Said]:
    job, charge = state.queues.jobs.get(event.ref.uid), state.queues.ledger.charges.get(event.ref.uid)
    nodes: dict[str, int] = {}
    for placement in event.placements:
        nodes[placement.node] = nodes.get(placement.node, 0) + placement.count
    yield (
        event.ref,
        happened(
            at,
            "gang_admitted",
            "turn",
            event=structs.replace(event, placements=()),
            request=charge.request if charge is not None else None,
            span=max(0, state.now - waits_since(state, job)) if job is not None else -1,
            nodes=tuple(islice(nodes.items(), NODES)),
            more=max(0, len(nodes) - NODES),
            words=(event.placement or state.placement) if nodes else "",
        ),
    )


def _evicted(state: ReadState, at: Position, event: d.EvictionOrdered) -> Iterator[Said]:
    kept = event
    if len(event.victims) > VICTIMS:
        kept = structs.replace(event, victims=event.victims[:VICTIMS])
    told = {"event": kept, "number": sum(victim.priority is not None for victim in event.victims)}
    yield event.ref, happened(at, "eviction_ordered", "turn", more=len(event.victims) - len(kept.victims), **told)
    for victim in event.suspended:
        record = state.records.get(victim.ref.uid)
        ran = state.now - record.running_at if record is not None and record.running_at else -1
        leaving = leaving_for(event, victim, state.generation, Cause(at.seq, at.item))
        yield victim.ref, happened(at, "evicted", "turn", leaving=leaving, span=ran)


def _judged(state: ReadState, at: Position, event: facts.PodGroupObserved) -> Iterator[Said]:
    """kube-scheduler's verdict on the gang of a job that kube-scheduler places."""
    record = state.records.get(event.pod_group.owner_uid) if event.pod_group.attempt else None
    named = record is not None and event.pod_group.ref.key == f"{record.ref.namespace}/{pod_group_name(record.ref)}"
    if record is not None and named and event.pod_group.verdict is not None:
        yield record.ref, happened(at, "pod_group_judged", "turn", event=event)


def _itself(weight: Weight) -> History:
    """The history of an event about one job: the event is the whole entry."""

    def history(_state: ReadState, at: Position, event: Any) -> Iterator[Said]:
        if event.ref is not None:
            yield event.ref, happened(at, tag_of(event), weight, event=event)

    return history


def _of_owner(weight: Weight) -> History:
    """The history of an event about a Ray cluster: an entry for the job that owns the cluster."""

    def history(
        _state: ReadState, at: Position, event: elastic.GateSet | elastic.WorkersChosen | elastic.WorkersRemoved
    ) -> Iterator[Said]:
        if isinstance(event, elastic.WorkersChosen):
            event = structs.replace(event, workers=event.workers[:VICTIMS])
        else:
            event = structs.replace(event, workers={name: pods[:VICTIMS] for name, pods in event.workers.items()})
        yield event.owner, happened(at, tag_of(event), weight, event=event)

    return history


def _written(weight: Weight) -> History:
    """The history of a write to a job. Writes to pods and requests for nodes are entries of gangs."""

    def history(_state: ReadState, at: Position, event: effects.EffectApplied | effects.EffectFailed) -> Iterator[Said]:
        if event.action in ("resume", "suspend"):
            yield event.ref, happened(at, tag_of(event), weight, event=event)

    return history


HISTORY: Mapping[type[Event], History] = {
    facts.WorkloadStarted: _started,
    facts.WorkloadFinished: _finished,
    facts.WorkloadGone: _gone,
    facts.ObjectUnreadable: _unreadable,
    facts.PodGroupObserved: _judged,
    d.WorkloadQueued: _queued,
    d.WorkloadDequeued: _itself("turn"),
    d.WorkloadRefused: _itself("turn"),
    d.CandidatesProposed: _proposed,
    d.QuotaTreeAccepted: _tree,
    d.QuotaReserved: _reserved,
    d.QuotaMoved: _charged,
    d.QuotaDenied: _denied,
    d.WorkloadAdopted: _adopted,
    ChargeChanged: _recharged,
    d.QuotaReleased: _released,
    d.GangAdmitted: _admitted,
    d.EvictionOrdered: _evicted,
    d.SuspensionRecorded: _itself("turn"),
    claims.ClaimOpened: _itself("turn"),
    claims.ClaimEnded: _itself("turn"),
    d.SuspensionOrdered: _itself("turn"),
    d.PreemptionProposed: _itself("step"),
    d.ReclaimDeferred: _itself("step"),
    claims.PlanStale: _itself("step"),
    claims.VictimStays: _itself("turn"),
    d.GangAwaitingNodes: _itself("turn"),
    d.GangDeferred: _itself("turn"),
    d.PlacesFound: _itself("step"),
    d.PlacesReleased: _itself("step"),
    gangs.NodesClaimed: _itself("turn"),
    gangs.NodesClaimEnded: _itself("turn"),
    growing.NodesRequested: _itself("turn"),
    growing.NodesRequestWithdrawn: _itself("turn"),
    elastic.GrowthRequested: _itself("step"),
    elastic.GrowthGranted: _itself("turn"),
    elastic.GrowthDenied: _itself("turn"),
    elastic.GrowthWithdrawn: _itself("turn"),
    elastic.SurplusOrdered: _itself("turn"),
    elastic.GateSet: _of_owner("step"),
    elastic.WorkersChosen: _of_owner("turn"),
    elastic.WorkersKept: _itself("turn"),
    elastic.WorkersRemoved: _of_owner("turn"),
    alarms.AlarmRaised: _itself("turn"),
    alarms.AlarmCleared: _itself("turn"),
    effects.EffectApplied: _written("step"),
    effects.EffectFailed: _written("turn"),
}


# --- of gangs ---------------------------------------------------------------------------------------------------------


GangSaid = tuple[str, Happening]


def meet_gang(state: ReadState, ref: Ref) -> None:
    """A pod that Muster places, or a pod of a gang, exists: the gang has a record from here on.

    A pod in no gang has a record of its own.
    """
    key = state.gangs.gang_of.get(ref.uid, "")
    if key and key not in state.gang_records:
        state.gang_records[key] = GangRecord(key if "/" in key else ref.key)
    state.gangs_gone.pop(key, None)


def forget_gang(state: ReadState, key: str) -> None:
    """The last pod of a gang is gone: the record stays for a while, as long as few gangs have gone since."""
    gang = state.gangs.gangs.get(key)
    if not key or (gang is not None and gang.pods):
        return
    state.gangs_gone.pop(key, None)
    state.gangs_gone[key] = state.now
    if key in state.gang_records:
        state.gang_records[key].past.pack()
    while state.gangs_gone:
        oldest = next(iter(state.gangs_gone))
        if len(state.gangs_gone) <= GONE_KEPT and state.now - state.gangs_gone[oldest] <= GONE_KEPT_MS:
            return
        del state.gangs_gone[oldest]
        state.gang_records.pop(oldest, None)


def _of(state: ReadState, refs: Iterable[Ref]) -> list[str]:
    """The gangs of pods, each gang once."""
    gangs = (state.gangs.gang_of.get(ref.uid, "") for ref in refs)
    return list(dict.fromkeys(key for key in gangs if key))


def _held_back(state: ReadState, at: Position, event: gangs.GangHeldBack) -> Iterator[GangSaid]:
    kept = structs.replace(event, pods=event.pods[:1])
    for key in [event.gang] if event.gang in state.gang_records else _of(state, event.pods):
        yield key, happened(at, "gang_held_back", "turn", event=kept)


def _claim(_state: ReadState, at: Position, event: gangs.NodesClaimed | gangs.NodesClaimEnded) -> Iterator[GangSaid]:
    if event.ref is None:
        yield event.gang, happened(at, tag_of(event), "turn", event=event)


def _placed(state: ReadState, at: Position, event: gangs.PodsPlaced) -> Iterator[GangSaid]:
    nodes: dict[str, int] = {}
    for pod in event.pods:
        nodes[pod.node] = nodes.get(pod.node, 0) + 1
    kept = structs.replace(event, pods=())
    around = {"number": len(event.pods), "more": max(0, len(nodes) - NODES)}
    for key in _of(state, (pod.ref for pod in event.pods)):
        yield key, happened(at, "pods_placed", "turn", event=kept, nodes=tuple(islice(nodes.items(), NODES)), **around)


def _pods_released(state: ReadState, at: Position, event: gangs.PodsReleased) -> Iterator[GangSaid]:
    kept = structs.replace(event, pods=event.pods[:NODES])
    for key in _of(state, (pod.ref for pod in event.pods)):
        yield key, happened(at, "pods_released", "turn", event=kept, more=max(0, len(event.pods) - NODES))


def _bound(weight: Weight) -> Callable[[ReadState, Position, Any], Iterator[GangSaid]]:
    def history(
        state: ReadState, at: Position, event: effects.EffectApplied | effects.EffectFailed
    ) -> Iterator[GangSaid]:
        for key in _of(state, [event.ref]) if event.action == "bind" else ():
            yield key, happened(at, tag_of(event), weight, event=event)

    return history


def _request_noted(
    state: ReadState, at: Position, event: growing.NodesRequested | growing.NodesRequestWithdrawn
) -> Iterator[GangSaid]:
    for key in event.gangs:
        yield key, happened(at, tag_of(event), "turn", event=event)


def _pod_group(state: ReadState, at: Position, event: facts.PodGroupObserved) -> Iterator[GangSaid]:
    pod_group = event.pod_group
    if pod_group.verdict is None:
        yield pod_group.ref.key, happened(at, "pod_group_observed", "detail", event=event)
    else:
        yield pod_group.ref.key, happened(at, "pod_group_judged", "turn", event=event)


GANG_HISTORY: Mapping[type[Event], Callable[[ReadState, Position, Any], Iterable[GangSaid]]] = {
    gangs.GangHeldBack: _held_back,
    gangs.NodesClaimed: _claim,
    gangs.NodesClaimEnded: _claim,
    gangs.PodsPlaced: _placed,
    gangs.PodsReleased: _pods_released,
    effects.EffectApplied: _bound("detail"),
    effects.EffectFailed: _bound("turn"),
    growing.NodesRequested: _request_noted,
    growing.NodesRequestWithdrawn: _request_noted,
    facts.PodGroupObserved: _pod_group,
}


# --- historian --------------------------------------------------------------------------------------------------------


Listener = Callable[[Ref, Happening], None]


class Historian:
    """Writes the histories. ``listener`` hears every happening of a job at once."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def compared(self, fold: Arm) -> Arm:
        """The fold of an observed job, and the history entries of its changes."""

        def arm(state: ReadState, at: Position, event: WorkloadObserved) -> None:
            new = event.workload
            old = state.queues.workloads.get(new.ref.uid)
            fold(state, at, event)
            if state.queues.workloads.get(new.ref.uid) is new:
                self.tell(state, observed(state, at, old, new))

        return arm

    def arm_of(self, kind: type[Event]) -> Arm | None:
        """The arm that writes an event of a type to the histories of jobs and gangs. None for an event that no history
        notes.
        """
        of_job, of_gang = HISTORY.get(kind), GANG_HISTORY.get(kind)
        if of_job is None and of_gang is None:
            return None

        def arm(state: ReadState, at: Position, event: Any) -> None:
            if of_job is not None:
                self.tell(state, of_job(state, at, event))
            if of_gang is not None:
                self._tell_gang(state, of_gang(state, at, event))

        return arm

    def tell(self, state: ReadState, happenings: Iterable[Said]) -> None:
        """Write entries for jobs that exist, or that are remembered."""
        for ref, happening in happenings:
            if ref.uid in state.records or ref.uid in state.queues.workloads or happening.what == "object_unreadable":
                record_of(state, ref).past.add(happening)
            if self._listener is not None and happening.what != "parked":  # The refused job is heard of.
                self._listener(ref, happening)

    def held_up(self, state: ReadState, at: Position, job: str, before: HeldUp | None) -> None:
        """Write an entry for a job when the worst code of the job's pods has changed."""
        held = state.pods.of(job, state.presence)
        if held is not None and (before is None or before.code != held.code):
            told = {"name": held.first.name, "pod": held.first.trouble}
            self.below(state, job, happened(at, "pods_held_up", "step", **told))

    def below(self, state: ReadState, owner: str, happening: Happening) -> None:
        """Write an entry about an object that belongs to a job. ``owner``: uid of the job."""
        workload = state.queues.workloads.get(owner)
        if workload is not None:
            self.tell(state, [(workload.ref, happening)])

    def _tell_gang(self, state: ReadState, happenings: Iterable[tuple[str, Happening]]) -> None:
        for key, happening in happenings:
            record = state.gang_records.get(key)
            if record is not None:
                record.past.add(happening)
