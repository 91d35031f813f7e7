"""The excess of a quota is taken back, and no more: the cheapest part first.

Overuse: a job runs without an admission, or beyond its grant, while its quota is above its max. Where the tree sets
``muster.dev/overuse-timeout``, the excess is taken back after this time. A Ray cluster first releases the workers
beyond its grant, and runs on. Whole jobs are suspended last, and queued: the youngest job first, no more
jobs than needed. The new cluster of an upgrade is no overuse of the serving one: the bridge holds the new cluster until
the quota is granted. A pause of evictions pauses all of this.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.quota.accountantstate import AccountantState, Entry, can_suspend
from muster.core.quota.demand import chain_of
from muster.events.decisions import SuspensionOrdered
from muster.events.elastic import SurplusOrdered
from muster.model.resources import Vector, add_into, lowest


def note_overuse(state: AccountantState, entry: Entry) -> None:
    """Remember since when the job overuses its admission, and the time at which the excess is taken back."""
    uid, limit = entry.ref.uid, state.ledger.rules_of(entry.queue).overuse_ms
    if not _uses(state, entry):
        entry.over_since = entry.reduced_at = 0
    elif not entry.over_since:
        entry.over_since = state.now
    if limit and entry.over_since and not entry.leaving:
        state.overuse[uid] = max(max(entry.over_since, entry.reduced_at) + limit, entry.spared_until)
    else:
        state.overuse.pop(uid, None)


def taken_back(state: AccountantState, ordered: set[str]) -> Iterator[SurplusOrdered | SuspensionOrdered]:
    """The orders due now: workers beyond a grant, then whole jobs. ``ordered``: uids of jobs suspended in this commit
    for another reason.
    """
    if not any(at <= state.now for at in state.overuse.values()):
        return
    excess: dict[str, Vector] = {}
    mine = [state.entries[uid] for uid in state.overuse if uid not in ordered]
    entries = sorted(mine, key=lambda entry: (-entry.over_since, entry.ref.key))
    for entry in (*filter(_has_surplus, entries), *entries):
        uid, whole = entry.ref.uid, entry.reduced_at > 0 or not _has_surplus(entry)
        workload = state.workloads.get(uid)
        if workload is None or "evictions" in state.resting(entry.queue) or (whole and not can_suspend(workload)):
            continue
        chain = [path for path in chain_of(entry.queue) if path in state.ledger.nodes]
        for path in chain:
            if path not in excess:
                excess[path] = _excess(state, path, ordered)
        uses = _uses(state, entry)
        if not any(excess[path].get(name, 0) > 0 for path in chain for name in uses):
            continue
        over = {name: max(excess[path].get(name, 0) for path in chain) for name in uses}
        gives = state.ledger.charges[uid].request if whole else lowest(uses, over)
        for path in chain:  # A younger job goes first, even before its time.
            add_into(excess[path], gives, -1)
        if state.overuse[uid] > state.now:
            continue
        cause = state.causes.get(uid, entry.cause)
        if whole:
            yield SuspensionOrdered(cause=cause, ref=entry.ref, attempt=entry.attempt, reason="overuse")
        else:
            surplus = {name: amount for name, amount in sorted(gives.items()) if amount > 0}
            yield SurplusOrdered(cause=cause, ref=entry.ref, attempt=entry.attempt, queue=entry.queue, surplus=surplus)


def reduced(state: AccountantState, entry: Entry) -> None:
    """Workers beyond the grant are on their way out: the job itself is left alone for as long again."""
    entry.reduced_at = state.now
    note_overuse(state, entry)


def _has_surplus(entry: Entry) -> bool:
    """Whether workers beyond the grant may go, before the whole job does."""
    return bool(entry.fixed or entry.groups) and not (entry.bypassed or entry.reduced_at)


def _uses(state: AccountantState, entry: Entry) -> Vector:
    """The part of the charge that was not admitted, without the new cluster of an upgrade."""
    charge, workload = state.ledger.charges.get(entry.ref.uid), state.workloads.get(entry.ref.uid)
    if charge is None:
        return {}
    uses = charge.request if entry.bypassed else charge.over
    if not uses or workload is None or not workload.outgoing:
        return uses
    pending = workload.need.get("full", {})
    return {name: amount - pending.get(name, 0) for name, amount in uses.items() if amount > pending.get(name, 0)}


def _excess(state: AccountantState, path: str, ordered: set[str]) -> Vector:
    """How far a node is above its max without the leaving jobs; negative amounts below the max."""
    used = state.ledger.used.get(path, {})
    excess = {name: used.get(name, 0) - limit for name, limit in state.ledger.nodes[path].limit.items()}
    if any(amount > 0 for amount in excess.values()):
        for uid, entry in state.entries.items():
            if (entry.leaving or uid in ordered) and path in chain_of(entry.queue):
                add_into(excess, state.ledger.charges[uid].request, -1)
    return excess
