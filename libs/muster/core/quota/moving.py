"""Jobs that are moved so that another has room on the nodes: their quota stays theirs.

A job that moves is suspended and queued again under a new attempt while it is still charged. When its pods are
gone, its charge ends and is reserved for the new attempt in one commit, so no other job gets it. Its charge counts as
released for no other job. Where it does not wait any more as it did then (it is held, paused, moved, edited,
deleted), its charge ends as after any other suspension.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.core.objects.labels import quota_name
from muster.core.quota.claim import Claim
from muster.core.quota.demand import Scratch, demand_of, laid_out
from muster.core.quota.endings import comes_back
from muster.core.quota.reclaim import Objection, basis
from muster.core.quota.state import AccountantState, Entry
from muster.events.base import Cause
from muster.events.decisions import PreemptionProposed, QuotaReleased, QuotaReserved
from muster.model.demand import Demand
from muster.model.workload import Workload


def moving_objection(state: AccountantState, proposed: PreemptionProposed) -> Objection:
    """Why those of its victims that are to move are not moved for a claimant; empty when they are.

    In quota trees jobs move only for one that is owed its quota, beside those that are evicted for it.
    """
    alone, given = proposed.kind == "move", basis(state.ledger, proposed.ref.uid)
    if alone and given.refusal(proposed.queue, proposed.demand) is not None:
        return "not_enough"
    for victim in proposed.victims:
        entry = state.entries[victim.ref.uid]
        free = not alone or state.ledger.by_shares(entry.queue)
        if victim.moves and (not free or entry.short_since):
            return "victim_protected"
    return ""


def handed_on(
    state: AccountantState, entry: Entry, released: QuotaReleased, scratch: Scratch
) -> Iterator[QuotaReleased | QuotaReserved]:
    """The end of the charge of a job that was suspended to move, and the same charge for its next attempt.

    ``scratch``: with the charge taken off; what is reserved is added.
    """
    workload = state.workloads.get(entry.ref.uid)
    queued = state.ledger.attempts.get(entry.ref.uid, 0) > entry.attempt
    if workload is None or not queued or not comes_back(state, entry, workload):
        yield replace(released, reason="evicted")
        return
    demand = demand_of(state.ledger.tree_of(entry.queue), workload, state.priorities.get(entry.ref.uid))
    same = replace(demand, basis="").alike(state.ledger.charges[entry.ref.uid].demand)
    if not same or state.ledger.without_claims().shortfall(entry.queue, demand, scratch) is not None:
        yield replace(released, reason="evicted")
        return
    scratch.add(entry.queue, demand)
    yield released
    yield reservation(state, released.cause, workload, state.ledger.attempts[entry.ref.uid], entry.queue, demand)


def reservation(
    state: AccountantState, cause: Cause, workload: Workload, attempt: int, queue: str, demand: Demand,
    passed: Claim | None = None, served: Claim | None = None, *, owed: bool = False,
) -> QuotaReserved:  # fmt: skip
    """Quota for a workload as it is now.

    ``passed``: the claim for age beside which it is admitted; ``served``: the one that it ends; ``owed``: it is
    guaranteed what it asks for.
    """
    return QuotaReserved(
        cause=cause,
        ref=workload.ref,
        attempt=attempt,
        queue=queue,
        **demand.fields,
        named=quota_name(workload.labels),
        placement=laid_out(state.ledger.nodes, queue),
        beside=passed.ref.key if passed is not None else "",
        promised=passed.promised if passed is not None else 0,
        owed=owed,
        serves=served.uid if served is not None and served.uid != workload.ref.uid else "",
    )
