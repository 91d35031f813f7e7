"""What is decided about a Ray cluster that scales itself: what its ``maxReplicas`` should say, and what it asks for.

``maxReplicas`` is what is granted: Ray's autoscaler reads it at every tick and tries nothing beyond it. What its owner
wrote there is kept as the ceiling, and a manifest that is applied again changes the ceiling and nothing else. It is
never below ``minReplicas``, nor below what runs; and for what is not used any more it is lowered first, while nothing
is on its way, and only then given back.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from muster.core.autoscaling import giveback
from muster.core.autoscaling.state import BridgeState, Cluster, Grant
from muster.events.base import Decision
from muster.events.elastic import GateSet, GrowthRequested, GrowthUnit, ReplicaCost
from muster.model.elastic import Counts, ScaledGroup

UNUSED_MS = 15_000
"""How long a grant may stay unused: three ticks of Ray's autoscaler."""


def decisions(state: BridgeState) -> Iterator[Decision]:
    """What is due about any cluster."""
    timed = (uid for uid, cluster in state.clusters.items() if 0 < _deadline(cluster) <= state.now)
    asked = (uid for owner in state.reclaims if (uid := state.cluster_of.get(owner)) is not None)
    for uid in dict.fromkeys([*state.due, *timed, *asked]):
        decision = next_of(state, state.clusters[uid])
        if decision is not None:
            yield decision
    yield from giveback.given_up(state)


def deadlines(state: BridgeState) -> Iterator[int]:
    """Log times (ms) at which more may be due."""
    yield from (at for cluster in state.clusters.values() if (at := _deadline(cluster)))
    yield from giveback.deadlines(state)


def _deadline(cluster: Cluster) -> int:
    ends = [cluster.rests_until, cluster.unused_since + UNUSED_MS if cluster.unused_since else 0]
    return max(ends)


def next_of(state: BridgeState, cluster: Cluster) -> Decision | None:
    """The next thing to decide about a cluster; None when all is as it should be."""
    grant, uid = state.grants.get(cluster.owner), cluster.ref.uid
    if grant is None or not cluster.runs or uid in state.gates or state.cluster_of.get(cluster.owner) != uid:
        return None
    if grant.giving or cluster.rv < cluster.written_rv or state.now < cluster.rests_until:
        return None
    reclaim = state.reclaims.get(cluster.owner)
    if reclaim is not None:
        step = giveback.step(state, cluster, grant, reclaim)
        if not isinstance(step, giveback.Lowered):
            return step
        most = {group.name: _target(state, cluster, group, grant) for group in cluster.elastic.groups}
        most |= {name: min(count, most[name]) for name, count in step.left.items()}
        gate = _gate(cluster, grant, most, step.left)
        return structs.replace(gate, sizes={}, workers=step.workers, claimant=reclaim.claimant)
    most = {group.name: _target(state, cluster, group, grant) for group in cluster.elastic.groups}
    if any(group.most != most[group.name] for group in cluster.elastic.groups) or cluster.elastic.granted != most:
        return _gate(cluster, grant, most)
    left = unused(state, cluster, grant)
    if left and cluster.unused_since and state.now >= cluster.unused_since + UNUSED_MS and _calm(state, cluster, left):
        return _gate(cluster, grant, {**most, **left}, left)
    return _request(state, cluster, grant)


def _target(state: BridgeState, cluster: Cluster, group: ScaledGroup, grant: Grant) -> int:
    """What ``maxReplicas`` of a group should be."""
    ceiling = cluster.elastic.ceiling(group)
    most = max(min(grant.kept.get(group.name, group.least), ceiling), group.least)
    if most >= group.most:
        return most
    # It has never been ours: whatever is on its way under the old limit arrives first.
    if group.name not in cluster.elastic.granted and not _calm(state, cluster, {group.name: most}):
        return group.most
    return max(most, group.replicas)


def unused(state: BridgeState, cluster: Cluster, grant: Grant) -> Counts:
    """{group: replicas it needs}, of those that are granted more than that."""
    found: Counts = {}
    for group in cluster.elastic.groups:
        runs = -(-_live(state, cluster, group) // group.hosts)
        needs = max(group.replicas, runs, group.least, cluster.wish.wanted.get(group.name, 0))
        if needs < grant.groups.get(group.name, 0):
            found[group.name] = needs
    return found


def _calm(state: BridgeState, cluster: Cluster, groups: Counts) -> bool:
    """Whether nothing is on its way in these groups: their pods are those that the spec asks for."""
    heard = state.heard.get(cluster.ref.uid)
    launching = heard.demand.launching if heard is not None else {}
    return all(
        _live(state, cluster, group) == group.replicas * group.hosts and not launching.get(group.name)
        for group in cluster.elastic.groups
        if group.name in groups
    )


def _live(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> int:
    return len(state.workers.get(cluster.ref.uid, {}).get(group.name, ()))


def _gate(cluster: Cluster, grant: Grant, most: Counts, giving: Counts | None = None) -> GateSet:
    groups = cluster.elastic.groups
    lowered = [group for group in groups if most[group.name] < group.most]
    return GateSet(
        cause=cluster.cause,
        ref=cluster.ref,
        owner=grant.ref,
        attempt=grant.attempt,
        groups=tuple(group.name for group in groups),
        most=most,
        ceilings={group.name: cluster.elastic.ceiling(group) for group in groups},
        sizes={group.name: group.asked for group in lowered},
        granted=giving or {},
        each=_shares(groups) if giving else {},
        before=cluster.elastic.mark,
    )


def _request(state: BridgeState, cluster: Cluster, grant: Grant) -> GrowthRequested | None:
    """What it wants beyond what is granted, unless just that is asked for."""
    units = tuple(_beyond(cluster, grant)) if grant.groups else ()
    open_ = state.growing.get(cluster.ref.uid)
    if open_ is None and not units:
        return None
    if open_ is not None and (open_.attempt, open_.granted, open_.units) == (grant.attempt, grant.groups, units):
        return None
    named = {name for unit in units for name in unit.groups}
    groups = [group for group in cluster.elastic.groups if group.name in named]
    return GrowthRequested(
        cause=cluster.cause,
        ref=grant.ref,
        attempt=grant.attempt,
        cluster=cluster.ref,
        granted=grant.groups,
        units=units,
        each=_shares(groups),
    )


def _beyond(cluster: Cluster, grant: Grant) -> Iterator[GrowthUnit]:
    """What runs beyond the grant, and the units of its wish that are not granted yet."""
    spare: Counts = {}
    for group in cluster.elastic.groups:
        granted = grant.groups.get(group.name, 0)
        spare[group.name] = max(granted - group.replicas, 0)
        if group.replicas > granted:
            yield GrowthUnit({group.name: 1}, group.replicas - granted)
    for unit in cluster.wish.units:
        if len(unit.groups) == 1 and next(iter(unit.groups.values())) == 1:
            name = next(iter(unit.groups))
            covered = min(spare[name], unit.times)
            spare[name] -= covered
            if unit.times > covered:
                yield GrowthUnit(unit.groups, unit.times - covered)
            continue
        lacks = {}
        for name, count in unit.groups.items():
            covered = min(spare[name], count)
            spare[name] -= covered
            if count > covered:
                lacks[name] = count - covered
        if lacks:
            yield GrowthUnit(lacks)


def _shares(groups: tuple[ScaledGroup, ...] | list[ScaledGroup]) -> dict[str, ReplicaCost]:
    return {group.name: ReplicaCost(group.request, group.takes, group.hosts) for group in groups}
