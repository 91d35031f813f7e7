"""Claims of Ray clusters that scale themselves: growth as a claimant, workers as victims.

Growth as a claimant: the requested replicas, their charge, and the end of the claim.

Partial reclaim: a cluster releases workers, so that no job is suspended as a whole. A cluster may release its grant
beyond ``minReplicas``: the gang minimum and the head stay. The rules for whole jobs (``evictionrules.py``) choose the
cluster, replica by replica: each replica is a separate victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.core.quota import evictionrules
from muster.core.quota.accountantstate import AccountantState, Entry, OpenGrowth
from muster.core.quota.candidates import Basis, Candidates, Giver, Objection, Run, Search, search
from muster.core.quota.claims import Claim, times
from muster.core.quota.demand import Charge, all_of
from muster.events.claims import ClaimOutcome
from muster.events.decisions import PreemptionProposed
from muster.events.elastic import GrowthOption, GrowthRequested
from muster.model.demand import Demand
from muster.model.elastic import PENDING, Counts, Elastic, ReplicaCost
from muster.model.quota import Flavors, QuotaTree, flavor_names
from muster.model.resources import Vector, add_into
from muster.model.victims import PartialVictim
from muster.model.workload import Workload

# --- growing ----------------------------------------------------------------------------------------------------------


def asked_times(asked: GrowthRequested, groups: Counts) -> int:
    """How often the request has these replicas in one piece; 0: never."""
    pieces = [(unit.groups, unit.times) for unit in asked.units]
    pieces += [(other.groups, other.times * unit.times) for unit in asked.units for other in unit.otherwise]
    return max((count for piece, count in pieces if piece == groups), default=0)


def cost_of(tree: QuotaTree | None, share: ReplicaCost, group: str, flavors: Flavors) -> Vector:
    """The charge of a replica, with its amounts by flavor. ``flavors``: of the pod sets of the cluster."""
    mine = {group: flavors[group]} if group in flavors else flavors if group == PENDING else {}
    return all_of(tree, share.counted(tree), flavor_names(mine))


def demand_of_growth(asked: GrowthRequested, growth: GrowthOption, tree: QuotaTree | None, charge: Charge) -> Demand:
    """The charge of these replicas, on top of the ``charge`` of the cluster."""
    request: Vector = {}
    pods = 0
    for name, count in growth.groups.items():
        share = asked.each[name]
        add_into(request, cost_of(tree, share, name, charge.flavors), count)
        pods += share.hosts * count
    return times(Demand(dict(sorted(request.items())), pods, charge.preemptible, jobs=0), growth.times)


# --- the accountant's judgement -------------------------------------------------------------------------------------


def may_grow(state: AccountantState, entry: Entry, growth: OpenGrowth) -> bool:
    """Whether the cluster itself allows a grant: running, not leaving, not cut, not releasing workers, and not
    paused.
    """
    rests, workload, pending = state.resting(entry.queue), state.workloads.get(entry.ref.uid), growth.asked.pending
    return (
        entry.resumed_rv > 0
        and (pending is None or (workload is not None and bool(workload.outgoing) and workload.child == pending.name))
        and not entry.leaving
        and not entry.cut
        and entry.groups == growth.asked.granted
        and entry.ref.uid not in state.returns
        and "admissions" not in rests
    )


def is_asked(state: AccountantState, proposed: PreemptionProposed) -> bool:
    """Whether a cluster asks for the growth of a proposed claim."""
    uid, wanted = proposed.ref.uid, proposed.growth
    entry, growth, tree = state.entries.get(uid), state.growths.get(uid), state.ledger.tree_of(proposed.queue)
    if entry is None or growth is None or wanted is None or tree is None or not may_grow(state, entry, growth):
        return False
    if (entry.attempt, entry.queue) != (proposed.attempt, proposed.queue):
        return False
    if wanted.times > asked_times(growth.asked, wanted.groups):
        return False
    return demand_of_growth(growth.asked, wanted, tree, state.ledger.charges[uid]) == proposed.demand


def why_growth_over(state: AccountantState, claim: Claim) -> ClaimOutcome | None:
    """Why a claim of growth ends. A grant may leave a rest of the request: the cluster asks for the rest at once."""
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


# --- partial ----------------------------------------------------------------------------------------------------------


MAX_REPLICAS = 250
"""Replicas of one group taken by one order: a budget of requests to the API server."""


class Spare(NamedTuple):
    """The replicas that one worker group may release."""

    group: str
    granted: int
    most: int
    """Replicas beyond minReplicas, at most MAX_REPLICAS."""
    each: Vector
    """The charge of one replica."""
    hosts: int
    idle: int = 0
    """Idle replicas, by the last report of the head."""


def spare_of(
    elastic: Elastic | None,
    granted: Counts,
    tree: QuotaTree | None,
    flavors: Flavors,
    idle: Mapping[str, int] | None = None,
) -> list[Spare]:
    """The replicas that the worker groups of a cluster may release, the last group in the spec first. ``idle``: {group:
    idle pods}
    """
    if elastic is None:
        return []
    return [
        Spare(
            group.name,
            held,
            min(held - group.least, MAX_REPLICAS),
            cost_of(tree, group.cost, group.name, flavors),
            group.hosts,
            (idle or {}).get(group.name, 0) // group.hosts,
        )
        for group in reversed(elastic.groups)
        if (held := granted.get(group.name, 0)) > group.least
    ]


def given_back(spares: Iterable[Spare], taken: Mapping[str, int]) -> tuple[Vector, int]:
    """(request, pods) of these replicas. ``taken``: {group: replicas}"""
    request: Vector = {}
    pods = 0
    for spare in spares:
        count = taken.get(spare.group, 0)
        add_into(request, spare.each, count)
        pods += count * spare.hosts
    return dict(sorted(request.items())), pods


class SpareReplica(NamedTuple):
    """One replica of a cluster's worker group."""

    uid: str
    group: str
    gives: Giver


def part_of(uid: str, queue: str, spare: Spare) -> SpareReplica:
    return SpareReplica(uid, spare.group, Giver(queue, Demand(spare.each, spare.hosts, jobs=0)))


def parts_of(
    begun: Search, candidates: Candidates, givers: Mapping[str, Sequence[Spare]], most: int | None, below: int | None
) -> tuple[Candidates, dict[str, SpareReplica]]:
    """The replicas that could be released, each as a separate victim. The replicas of one cluster come one after the
    other, and no group has more than needed. An idle replica loses no work: at equal priority idle replicas come first,
    from any cluster or group.

    ``givers``: uid -> the replicas that may be released. ``most``: a cluster of higher priority gives no replica; None:
    no such limit. ``below``: only clusters of the claimant's own queue with a lower priority give; None: only clusters
    of other queues.
    """
    lacks = list(begun.refusals())
    parts: dict[str, SpareReplica] = {}
    runs: dict[str, list[Run]] = {}
    for leaf, running in candidates.runs.items():
        for run in running if (leaf == begun.queue) == (below is not None) else ():
            fits = (most is None or run.priority <= most) and (below is None or run.priority < below)
            for at, spare in enumerate(givers.get(run.uid, ()) if fits and candidates.may(run.uid) else ()):
                needed = (-(-short.missing // amount) for short in lacks if (amount := spare.each.get(short.resource)))
                for number in range(min(spare.most, max(needed, default=0))):
                    uid = f"{run.uid} {at:03} {number:04}"
                    parts[uid] = part_of(run.uid, leaf, spare)
                    youth = min(-candidates.now, run.youth) if number < spare.idle else run.youth
                    key = f"{run.key} {at:03} {number:04}"
                    runs.setdefault(leaf, []).append(run._replace(youth=youth, key=key, uid=uid))
    return Candidates({leaf: sorted(lot) for leaf, lot in runs.items()}, now=candidates.now), parts


def counts_of(parts: Iterable[SpareReplica]) -> dict[str, Counts]:
    """{uid: replicas taken of each group}"""
    chosen: dict[str, Counts] = {}
    for part in parts:
        counts = chosen.setdefault(part.uid, {})
        counts[part.group] = counts.get(part.group, 0) + 1
    return chosen


# --- the accountant's judgement -------------------------------------------------------------------------------------


def workers_objection(
    given: Basis, queue: str, demand: Demand, proposed: Sequence[PartialVictim], spares: Mapping[str, Sequence[Spare]],
    *, inside: bool = False,
) -> Objection:  # fmt: skip
    """Why these clusters may not release workers for the claimant, judged again; empty when allowed.

    ``spares``: uid -> the replicas that may be released by the grant now. ``inside``: the clusters are in the
    claimant's own queue, with lower priority.
    """
    begun, parts = search(given, queue, demand), dict[str, Giver]()
    for victim in proposed:
        uid, taken = victim.ref.uid, victim.taken
        may, charge = {spare.group: spare for spare in spares.get(uid, ())}, given.ledger.charges.get(uid)
        same = {name: may[name].granted - count for name, count in taken.items() if name in may} == victim.left
        same = same and all(count <= may[name].most for name, count in taken.items())
        if charge is None or not same or given_back(may.values(), taken) != (victim.request, victim.pods):
            return "victim_left"
        for name, count in taken.items():
            gives = part_of(uid, charge.queue, may[name]).gives
            parts |= {f"{uid} {name} {number}": gives for number in range(count)}
    begun.parts = parts
    return evictionrules.giving_objection(evictionrules.rules(given, queue, demand, inside=inside), begun, parts)


def as_victims(
    chosen: Mapping[str, Counts], workloads: Mapping[str, Workload], attempts: Mapping[str, int],
    charges: Mapping[str, Charge], givers: Mapping[str, Sequence[Spare]], priorities: Mapping[str, int | None],
) -> tuple[PartialVictim, ...]:  # fmt: skip
    """The victims in the form of a proposal. ``priorities``: of outranked clusters in the claimant's queue."""
    victims = []
    for uid, taken in chosen.items():
        request, pods = given_back(givers[uid], taken)
        left = {spare.group: spare.granted - taken[spare.group] for spare in givers[uid] if spare.group in taken}
        victims.append(
            PartialVictim(
                workloads[uid].ref,
                attempts[uid],
                charges[uid].queue,
                request,
                dict(sorted(taken.items())),
                dict(sorted(left.items())),
                pods,
                priorities.get(uid),
            )
        )
    return tuple(victims)
