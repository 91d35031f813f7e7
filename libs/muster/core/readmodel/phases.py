"""How far a job has come, and which steps from one phase to another there may be."""

from __future__ import annotations

from muster.core.codes.values import Phase
from muster.core.readmodel.state import Illegal, ReadState
from muster.model.closed import total
from muster.model.workload import Workload

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
"""From a phase to those that may follow at once. What is not here is a violation: a job that waits holds no quota
before it is reserved, what has finished comes back as nothing unless it can no longer be
read, and what is gone stays gone."""

total(STEPS, Phase, "libs/muster/core/readmodel/phases.py (STEPS)")

ILLEGAL_KEPT = 20


def phase_of(state: ReadState, uid: str) -> Phase:
    """How far a job has come, as of the state's position."""
    workload = state.queues.workloads.get(uid)
    if workload is None:
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
    """Bring the phase of a job's record up to date; a step that may not be is kept, for ``check``."""
    record = state.records.get(uid)
    if record is None:
        return
    before, after = record.phase, phase_of(state, uid)
    if before == after:
        return
    if after not in STEPS[before]:
        told = tuple(f"{each.seq} {each.what}" for each in record.happenings[-10:])
        state.illegal.append(Illegal(state.seq, record.ref, before, after, told))
        del state.illegal[:-ILLEGAL_KEPT]
    record.phase = after
    record.since = state.now
