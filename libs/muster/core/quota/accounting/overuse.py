"""What runs without an admission, or beyond what was granted, while its quota is above its max: where the tree says
``muster.dev/overuse-timeout`` it is suspended after that time, and queued. The youngest goes first, and no more than is
needed. Evictions that are paused there are paused for it too.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.quota.demand import chain_of
from muster.core.quota.state import AccountantState, Entry, can_suspend
from muster.events.decisions import SuspensionOrdered
from muster.model.resources import Vector, add_into


def note(state: AccountantState, entry: Entry) -> None:
    """Remember since when it uses what it was not admitted with, and when that is to end."""
    uid, limit = entry.ref.uid, state.ledger.rules_of(entry.queue).overuse_ms
    if not _uses(state, entry):
        entry.over_since = 0
    elif not entry.over_since:
        entry.over_since = state.now
    if limit and entry.over_since and not entry.leaving:
        state.overuse[uid] = max(entry.over_since + limit, entry.spared_until)
    else:
        state.overuse.pop(uid, None)


def suspensions_due(state: AccountantState, ordered: set[str]) -> Iterator[SuspensionOrdered]:
    """The jobs to suspend now. ``ordered``: uids of those that are suspended in this commit for another reason."""
    if not any(at <= state.now for at in state.overuse.values()):
        return
    excess: dict[str, Vector] = {}
    found = [state.entries[uid] for uid in state.overuse if uid not in ordered]
    for entry in sorted(found, key=lambda entry: (-entry.over_since, entry.ref.key)):
        workload, uid = state.workloads.get(entry.ref.uid), entry.ref.uid
        if workload is None or not can_suspend(workload) or "evictions" in state.resting(entry.queue):
            continue
        chain = [path for path in chain_of(entry.queue) if path in state.ledger.nodes]
        for path in chain:
            if path not in excess:
                excess[path] = _excess(state, path, ordered)
        if not any(excess[path].get(name, 0) > 0 for path in chain for name in _uses(state, entry)):
            continue
        for path in chain:  # One whose time has not come goes before those that are older.
            add_into(excess[path], state.ledger.charges[uid].request, -1)
        if state.overuse[uid] <= state.now:
            cause = state.causes.get(uid, entry.cause)
            yield SuspensionOrdered(cause=cause, ref=entry.ref, attempt=entry.attempt, reason="overuse")


def _uses(state: AccountantState, entry: Entry) -> Vector:
    """The part of its charge that was not admitted."""
    charge = state.ledger.charges.get(entry.ref.uid)
    if charge is None:
        return {}
    return charge.request if entry.bypassed else charge.over


def _excess(state: AccountantState, path: str, ordered: set[str]) -> Vector:
    """How far a node of the tree is above its max, without what leaves already; below it the amounts are negative."""
    used = state.ledger.used.get(path, {})
    found = {name: used.get(name, 0) - limit for name, limit in state.ledger.nodes[path].limit.items()}
    if any(amount > 0 for amount in found.values()):
        for uid, entry in state.entries.items():
            if (entry.leaving or uid in ordered) and path in chain_of(entry.queue):
                add_into(found, state.ledger.charges[uid].request, -1)
    return found
