"""What the read model keeps to promise starts: how long jobs ran, and how waits compare with projected ones."""

from __future__ import annotations

from muster.core.learned.durations import kinds_of
from muster.core.readmodel.state import ReadState
from muster.events import decisions as d
from muster.events import facts
from muster.model.keys import Position


def running(state: ReadState) -> dict[str, int]:
    """Log time (ms) at which each charged workload began to run, by uid; 0 where it has not yet."""
    records = state.records
    return {uid: records[uid].running_at for uid in state.queues.ledger.charges if uid in records}


def workload_observed(state: ReadState, _at: Position, _event: facts.WorkloadObserved) -> None:
    _time_passes(state)


def _time_passes(state: ReadState) -> None:
    if state.promises.is_due(state.now):
        state.promises.make(state.queues, running(state), state.now)


def finished(state: ReadState, _at: Position, event: facts.WorkloadFinished) -> None:
    """Heard before the record forgets since when it ran."""
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


def released(state: ReadState, _at: Position, event: d.QuotaReleased) -> None:
    if event.ref.uid not in state.queues.jobs:
        state.promises.left(event.ref.uid)
    _time_passes(state)


def admitted(state: ReadState, _at: Position, event: d.GangAdmitted) -> None:
    _time_passes(state)
    state.promises.admitted(event.ref.uid, state.now)
