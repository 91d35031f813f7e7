"""The folds of the read model about jobs: phases, promises, ends.

The phases of jobs and the allowed steps between phases.

The run times of ended jobs, and the comparison of waits with projected waits: the material of promised starts.

The records of jobs: the phase, the trouble of pods, and the reason of the end.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from muster.core.learned import kinds_of
from muster.core.workloads.registry import is_job
from muster.events import decisions as d
from muster.events import facts
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import (
    GateSet,
    GrowthDenied,
    GrowthGranted,
    GrowthRequested,
    GrowthWithdrawn,
    SurplusOrdered,
)
from muster.events.facts import Synced
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.reasons import SuspensionReason
from muster.events.system import LogNearlyFull
from muster.model.closed import total
from muster.model.keys import Position
from muster.model.problem import problem
from muster.model.resources import beyond
from muster.model.workload import Workload
from muster.told.codes.values import Leaving, LeavingCode, NodesKept, Phase, Pools, Scaling
from muster.told.readmodel.history import Historian
from muster.told.readmodel.objectfolds import cluster_gone, cluster_seen
from muster.told.readmodel.readstate import (
    Illegal,
    ReadState,
    SizeChange,
    asked_in,
    fade,
    leaving_for,
    prune,
    record_of,
)
from muster.told.readmodel.touched import Marker

# --- phases -----------------------------------------------------------------------------------------------------------


_IN_QUEUE: tuple[Phase, ...] = ("seen", "refused", "waiting")

STEPS: dict[Phase, tuple[Phase, ...]] = {
    "seen": ("refused", "waiting", "outside", "admitted", "running", "finished", "gone"),
    "outside": ("seen", "refused", "waiting", "admitted", "running", "finished", "gone"),
    "refused": ("seen", "waiting", "outside", "admitted", "running", "finished", "gone"),
    "waiting": ("seen", "refused", "outside", "reserved", "admitted", "running", "finished", "gone"),
    "reserved": (*_IN_QUEUE, "outside", "admitted", "running", "leaving", "finished", "gone"),
    "admitted": (*_IN_QUEUE, "outside", "reserved", "running", "leaving", "finished", "gone"),
    "running": (*_IN_QUEUE, "outside", "admitted", "leaving", "finished", "gone"),
    "leaving": (*_IN_QUEUE, "outside", "admitted", "running", "finished", "gone"),
    "finished": ("refused", "gone"),
    "gone": ("refused", "leaving"),
}
"""{phase: phases that may follow at once}. Any other step is a violation.

A waiting job holds no quota before the reservation. A finished job enters no other phase, unless the object can no
longer be read. A job that is gone stays gone.
"""

total(STEPS, Phase, "libs/muster/told/readmodel/jobfolds.py (STEPS)")

ILLEGAL_KEPT = 20


def phase_of(state: ReadState, uid: str) -> Phase:
    """How far a job has come, as of the state's position."""
    workload = state.queues.workloads.get(uid)
    if workload is None or (workload.deleting and workload.phase != "finished"):
        trouble = state.troubles.get(uid)
        return "refused" if trouble is not None and trouble.code == "unreadable" else "gone"
    if workload.phase == "finished":
        return "finished"
    if uid in state.queues.ledger.charges:
        return _charged(state, workload)
    if uid in state.queues.jobs or uid in state.queues.unplaced or state.queues.not_before.get(uid, 0) > state.now:
        return "waiting"
    if not workload.suspended:
        return "outside"
    return "refused" if uid in state.queues.refusals else "seen"


def _charged(state: ReadState, workload: Workload) -> Phase:
    uid = workload.ref.uid
    if uid in state.suspended_outside or uid in state.leaving:
        return "leaving"
    if not workload.suspended and workload.phase == "running":
        return "running"
    record = state.records.get(uid)
    known = record is not None and (record.admitted_at or record.adoption)
    return "admitted" if known or uid in state.queues.resumed or not workload.suspended else "reserved"


def advance(state: ReadState, uid: str) -> None:
    """Bring the phase of a job's record up to date. A step that is not allowed is kept for ``check``."""
    record = state.records.get(uid)
    if record is None:
        return
    before, after = record.phase, phase_of(state, uid)
    if before == after:
        return
    if after not in STEPS[before]:
        told = tuple(f"{happening.seq} {happening.what}" for happening in record.past.all()[-10:])
        state.illegal.append(Illegal(state.seq, record.ref, before, after, told))
        del state.illegal[:-ILLEGAL_KEPT]
    record.phase = after
    record.since = state.now


# --- promises ---------------------------------------------------------------------------------------------------------


def running(state: ReadState) -> dict[str, int]:
    """Log time (ms) at which each charged workload began to run, by uid; 0 before the run."""
    records = state.records
    return {uid: records[uid].running_at for uid in state.queues.ledger.charges if uid in records}


def workload_observed(state: ReadState, _at: Position, event: facts.WorkloadObserved) -> None:
    state.sight.observed(event)
    _time_passes(state)


def synced(state: ReadState, _at: Position, _event: Synced) -> None:
    state.sight.synced(everything=state.synced)


def _time_passes(state: ReadState) -> None:
    if state.promises.is_due(state.now):
        state.promises.make(state.queues, running(state), state.now)


def finished(state: ReadState, _at: Position, event: facts.WorkloadFinished) -> None:
    """Fold the end of a run, before the record forgets the start of the run."""
    record = state.records.get(event.ref.uid)
    if record is not None and record.running_at and record.queue and record.request is not None:
        kinds = kinds_of(event.ref.namespace, event.ref.name, record.queue, record.request)
        state.promises.durations.ended(kinds, max(state.now - record.running_at, 0))
    _time_passes(state)


def queued(state: ReadState, _at: Position, event: d.WorkloadQueued) -> None:
    if event.ref.uid not in state.queues.ledger.charges:
        state.promises.queued(event.ref.uid, state.now)


def left(
    state: ReadState,
    _at: Position,
    event: facts.WorkloadGone | facts.ObjectUnreadable | d.WorkloadDequeued | d.WorkloadAdopted,
) -> None:
    if event.ref.uid not in state.queues.jobs or isinstance(event, d.WorkloadAdopted):
        state.promises.left(event.ref.uid)
    if isinstance(event, d.WorkloadAdopted):
        state.sight.adopted(event)
    elif isinstance(event, facts.WorkloadGone) and event.ref.uid not in state.queues.workloads:
        state.sight.found.pop(event.ref.uid, None)


def released(state: ReadState, _at: Position, event: d.QuotaReleased) -> None:
    if event.ref.uid not in state.queues.jobs:
        state.promises.left(event.ref.uid)
    _time_passes(state)


def admitted(state: ReadState, _at: Position, event: d.GangAdmitted) -> None:
    _time_passes(state)
    state.promises.admitted(event.ref.uid, state.now)


# --- jobs -------------------------------------------------------------------------------------------------------------


def _code_of(reason: SuspensionReason) -> LeavingCode:
    """The code of a job that an order suspends for this reason."""
    match reason:
        case "running_timeout" | "no_pods" | "unschedulable":
            return "RunningTimeout"
        case "stale_gang":
            return "StaleGang"
        case "overuse":
            return "Overuse"
    assert_never(reason)


class JobFolds:
    """One arm for each event about a job."""

    def __init__(self, mark: Marker, history: Historian) -> None:
        self._mark = mark
        self._history = history

    def _queued(self, state: ReadState, _at: Position, event: d.WorkloadQueued) -> None:
        record = record_of(state, event.ref)
        record.queue, record.request, record.ended, record.reason = event.queue, event.request, "", ""
        self._job_changed(event)
        self._mark.clear(state, event.ref.uid)

    def _dequeued(self, state: ReadState, _at: Position, event: d.WorkloadDequeued) -> None:
        record = state.records.get(event.ref.uid)
        if record is not None and record.ended != "finished":
            record.ended, record.reason = "left", event.reason
        state.pace.left(event.queue, waiting=_waits(state, event.queue))
        self._job_changed(event)

    def _adopted(self, state: ReadState, _at: Position, event: d.WorkloadAdopted) -> None:
        record = record_of(state, event.ref)
        record.adoption, record.queue, record.request = event.reason, event.queue, event.request
        if not is_job(event.ref.kind):
            state.lone[event.ref.uid] = record
        state.leaving.pop(event.ref.uid, None)
        self._job_changed(event)

    def _started(self, state: ReadState, _at: Position, event: facts.WorkloadStarted) -> None:
        record_of(state, event.ref).running_at = state.now
        self._mark.jobs(event.ref.uid)

    def _finished(self, state: ReadState, _at: Position, event: facts.WorkloadFinished) -> None:
        record = record_of(state, event.ref)
        record.running_at, record.ended = 0, "finished"
        record.outcome, record.detail = event.outcome, event.detail
        if event.ref.uid not in state.queues.ledger.charges:
            self._over(state, event.ref.uid)

    def _reserved(self, state: ReadState, _at: Position, event: d.QuotaReserved) -> None:
        _has_places(state, event.ref.uid)
        state.leaving.pop(event.ref.uid, None)
        self._job_changed(event)

    def _job_changed(self, event: d.WorkloadQueued | d.WorkloadDequeued | d.WorkloadAdopted | d.QuotaReserved) -> None:
        self._mark.jobs(event.ref.uid)
        self._mark.queues(event.queue)
        self._mark.tree()

    def _moved(self, state: ReadState, _at: Position, event: d.QuotaMoved) -> None:
        record = state.records.get(event.ref.uid)
        if record is not None:
            record.queue = event.queue
        self._mark.jobs(event.ref.uid)
        self._mark.queues(event.before, event.queue)
        self._mark.tree()

    def _charge_changed(self, state: ReadState, at: Position, event: ChargeChanged) -> None:
        _note_over(state, at, event)
        self._mark.jobs(event.ref.uid)
        self._mark.tree()

    def _growth_asked(self, state: ReadState, _at: Position, event: GrowthRequested) -> None:
        growth = record_of(state, event.ref).growth
        growth.granted, growth.asked, growth.denied = event.granted, asked_in(event.units), None
        self._mark.jobs(event.ref.uid)

    def _growth_denied(self, state: ReadState, at: Position, event: GrowthDenied) -> None:
        record = record_of(state, event.ref)
        record.growth.denied, record.change = event, SizeChange(event, Cause(at.seq, at.item), at.at)
        self._mark.jobs(event.ref.uid)

    def _grown(self, state: ReadState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
        record = record_of(state, event.ref)
        growth, record.change = record.growth, SizeChange(event, Cause(at.seq, at.item), at.at)
        _note_over(state, at, event)
        growth.granted, growth.asked, growth.denied = event.groups, {}, None
        self._mark.jobs(event.ref.uid)
        self._mark.tree()

    def _surplus(self, state: ReadState, at: Position, event: SurplusOrdered) -> None:
        record_of(state, event.ref).change = SizeChange(event, Cause(at.seq, at.item), at.at)
        self._mark.jobs(event.ref.uid)

    def _gate_set(self, state: ReadState, _at: Position, event: GateSet) -> None:
        growth = record_of(state, event.owner).growth
        if not event.groups:
            return
        growth.ceilings = event.ceilings
        growth.granted = growth.granted or event.most
        self._mark.jobs(event.owner.uid)

    def _alarm(self, state: ReadState, _at: Position, event: AlarmRaised | AlarmCleared) -> None:
        record_of(state, event.ref).growth.alarm = event if isinstance(event, AlarmRaised) else None
        self._mark.jobs(event.ref.uid)

    def _released(self, state: ReadState, _at: Position, event: d.QuotaReleased) -> None:
        uid = event.ref.uid
        self._mark.jobs(uid)
        self._mark.tree()
        state.suspended_outside.pop(uid, None)
        state.lone.pop(uid, None)
        state.pods.refused(uid, "", state.now)
        record = state.records.get(uid)
        if record is not None:
            record.released_at = state.now if record.admitted_at or record.adoption else record.released_at
            record.admitted_at, record.running_at, record.adoption = 0, 0, None
            record.request = event.request
            record.growth = Scaling()
            if record.ended != "finished":
                record.ended, record.reason = "released", event.reason
            if record.gone_at:
                self._remember(state, uid)
            elif record.ended == "finished":
                self._over(state, uid)

    def _denied(self, state: ReadState, _at: Position, event: d.QuotaDenied) -> None:
        """A denial holds for every job of the shape: each of these jobs may have to show the denial."""
        self._mark.queues(event.queue)
        job = state.queues.jobs.get(event.ref.uid)
        shape = state.queues.book.shapes.get(job.shape) if job is not None else None
        if job is not None and shape is not None and event.reason != "stale":
            self._mark.jobs(*(place.uid for place in shape.waiting))

    def _proposed(self, _state: ReadState, _at: Position, event: d.CandidatesProposed) -> None:
        for candidate in event.candidates:
            self._mark.queues(candidate.queue)

    def _refused(self, state: ReadState, _at: Position, event: d.WorkloadRefused) -> None:
        self._mark.refused(state, event.ref, event.refusal)
        record = state.records.get(event.ref.uid)
        if record is not None:
            record.ended, record.reason = "refused", event.refusal.reason

    def _suspended(self, state: ReadState, _at: Position, event: d.SuspensionRecorded) -> None:
        if event.ref.uid in state.queues.ledger.charges:  # In the same commit its charge may have ended.
            state.suspended_outside[event.ref.uid] = event.by
        self._mark.jobs(event.ref.uid)

    def _short(self, state: ReadState, _at: Position, event: d.GangAwaitingNodes | d.GangDeferred) -> None:
        if event.ref.uid in state.queues.workloads:
            state.shortages[event.ref.uid] = event.shortage
            state.tried[event.ref.uid] = state.now
            growth = event.growth if isinstance(event, d.GangAwaitingNodes) else None
            refusals = event.refusals if isinstance(event, d.GangDeferred) else ()
            state.pools.pop(event.ref.uid, None)
            if growth is not None or refusals:
                state.pools[event.ref.uid] = Pools(growth, refusals)
        self._mark.jobs(event.ref.uid)

    def _nodes_claimed(self, state: ReadState, _at: Position, event: NodesClaimed) -> None:
        uid = event.ref.uid if event.ref is not None else ""
        nodes = dict.fromkeys(place.node for place in event.places)
        state.nodes_kept[uid or event.gang] = NodesKept(event.gang, uid, tuple(nodes))

    def _nodes_claim_ended(self, state: ReadState, _at: Position, event: NodesClaimEnded) -> None:
        """The jobs that were refused room for the sake of this gang show again which room the nodes lack."""
        state.nodes_kept.pop(event.ref.uid if event.ref is not None else event.gang, None)
        for uid, short in state.shortages.items():
            if short.kept_for == event.gang:
                state.shortages[uid] = replace(short, kept_for="")
                self._mark.jobs(uid)

    def _placed(self, state: ReadState, _at: Position, event: d.GangAdmitted) -> None:
        state.pace.admitted(event.queue, state.now, waiting=_waits(state, event.queue))
        record = record_of(state, event.ref)
        record.admitted_at, record.failure = state.now, None
        _has_places(state, event.ref.uid)
        self._mark.jobs(event.ref.uid)

    def _evicted(self, state: ReadState, at: Position, event: d.EvictionOrdered) -> None:
        for victim in event.suspended:
            self._leaves(state, victim.ref.uid, leaving_for(event, victim, state.generation, Cause(at.seq, at.item)))
        self._mark.jobs(event.ref.uid)

    def _timed_out(self, state: ReadState, at: Position, event: d.SuspensionOrdered) -> None:
        cause, refusal, why = Cause(at.seq, at.item), state.pods.refusal(event.ref.uid), event.problem
        if refusal is not None and event.reason == "no_pods":
            why = problem("", "pods_refused", said=refusal.trouble.said)
        self._leaves(state, event.ref.uid, Leaving(_code_of(event.reason), state.generation, cause, problem=why))

    def _leaves(self, state: ReadState, uid: str, leaving: Leaving) -> None:
        state.pods.refused(uid, "", state.now)
        if uid in state.queues.workloads:
            state.leaving[uid] = leaving
            self._mark.jobs(uid)

    def _claim_changed(self, _state: ReadState, _at: Position, event: ClaimOpened | ClaimEnded) -> None:
        """The status of the claimant has changed. Other waiting jobs change when they are tried or looked at again."""
        self._mark.jobs(event.ref.uid)

    def _resumed(self, state: ReadState, at: Position, event: EffectApplied) -> None:
        uid = event.ref.uid
        if event.action == "read_refusal":
            self._refusal_read(state, at, event)
        else:
            state.write_failures.pop(uid, None)
        self._mark.jobs(uid)

    def _refusal_read(self, state: ReadState, at: Position, event: EffectApplied) -> None:
        uid, words = event.ref.uid, str(event.problem.values["said"]) if event.problem is not None else ""
        charge, before = state.queues.ledger.charges.get(uid), state.pods.of(uid, state.presence)
        if charge is not None and uid not in state.leaving and state.pods.refused(uid, words, state.now):
            self._history.held_up(state, at, uid, before)

    def _failed(self, state: ReadState, _at: Position, event: EffectFailed) -> None:
        if event.reason == "refused" and event.ref.uid in state.queues.workloads:
            state.write_failures[event.ref.uid] = event.problem
        if event.action == "suspend":
            state.leaving.pop(event.ref.uid, None)  # The job stays.
        self._mark.jobs(event.ref.uid)

    def _workload_observed(self, state: ReadState, _at: Position, event: facts.WorkloadObserved) -> None:
        ref = event.workload.ref
        self._mark.jobs(ref.uid)
        known = state.queues.workloads.get(ref.uid)
        if known is not None:
            cluster_seen(state, self._mark, ref, ref.uid, known.elastic if ref.kind == "RayCluster" else None)
            record = record_of(state, ref)
            record.gone_at, record.owner = 0, known.origin.owner
            state.gone.pop(ref.uid, None)
        if not event.workload.suspended:
            state.suspended_outside.pop(event.workload.ref.uid, None)
        trouble = state.troubles.get(event.workload.ref.uid)
        if trouble is not None and trouble.code == "unreadable":
            self._mark.clear(state, event.workload.ref.uid)

    def _workload_gone(self, state: ReadState, _at: Position, event: facts.WorkloadGone) -> None:
        uid = event.ref.uid
        record = state.records.get(uid)
        if record is not None and uid not in state.queues.workloads:
            record.running_at, record.gone_at = 0, state.now
            if uid not in state.queues.ledger.charges:
                self._remember(state, uid)
        self._mark.forget_job(uid)
        if uid not in state.queues.workloads:
            cluster_gone(state, uid, uid)
        state.suspended_outside.pop(uid, None)
        state.write_failures.pop(uid, None)
        _has_places(state, uid)
        state.leaving.pop(uid, None)
        self._mark.clear(state, uid)

    def _over(self, state: ReadState, uid: str) -> None:
        """A job is over and holds no quota, and the object exists."""
        state.over[uid] = None
        state.records[uid].past.pack()
        fade(state.records, state.over)

    def _remember(self, state: ReadState, uid: str) -> None:
        """The job and its objects are gone: the job is remembered for a while."""
        state.over.pop(uid, None)
        state.gone[uid] = None
        state.records[uid].past.pack()
        prune(state.records, state.gone, state.now)

    def _unreadable(self, state: ReadState, _at: Position, event: facts.ObjectUnreadable) -> None:
        self._mark.trouble(state, event.ref, "unreadable", [event.problem])
        if is_job(event.ref.kind):
            record_of(state, event.ref)

    def _nearly_full(self, state: ReadState, _at: Position, _event: LogNearlyFull) -> None:
        """Every waiting job waits for the next generation of the log now."""
        self._mark.jobs(*(uid for uid, job in state.queues.jobs.items() if job.status == "waiting"))


def _note_over(state: ReadState, at: Position, event: ChargeChanged | GrowthGranted | GrowthWithdrawn) -> None:
    """Since when the job runs beyond its grant, without what goes by itself."""
    record = record_of(state, event.ref)
    lasts = beyond(event.over, state.presence.going(event.ref.uid))
    record.over_since = (record.over_since or at.at) if lasts else 0


def _waits(state: ReadState, queue: str) -> bool:
    shapes = state.queues.book.shapes
    return any(shapes[key].waiting for key in state.queues.book.queues.get(queue, ()))


def _has_places(state: ReadState, uid: str) -> None:
    """The job has places: the earlier lack of nodes is forgotten."""
    state.shortages.pop(uid, None)
    state.pools.pop(uid, None)
    state.tried.pop(uid, None)
