"""What is due of one workload, brought in line with the state after each event that touches it."""

from __future__ import annotations

from muster.core.quota.accounting import overuse
from muster.core.quota.accounting.suspending import ends_at, note_short, note_unbound
from muster.core.quota.accounting.usage import charge_due
from muster.core.quota.claiming import overdue_at, why_over
from muster.core.quota.endings import idle_deadline, note_acted, note_idle, release_reason
from muster.core.quota.ledger import standalone
from muster.core.quota.state import (
    AccountantState,
    Entry,
    must_adopt,
    must_move,
)
from muster.events.base import Cause
from muster.model.keys import Position
from muster.model.workload import Workload


def entry_of(state: AccountantState, uid: str, attempt: int) -> Entry | None:
    entry = state.entries.get(uid)
    return entry if entry is not None and entry.attempt == attempt else None


def touched(state: AccountantState, at: Position, uid: str | None) -> None:
    if uid is not None and (uid in state.entries or uid in state.workloads):
        state.causes[uid] = Cause(at.seq, at.item)
        recheck(state, uid)


def recheck(state: AccountantState, uid: str) -> None:
    """Bring the ``due`` dicts and the deadline of one workload in line with the state."""
    entry, claim = state.entries.get(uid), state.ledger.claims.by_uid.get(uid)
    if entry is not None:
        state.due_adoption.pop(uid, None)
        _charged(state, uid, entry)
    else:
        _uncharged(state, uid)
    _set(state.due_end, uid, claim is not None and why_over(state, claim) is not None)


def _uncharged(state: AccountantState, uid: str) -> None:
    for due in (state.due_release, state.due_move, state.due_change, state.due_suspension, state.due_stay):
        due.pop(uid, None)
    for times in (state.overuse, state.overdue, state.deadlines):
        times.pop(uid, None)
    workload, pod = state.workloads.get(uid), state.standalone.get(uid)
    held = pod is not None and pod.bound and standalone.leaf_of(state.ledger, pod) is not None
    _set(state.due_adoption, uid, held or (workload is not None and must_adopt(state, workload)))


def _charged(state: AccountantState, uid: str, entry: Entry) -> None:
    workload, claims = state.workloads.get(uid), state.ledger.claims
    note_acted(state, entry)
    note_idle(state, entry)
    note_short(state, entry)
    note_unbound(state, entry)
    overuse.note(state, entry)
    over = release_reason(state, entry) is not None
    _set(state.due_release, uid, over)
    _set(state.due_move, uid, not over and must_move(state, entry))
    _set(state.due_change, uid, not over and charge_due(state, entry) is not None)
    _set(state.due_suspension, uid, _suspended_by_others(workload, entry))
    leaves = uid in claims.leaving or uid in claims.moving
    _set(state.due_stay, uid, leaves and not entry.leaving)
    _note_time(state.overdue, uid, overdue_at(entry) if leaves else None)
    times = [at for at in (idle_deadline(state, entry), ends_at(state, entry)) if at is not None]
    _note_time(state.deadlines, uid, min(times) if times and not over else None)


def _set(due: dict[str, None], uid: str, wanted: bool) -> None:
    if wanted:
        due[uid] = None
    else:
        due.pop(uid, None)


def _note_time(times: dict[str, int], uid: str, at: int | None) -> None:
    if at is not None:
        times[uid] = at
    else:
        times.pop(uid, None)


def _suspended_by_others(workload: Workload | None, entry: Entry) -> bool:
    """Whether an admitted workload was suspended, and not by a decision of ours."""
    return (
        workload is not None
        and workload.suspended
        and workload.phase != "finished"
        and 0 < entry.resumed_rv < workload.rv
        and not entry.suspension_recorded
        and not entry.suspension
    )
