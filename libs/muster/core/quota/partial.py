"""Partial reclaim: Ray clusters that scale themselves give back workers, so that nobody is suspended as a whole.

What a cluster may give is what it is granted beyond ``minReplicas``: its gang minimum and its head stay. Who gives
follows the rules of reclaim by guarantee (``reclaim.py``): nobody falls below a min, and no more replicas go than the
claimant needs. Between KAI queues, and inside a queue, it is one replica after the other (``giving.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from muster.core.quota.demand import Charge, chain_of
from muster.core.quota.giving import GivingRules, by_replica
from muster.core.quota.reclaim import MAX_LOOKS, Basis, Market, Objection, Run, Search, search
from muster.events.decisions import PartialVictim
from muster.model.demand import Demand
from muster.model.elastic import Counts, Elastic
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


def spare_of(elastic: Elastic | None, granted: Counts, profile: str) -> list[Spare]:
    """What the worker groups of a cluster may give, the last in its spec first."""
    if elastic is None:
        return []
    return [
        Spare(group.name, held, min(held - group.least, MAX_REPLICAS), group.cost(profile), group.hosts)
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


class Giving(NamedTuple):
    """A cluster that may give workers."""

    run: Run
    queue: str
    spares: Sequence[Spare]


def victims(
    given: Basis, queue: str, demand: Demand, market: Market, givers: Mapping[str, Sequence[Spare]], most: int | None,
    *, below: int | None = None,
) -> dict[str, Counts]:  # fmt: skip
    """{uid: replicas taken of each group} of a sufficient set, no more than is needed; empty when there is none.

    ``givers``: uid -> what it may give. ``most``: who has a higher priority gives nothing; None: whatever it has.
    ``below``: only clusters of the claimant's own queue give, of a priority below this; None: those of other queues.
    """
    inside = below is not None
    clusters = sorted(_givers(queue, market, givers, most, below), key=lambda each: (each.run.priority, each.run))
    judge, objection = by_replica(given, queue, demand, inside=inside) if clusters else (None, "")
    if judge is not None:
        return {} if objection else _one_by_one(judge, search(given, queue, demand), clusters)
    for level in reversed(given.owed_at(queue, demand)) if clusters else ():
        found = search(given, queue, demand)
        found.level = level
        chosen = _chosen(found, clusters)
        if chosen:
            return chosen
    return {}


def _givers(
    queue: str, market: Market, givers: Mapping[str, Sequence[Spare]], most: int | None, below: int | None
) -> Iterator[Giving]:
    looks = 0
    for leaf, runs in market.runs.items():
        for run in runs if (leaf == queue) == (below is not None) else ():
            looks += 1
            if looks > MAX_LOOKS:
                return
            spares = givers.get(run.uid)
            fits = (most is None or run.priority <= most) and (below is None or run.priority < below)
            if spares and fits and market.may(run.uid):
                yield Giving(run, leaf, spares)


def _one_by_one(judge: GivingRules, found: Search, clusters: Iterable[Giving]) -> dict[str, Counts]:
    """Take replica by replica from the queue whose turn it is; then let go what is not needed, the last first."""
    lines: dict[str, list[tuple[Giving, Spare, int]]] = {}
    for cluster in clusters:
        if judge.asks(cluster.queue):
            # The first is at the end of its line: it is looked at most.
            line = lines.setdefault(cluster.queue, [])
            line[:0] = [(cluster, spare, spare.most) for spare in reversed(cluster.spares)]
    order: list[tuple[Giving, Spare]] = []
    while (short := found.missing()) is not None:
        leaves = [leaf for leaf, line in lines.items() if line and short.path in chain_of(leaf)]
        if not leaves or len(order) >= MAX_LOOKS:
            return {}
        leaf = min(leaves, key=lambda each: (judge.turn(each, found), each))
        cluster, spare, left = lines[leaf].pop()
        if not spare.each.get(short.resource) or not judge.gives(_as_charge(leaf, spare, 1), found):
            continue
        if left > 1:
            lines[leaf].append((cluster, spare, left - 1))
        _move(found, leaf, spare, -1)
        order.append((cluster, spare))
    chosen: dict[str, Counts] = {}
    for cluster, spare in reversed(order):
        _move(found, cluster.queue, spare, 1)
        if found.missing() is not None:
            _move(found, cluster.queue, spare, -1)
            counts = chosen.setdefault(cluster.run.uid, {})
            counts[spare.group] = counts.get(spare.group, 0) + 1
    spares = {(each.run.uid, spare.group): (each.queue, spare) for each, spare in order}
    steps = [(*spares[uid, group], count) for uid, counts in chosen.items() for group, count in sorted(counts.items())]
    for queue, spare, count in steps:
        _move(found, queue, spare, count)
    return {} if _refused(judge, found, steps) else chosen


def _refused(judge: GivingRules, found: Search, steps: Iterable[tuple[str, Spare, int]]) -> Objection:
    """Why these replicas may not go in this order; takes them."""
    taken: dict[str, set[str]] = {}
    for queue, spare, count in steps:
        for _ in range(count):
            if not judge.asks(queue) or not judge.gives(_as_charge(queue, spare, 1), found):
                return "gives_too_much"
            _move(found, queue, spare, -1)
        taken.setdefault(queue, set()).update(name for name, amount in spare.each.items() if amount)
    return "" if judge.fair(found, taken) else "unbalanced"


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
    given: Basis, queue: str, demand: Demand, parts: Sequence[PartialVictim], spares: Mapping[str, Sequence[Spare]],
    *, inside: bool = False,
) -> Objection:  # fmt: skip
    """Why these may not give workers for this claimant, judged afresh; empty when they may.

    ``spares``: uid -> what it may give by what is granted to it now. ``inside``: they are of its own queue, and of
    lower priority.
    """
    judge, objection = by_replica(given, queue, demand, inside=inside)
    if objection:
        return objection
    if judge is None and not given.owed_at(queue, demand):
        return "beyond_guarantee"
    found = search(given, queue, demand)
    if not found.names:
        return "fits"
    steps: list[tuple[str, Spare, int]] = []
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
        if judge is None and not found.spares(structs.replace(charge, request=request, pods=pods)):
            return "below_min"
        if judge is None:
            found.gone.add(charge.queue, Demand(request, pods, jobs=0), -1)
        steps += [(charge.queue, may[name], count) for name, count in taken.items()]
    refused = _refused(judge, found, steps) if judge is not None else ""
    if refused:
        return refused
    if found.missing() is not None:
        return "not_enough"
    for at, spare, _ in steps:
        _move(found, at, spare, 1)
        if found.missing() is None:
            return "too_many_victims"
        _move(found, at, spare, -1)
    return ""


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
