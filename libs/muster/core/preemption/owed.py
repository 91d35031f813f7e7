"""The victims for a waiting job, as the preemptor sees the queues and the nodes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from muster.core.gang.moving import may_move
from muster.core.preemption.state import HOUR_MS, PreemptorState
from muster.core.queueing.queues import Job
from muster.core.quota.demand import laid_out
from muster.core.quota.ledger.kaishares import shares_with
from muster.core.quota.reclaim import Candidates, basis
from muster.core.reclaim import profiles
from muster.core.reclaim.sets import Found
from muster.core.reclaim.sites import Site, site_of

May = Callable[[str], bool]
"""Whether a running job may be suspended, by uid."""


def owed(state: PreemptorState, job: Job, site: Site | None, may: May | None = None) -> Found:
    """The victims for the quota it is owed; ``may``: by another measure than whether they may be evicted now."""
    ledger, queue, demand = state.queues.ledger, job.queue, job.demand
    shares = shares_with(ledger, job.ref.uid, queue, demand) if ledger.by_shares(queue) else None
    candidates = state.candidates(queue, may)
    if site is not None:
        candidates = with_moves(state, job, candidates)
    return profiles.owed(basis(ledger, job.ref.uid), queue, demand, candidates, site, shares)


def with_moves(state: PreemptorState, job: Job, candidates: Candidates) -> Candidates:
    """The same, and the jobs that may move for it, whatever their queues and priorities, for they go on elsewhere. A
    job that has taken part in a move takes part in no other for an hour, so no two can move each other.
    """
    lately = {uid for uid, at in state.moved.items() if at > state.now - HOUR_MS}
    if job.ref.uid in lately:
        return candidates

    def may(uid: str) -> bool:
        free = uid not in lately and not state.deprioritised(uid)
        return free and state.may_evict(uid, job.queue) and may_move(state.places, uid)

    return replace(candidates, moves=may, most=state.moves)


def outranked(
    state: PreemptorState, job: Job, site: Site | None, may: May | None = None, *, others: bool = True
) -> Found:
    """The victims for its priority; ``may``: as for ``owed``. ``others``: those of other queues may, too."""
    ledger, queue = state.queues.ledger, job.queue
    given, reclaims = basis(ledger, job.ref.uid), others and ledger.rules_of(queue).reclaim != "disabled"
    candidates = state.candidates(queue, may)
    return profiles.outranked(given, queue, job.demand, job.priority, candidates, site, reclaims=reclaims)


def nodes_for(state: PreemptorState, job: Job) -> Site | None:
    """The nodes as a job sees them; None where it is not placed on them, or more may be added."""
    return None if state.places.pools else site_now(state, job)


def site_now(state: PreemptorState, job: Job) -> Site | None:
    """The same where it counts only which nodes there are."""
    said = laid_out(state.queues.ledger.nodes, job.queue)
    grows = (job.growth, job.demand.pods) if job.growth is not None else None
    return site_of(state.places, job.ref.uid, said, grows=grows)
