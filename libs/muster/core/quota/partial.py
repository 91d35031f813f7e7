"""Partial reclaim: Ray clusters that scale themselves release workers, so that no job is suspended as a whole.

A cluster may release its grant beyond ``minReplicas``: its gang minimum and its head stay. Which cluster gives follows
the rules for whole jobs (``giving.py``), one replica after the other: each is a victim of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.core.quota import giving
from muster.core.quota.demand import Charge
from muster.core.quota.reclaim import Basis, Candidates, Giver, Objection, Run, Search, search
from muster.model.demand import Demand
from muster.model.elastic import Counts, Elastic
from muster.model.resources import Vector, add_into
from muster.model.victims import PartialVictim
from muster.model.workload import Workload

MAX_REPLICAS = 250
"""Replicas of one group taken by one order: a budget of requests to the API server."""


class Spare(NamedTuple):
    """What one worker group may give."""

    group: str
    granted: int
    most: int
    """Replicas beyond its minReplicas."""
    each: Vector
    """What one replica is charged."""
    hosts: int
    idle: int = 0
    """Replicas with nothing to do, as its head said last."""


def spare_of(
    elastic: Elastic | None, granted: Counts, profile: str, idle: Mapping[str, int] | None = None
) -> list[Spare]:
    """What the worker groups of a cluster may give, the last in its spec first. ``idle``: {group: idle pods}"""
    if elastic is None:
        return []
    return [
        Spare(
            group.name,
            held,
            min(held - group.least, MAX_REPLICAS),
            group.cost(profile),
            group.hosts,
            (idle or {}).get(group.name, 0) // group.hosts,
        )
        for group in reversed(elastic.groups)
        if (held := granted.get(group.name, 0)) > group.least
    ]


def given_back(spares: Iterable[Spare], taken: Mapping[str, int]) -> tuple[Vector, int]:
    """(request, pods) of so many replicas."""
    request: Vector = {}
    pods = 0
    for spare in spares:
        count = taken.get(spare.group, 0)
        add_into(request, spare.each, count)
        pods += count * spare.hosts
    return dict(sorted(request.items())), pods


class SpareReplica(NamedTuple):
    """One replica: whose, and of which group."""

    uid: str
    group: str
    gives: Giver


def part_of(uid: str, queue: str, spare: Spare) -> SpareReplica:
    return SpareReplica(uid, spare.group, Giver(queue, Demand(spare.each, spare.hosts, jobs=0)))


def parts_of(
    found: Search, candidates: Candidates, givers: Mapping[str, Sequence[Spare]], most: int | None, below: int | None
) -> tuple[Candidates, dict[str, SpareReplica]]:
    """The replicas that could be released, as a search sees them: each is a victim of its own, those of one cluster one
    after the other, no more of a group than could be needed. An idle one loses nothing that was done until now, so of
    equal priority those come first, whatever cluster or group they are of.

    ``givers``: uid -> the replicas it may give. ``most``: a cluster of higher priority gives none; None: no such limit.
    ``below``: only clusters of the claimant's own queue give, of a priority below this; None: those of other queues.
    """
    lacks = list(found.refusals())
    parts: dict[str, SpareReplica] = {}
    runs: dict[str, list[Run]] = {}
    for leaf, running in candidates.runs.items():
        for run in running if (leaf == found.queue) == (below is not None) else ():
            fits = (most is None or run.priority <= most) and (below is None or run.priority < below)
            for at, spare in enumerate(givers.get(run.uid, ()) if fits and candidates.may(run.uid) else ()):
                needed = (-(-short.missing // each) for short in lacks if (each := spare.each.get(short.resource)))
                for number in range(min(spare.most, max(needed, default=0))):
                    uid = f"{run.uid} {at:03} {number:04}"
                    parts[uid] = part_of(run.uid, leaf, spare)
                    youth = min(-candidates.now, run.youth) if number < spare.idle else run.youth
                    key = f"{run.key} {at:03} {number:04}"
                    runs.setdefault(leaf, []).append(run._replace(youth=youth, key=key, uid=uid))
    return Candidates({leaf: sorted(each) for leaf, each in runs.items()}, now=candidates.now), parts


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
    """Why these may not give workers for this claimant, judged again; empty when they may.

    ``spares``: uid -> the replicas it may give by its grant now. ``inside``: they are of its own queue, and of
    lower priority.
    """
    found, parts = search(given, queue, demand), dict[str, Giver]()
    for each in proposed:
        may = {spare.group: spare for spare in spares.get(each.ref.uid, ())}
        taken = {name: count for name, count in each.taken.items() if count > 0}
        same = all(
            name in may and count <= may[name].most and each.left.get(name) == may[name].granted - count
            for name, count in taken.items()
        )
        charge = given.ledger.charges.get(each.ref.uid)
        if charge is None or not same or not taken or given_back(may.values(), taken) != (each.request, each.pods):
            return "victim_left"
        for name, count in taken.items():
            gives = part_of(each.ref.uid, charge.queue, may[name]).gives
            parts |= {f"{each.ref.uid} {name} {number}": gives for number in range(count)}
    found.parts = parts
    return giving.giving_objection(giving.rules(given, queue, demand, inside=inside), found, parts)


def as_victims(
    chosen: Mapping[str, Counts], workloads: Mapping[str, Workload], attempts: Mapping[str, int],
    charges: Mapping[str, Charge], givers: Mapping[str, Sequence[Spare]], priorities: Mapping[str, int | None],
) -> tuple[PartialVictim, ...]:  # fmt: skip
    """The chosen as a proposal names them. ``priorities``: of those that are outranked in the claimant's queue."""
    found = []
    for uid, taken in chosen.items():
        request, pods = given_back(givers[uid], taken)
        left = {spare.group: spare.granted - taken[spare.group] for spare in givers[uid] if spare.group in taken}
        found.append(
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
    return tuple(found)
