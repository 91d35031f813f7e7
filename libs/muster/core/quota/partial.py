"""Partial reclaim: Ray clusters that scale themselves give back workers, so that nobody is suspended as a whole.

What a cluster may give is what it is granted beyond ``minReplicas``: its gang minimum and its head stay. Who gives
follows the rules of reclaim by guarantee (``reclaim.py``): nobody falls below a min, and no more replicas go than the
claimant needs. Between KAI queues, and inside a queue, whole jobs give way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from muster.core.quota import kaireclaim
from muster.core.quota.demand import Charge, chain_of
from muster.core.quota.reclaim import MAX_LOOKS, Basis, Market, Objection, Run, Search, search
from muster.events.decisions import PartialVictim
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.resources import Vector, add_into, scaled
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


def spare_of(workload: Workload | None, granted: Counts, profile: str) -> list[Spare]:
    """What the worker groups of a workload may give, the last in its spec first."""
    if workload is None or workload.elastic is None:
        return []
    return [
        Spare(group.name, held, min(held - group.least, MAX_REPLICAS), group.cost(profile), group.hosts)
        for group in reversed(workload.elastic.groups)
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


class Giving(NamedTuple):
    """A cluster that may give workers."""

    run: Run
    queue: str
    spares: Sequence[Spare]


def victims(
    given: Basis, queue: str, demand: Demand, market: Market, givers: Mapping[str, Sequence[Spare]], most: int | None
) -> dict[str, Counts]:
    """{uid: replicas taken of each group} of a sufficient set, no more than is needed; empty when there is none.

    ``givers``: uid -> what it may give. ``most``: who has a higher priority gives nothing; None: whatever it has.
    """
    clusters = sorted(_givers(queue, market, givers, most), key=lambda each: (each.run.priority, each.run))
    if not clusters or kaireclaim.is_kai(given.ledger, queue):
        return {}
    for level in reversed(given.owed_at(queue, demand)):
        found = search(given, queue, demand)
        found.level = level
        chosen = _chosen(found, clusters)
        if chosen:
            return chosen
    return {}


def _givers(queue: str, market: Market, givers: Mapping[str, Sequence[Spare]], most: int | None) -> Iterator[Giving]:
    looks = 0
    for leaf, runs in market.runs.items():
        for run in runs if leaf != queue else ():
            looks += 1
            if looks > MAX_LOOKS:
                return
            spares = givers.get(run.uid)
            if spares and (most is None or run.priority <= most) and market.may(run.uid):
                yield Giving(run, leaf, spares)


def _chosen(found: Search, clusters: Sequence[Giving]) -> dict[str, Counts]:
    """Take from one after the other until the claimant fits; then let go what it does not need, the last first."""
    taken: list[tuple[Giving, Spare, int]] = []
    for cluster in clusters:
        for spare in cluster.spares:
            short = found.missing()
            if short is None:
                break
            if short.path not in chain_of(cluster.queue) or not spare.each.get(short.resource):
                continue
            count = _most(found, cluster.queue, spare)
            if count:
                _move(found, cluster.queue, spare, -count)
                taken.append((cluster, spare, count))
    if found.missing() is not None:
        return {}
    chosen: dict[str, Counts] = {}
    for cluster, spare, count in reversed(taken):
        low, high = 0, count
        while low < high:  # Of fewer the claimant fits less often.
            middle = (low + high) // 2
            _move(found, cluster.queue, spare, count - middle)
            enough = found.missing() is None
            _move(found, cluster.queue, spare, middle - count)
            low, high = (low, middle) if enough else (middle + 1, high)
        _move(found, cluster.queue, spare, count - low)
        if low:
            chosen.setdefault(cluster.run.uid, {})[spare.group] = low
    return chosen


def _most(found: Search, queue: str, spare: Spare) -> int:
    """How many replicas may go so that nothing on the way falls below its min."""
    low, high = 0, spare.most
    while low < high:
        middle = (low + high + 1) // 2
        if found.spares(_as_charge(queue, spare, middle)):
            low = middle
        else:
            high = middle - 1
    return low


def _as_charge(queue: str, spare: Spare, count: int) -> Charge:
    return Charge("", queue, scaled(spare.each, count), count * spare.hosts)


def _move(found: Search, queue: str, spare: Spare, count: int) -> None:
    """Put so many replicas back, or with a negative count take them."""
    found.gone.add(queue, Demand(scaled(spare.each, abs(count)), abs(count) * spare.hosts, jobs=0), _sign(count))


def _sign(count: int) -> int:
    return 1 if count > 0 else -1


# --- the accountant's judgement -------------------------------------------------------------------------------------


def objection(
    given: Basis, queue: str, demand: Demand, parts: Sequence[PartialVictim], spares: Mapping[str, Sequence[Spare]]
) -> Objection:
    """Why these may not give workers for this claimant, judged afresh; empty when they may.

    ``spares``: uid -> what it may give by what is granted to it now.
    """
    if kaireclaim.is_kai(given.ledger, queue) or not given.owed_at(queue, demand):
        return "beyond_guarantee"
    found = search(given, queue, demand)
    if not found.names:
        return "fits"
    for part in parts:
        may = {spare.group: spare for spare in spares.get(part.ref.uid, ())}
        taken = {name: count for name, count in part.taken.items() if count > 0}
        same = all(
            name in may and count <= may[name].most and part.left.get(name) == may[name].granted - count
            for name, count in taken.items()
        )
        request, pods = given_back(may.values(), taken)
        charge = given.ledger.charges.get(part.ref.uid)
        if charge is None or not same or not taken or (request, pods) != (part.request, part.pods):
            return "victim_left"
        if not found.spares(structs.replace(charge, request=request, pods=pods)):
            return "below_min"
        found.gone.add(charge.queue, Demand(request, pods, jobs=0), -1)
    if found.missing() is not None:
        return "not_enough"
    for part in parts:
        for spare in spares[part.ref.uid]:
            if part.taken.get(spare.group):
                _move(found, part.queue, spare, 1)
                if found.missing() is None:
                    return "too_many_victims"
                _move(found, part.queue, spare, -1)
    return ""


def as_victims(
    chosen: Mapping[str, Counts], workloads: Mapping[str, Workload], attempts: Mapping[str, int],
    charges: Mapping[str, Charge], givers: Mapping[str, Sequence[Spare]],
) -> tuple[PartialVictim, ...]:  # fmt: skip
    """The chosen as a proposal names them."""
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
            )
        )
    return tuple(found)
