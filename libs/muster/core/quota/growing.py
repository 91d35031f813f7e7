"""Growth of Ray clusters as a claimant: what is asked for, what it would be charged, and when it claims no more."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.quota.claim import Claim, times
from muster.core.quota.state import AccountantState, Entry, OpenGrowth
from muster.events.claims import ClaimOutcome
from muster.events.decisions import PreemptionProposed
from muster.events.elastic import GrowthOption, GrowthRequested
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.resources import Vector, add_into


def options(asked: GrowthRequested) -> Iterator[GrowthOption]:
    """All that would do for any piece, each as often as it is asked for, in the order in which they are tried."""
    for unit in asked.units:
        yield GrowthOption(unit.groups, unit.times)
        for other in unit.otherwise:
            yield GrowthOption(other.groups, other.times * unit.times)


def asked_times(asked: GrowthRequested, groups: Counts) -> int:
    """How often these replicas are asked for in one piece; 0: not at all."""
    return max((option.times for option in options(asked) if option.groups == groups), default=0)


def demand_of_growth(asked: GrowthRequested, growth: GrowthOption, profile: str, *, preemptible: bool) -> Demand:
    """The charge of these replicas, on top of that of the cluster."""
    request: Vector = {}
    pods = 0
    for name, count in growth.groups.items():
        share = asked.each[name]
        add_into(request, share.cost(profile), count)
        pods += share.hosts * count
    return times(Demand(dict(sorted(request.items())), pods, preemptible, jobs=0), growth.times)


# --- the accountant's judgement -------------------------------------------------------------------------------------


def may_grow(state: AccountantState, entry: Entry, growth: OpenGrowth) -> bool:
    """Whether what a cluster asks for may be granted as far as the cluster itself is concerned."""
    rests = state.resting(entry.queue)
    return (
        entry.resumed_rv > 0
        and not entry.leaving
        and not entry.cut
        and entry.groups == growth.asked.granted
        and entry.ref.uid not in state.returns
        and "admissions" not in rests
    )


def is_asked(state: AccountantState, proposed: PreemptionProposed) -> bool:
    """Whether a cluster asks for the growth that a claim is proposed for."""
    uid, wanted = proposed.ref.uid, proposed.growth
    entry, growth, tree = state.entries.get(uid), state.growths.get(uid), state.ledger.tree_of(proposed.queue)
    if entry is None or growth is None or wanted is None or tree is None or not may_grow(state, entry, growth):
        return False
    if (entry.attempt, entry.queue) != (proposed.attempt, proposed.queue):
        return False
    if wanted.times > asked_times(growth.asked, wanted.groups):
        return False
    preemptible = state.ledger.charges[uid].preemptible
    return demand_of_growth(growth.asked, wanted, tree.profile, preemptible=preemptible) == proposed.demand


def why_over(state: AccountantState, claim: Claim) -> ClaimOutcome | None:
    """Why nothing should be held for growth any more. What a grant leaves of a request is asked for again at once."""
    entry, growth = state.entries.get(claim.uid), state.growths.get(claim.uid)
    if entry is None or entry.attempt != claim.attempt or entry.leaving:
        return "gone"
    if entry.queue != claim.queue:
        return "moved"
    if "admissions" in state.resting(claim.queue):
        return "paused"
    if growth is not None and claim.growth is not None and not asked_times(growth.asked, claim.growth.groups):
        return "gone"
    return None
