"""What is due of one workload, brought in line with the state after each event that touches it."""

from __future__ import annotations

from muster.core.quota.accounting import overuse
from muster.core.quota.accounting.suspending import ends_at, note_short, note_unbound
from muster.core.quota.accounting.usage import charge_due
from muster.core.quota.claiming import overdue_at, why_over
from muster.core.quota.ledger import standalone
from muster.core.quota.state import (
    AccountantState,
    Entry,
    idle_deadline,
    must_adopt,
    must_move,
    note_idle,
    release_reason,
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
    entry, workload = state.entries.get(uid), state.workloads.get(uid)
    deadline = None
    if entry is not None:
        note_idle(state, entry)
        note_short(state, entry)
        note_unbound(state, entry)
        overuse.note(state, entry)
        times = (idle_deadline(state, entry), ends_at(state, entry))
        deadline = min((at for at in times if at is not None), default=None)
    _set(state.due_release, uid, entry is not None and release_reason(state, entry) is not None)
    _set(state.due_move, uid, entry is not None and uid not in state.due_release and must_move(state, entry))
    changes = entry is not None and uid not in state.due_release and charge_due(state, entry) is not None
    _set(state.due_change, uid, changes)
    _set(state.due_suspension, uid, entry is not None and _suspended_by_others(workload, entry))
    pod = state.standalone.get(uid) if entry is None else None
    uncharged = pod is not None and pod.bound and standalone.leaf_of(state.ledger, pod) is not None
    _set(state.due_adoption, uid, uncharged or (workload is not None and must_adopt(state, workload)))
    if entry is None:
        state.overuse.pop(uid, None)
    claims = state.ledger.claims
    claim, leaves = claims.by_uid.get(uid), entry is not None and (uid in claims.leaving or uid in claims.moving)
    _set(state.due_end, uid, claim is not None and why_over(state, claim) is not None)
    _set(state.due_stay, uid, leaves and entry is not None and not entry.leaving)
    overdue = overdue_at(entry) if leaves else None
    if overdue is not None:
        state.overdue[uid] = overdue
    else:
        state.overdue.pop(uid, None)
    if deadline is None or uid in state.due_release:
        state.deadlines.pop(uid, None)
    else:
        state.deadlines[uid] = deadline


def _set(due: dict[str, None], uid: str, wanted: bool) -> None:
    if wanted:
        due[uid] = None
    else:
        due.pop(uid, None)


def _suspended_by_others(workload: Workload | None, entry: Entry) -> bool:
    """Whether an admitted workload was suspended, and not by a decision of ours."""
    return (
        workload is not None
        and workload.suspended
        and workload.phase != "finished"
        and 0 < entry.resumed_rv < workload.rv
        and not entry.suspension_recorded
        and not entry.leaving
    )
