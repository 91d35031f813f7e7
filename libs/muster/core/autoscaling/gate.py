"""The decisions about a self-scaling Ray cluster: its ``maxReplicas`` and its requests for growth.

``maxReplicas`` is the grant: Ray's autoscaler reads ``maxReplicas`` at every tick and tries nothing beyond. The owner's
own value is kept as the ceiling, and a manifest applied again changes only the ceiling. ``maxReplicas`` is never below
``minReplicas``, nor below the running workers. For an unused grant ``maxReplicas`` is lowered first, while no worker is
starting; the grant is released afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from muster.core.autoscaling import giveback, resizing, upgrades, watchdog
from muster.core.autoscaling.bridgestate import BridgeState, Cluster, Grant
from muster.events.base import Decision
from muster.events.elastic import GateSet, GrowthRequested, GrowthUnit
from muster.model.elastic import AUTOSCALER, PENDING, Counts, ReplicaCost, ScaledGroup

UNUSED_MS = 15_000
"""How long a grant may stay unused: three ticks of Ray's autoscaler."""
REFUSED_MS = 45_000
"""How long the grant of workers that the API server refuses is kept: with the first look less than a minute."""


def decisions(state: BridgeState) -> Iterator[Decision]:
    """The decisions due, for all clusters."""
    timed = (uid for uid, cluster in state.clusters.items() if 0 < _deadline(cluster) <= state.now)
    asked = (uid for owner in (*state.reclaims, *state.refused) if (uid := state.cluster_of(owner)) in state.clusters)
    yield from watchdog.decisions(state)
    yield from upgrades.decisions(state)
    yield from giveback.surplus_due(state)
    for uid in dict.fromkeys([*state.due, *timed, *asked, *watchdog.timed(state)]):
        decision = next_of(state, state.clusters[uid])
        if decision is not None:
            yield decision
    yield from giveback.given_up(state)
    yield from giveback.overdue(state)


def deadlines(state: BridgeState) -> Iterator[int]:
    """Log times (ms) of the next possible decisions."""
    yield from (at for cluster in state.clusters.values() if (at := _deadline(cluster)))
    for owner, refused in state.refused.items():
        cluster = state.clusters.get(state.cluster_of(owner))
        yield from (refused.until, cluster.unused_since + REFUSED_MS if cluster is not None else 0)
    yield from giveback.deadlines(state)
    yield from watchdog.deadlines(state)
    yield from upgrades.deadlines(state)


def _deadline(cluster: Cluster) -> int:
    ends = [cluster.rests_until, cluster.unused_since + UNUSED_MS if cluster.unused_since else 0]
    return max(ends)


def next_of(state: BridgeState, cluster: Cluster) -> Decision | None:
    """The next decision about a cluster; None when nothing is due."""
    grant, uid = state.grants.get(cluster.owner), cluster.ref.uid
    if grant is None or cluster.fixed or not cluster.runs or uid in state.gates:
        return None
    if state.cluster_of(cluster.owner) != uid or upgrades.opens(state, cluster.owner):
        return None
    if grant.giving or cluster.rv < cluster.written_rv or state.now < cluster.rests_until:
        return None
    reclaim = state.reclaims.get(cluster.owner)
    if reclaim is not None:
        step = giveback.step(state, cluster, grant, reclaim)
        if step is None:  # While it waits, a ``maxReplicas`` raised by hand is lowered all the same.
            return _restored(state, cluster, grant)
        if not isinstance(step, giveback.Lowered):
            return step
        most = {group.name: _target(state, cluster, group, grant) for group in cluster.elastic.groups}
        most |= {name: min(count, most[name]) for name, count in step.left.items()}
        gate = _gate(cluster, grant, most, step.left)
        # Without the write the operator would make the pods as soon as a user raises ``maxReplicas``.
        sizes = {group.name: group.asked for group in cluster.elastic.groups}
        replicas = {name: count for name, count in step.left.items() if sizes[name] > count}
        return structs.replace(gate, workers=step.workers, claimant=reclaim.claimant, replicas=replicas)
    most = {group.name: _target(state, cluster, group, grant) for group in cluster.elastic.groups}
    order = state.surplus.get(cluster.owner)
    over = giveback.surplus_of(state, cluster, grant, order) if order is not None else None
    if over is not None:
        most |= {name: min(count, most[name]) for name, count in over.left.items()}
        return structs.replace(_gate(cluster, grant, most), workers=over.workers, replicas=over.left)
    right = cluster.elastic.granted == most and resizing.is_written(cluster, grant)
    driven = _driven(cluster, grant)
    if not right or driven or any(group.most != most[group.name] for group in cluster.elastic.groups):
        return structs.replace(_gate(cluster, grant, most), replicas=driven)
    left, refused = unused(state, cluster, grant), refused_of(state, cluster)
    calm = _calm(state, cluster, left.keys() - refused)
    wait = REFUSED_MS if left.keys() & refused else UNUSED_MS
    if left and cluster.unused_since and state.now >= cluster.unused_since + wait and calm:
        gate = _gate(cluster, grant, {name: left.get(name, count) for name, count in most.items()}, left)
        # The autoscaler asked for the refused workers: their operator would try on.
        return structs.replace(gate, replicas={name: left[name] for name in sorted(refused & left.keys())})
    return watchdog.takeover(state, cluster, grant) or _request(state, cluster, grant)


def _restored(state: BridgeState, cluster: Cluster, grant: Grant) -> GateSet | None:
    """A write that restores ``maxReplicas``, where the value exceeds the grant."""
    most = {group.name: _target(state, cluster, group, grant) for group in cluster.elastic.groups}
    raised = any(group.most > most[group.name] for group in cluster.elastic.groups)
    return _gate(cluster, grant, most) if raised else None


def _driven(cluster: Cluster, grant: Grant) -> Counts:
    """{group: replicas} wanted and granted, without a request of an autoscaler to the operator, or with a late one."""
    wanted = {
        group.name: min(max(cluster.wish.wanted.get(group.name, 0), group.least), grant.kept.get(group.name, 0))
        for group in cluster.elastic.groups
        if cluster.elastic.driven or cluster.elastic.raised
    }
    return {name: count for name, count in wanted.items() if count > cluster.elastic.sizes[name]}


def _target(state: BridgeState, cluster: Cluster, group: ScaledGroup, grant: Grant) -> int:
    """``maxReplicas`` for a group."""
    ceiling = cluster.elastic.ceiling(group)
    most = max(min(grant.kept.get(group.name, group.least), ceiling), group.least)
    if most >= group.most:
        return most
    # The first limit of muster on this group: workers starting under the old limit arrive first.
    if group.name not in cluster.elastic.granted and not _calm(state, cluster, {group.name: most}):
        return group.most
    return max(most, group.replicas)


def unused(state: BridgeState, cluster: Cluster, grant: Grant) -> Counts:
    """{group: needed replicas}, for groups with a larger grant."""
    needed: Counts = {}
    wanted = watchdog.room_to_recover(state, cluster) if watchdog.deaf(state, cluster) else cluster.wish.wanted
    refused = refused_of(state, cluster)
    for group in cluster.elastic.groups:
        runs = -(-_live(state, cluster, group) // group.hosts)
        needs = max(group.replicas, runs, group.least, wanted.get(group.name, 0))
        if group.name in refused:
            needs = max(runs, group.least)
        if needs < grant.groups.get(group.name, 0):
            needed[group.name] = needs
    return needed | resizing.unused(state, cluster, grant)


def refused_of(state: BridgeState, cluster: Cluster) -> set[str]:
    """Worker groups with fewer pods than asked for, while the API server refuses pods of the workload."""
    refused = state.refused.get(cluster.owner)
    if refused is None or not refused.since:
        return set()
    groups = cluster.elastic.groups
    return {group.name for group in groups if _live(state, cluster, group) < group.replicas * group.hosts}


def _calm(state: BridgeState, cluster: Cluster, groups: Iterable[str]) -> bool:
    """Whether no worker of these groups is starting: every group has exactly the pods of its spec."""
    launching = state.said_by(cluster.ref.uid).launching
    if watchdog.deaf(state, cluster):  # What an autoscaler that is not heard once asked for comes no more.
        launching = watchdog.room_to_recover(state, cluster)
    return all(
        _live(state, cluster, group) == group.replicas * group.hosts and not launching.get(group.name)
        for group in cluster.elastic.groups
        if group.name in groups
    )


def _live(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> int:
    return len(state.workers_in(cluster.ref.uid, group.name))


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
        each=_shares(cluster, grant, [*most, *giving]) if giving else {},
        before=cluster.elastic.mark,
        grow=resizing.opened(cluster, {**grant.kept, **(giving or {})}),
    )


def _request(state: BridgeState, cluster: Cluster, grant: Grant) -> GrowthRequested | None:
    """The wish of a cluster beyond its grant, unless the same request is open."""
    upgrade = upgrades.request(state, cluster.owner)
    units = (*_lacks(state, cluster, grant), *upgrade) if grant.groups else ()
    newest, job = state.pending_of(cluster.owner), state.jobs.get(cluster.owner)
    pending = newest.ref if newest is not None and units else None
    open_ = state.growing.get(cluster.ref.uid)
    if open_ is None and not units:
        return None
    asked = (grant.attempt, grant.groups, units, pending)
    if open_ is not None and (open_.attempt, open_.granted, open_.units, open_.pending) == asked:
        return None
    whole = {PENDING: job.whole} if pending is not None and job is not None else {}
    vectors = [vector for unit in units for vector in (unit.groups, *(other.groups for other in unit.otherwise))]
    return GrowthRequested(
        cause=cluster.cause,
        ref=grant.ref,
        attempt=grant.attempt,
        cluster=cluster.ref,
        granted=grant.groups,
        units=units,
        each=dict(sorted((_shares(cluster, grant, {name for vector in vectors for name in vector}) | whole).items())),
        pending=pending,
        start=job.sizes if pending is not None and job is not None else {},
    )


def _lacks(state: BridgeState, cluster: Cluster, grant: Grant) -> tuple[GrowthUnit, ...]:
    """The missing grants: the autoscaler of a cluster admitted without its autoscaler, grown pods, replicas. None for
    a while after workers were refused.
    """
    refused = state.refused.get(cluster.owner)
    if refused is not None and state.now < refused.until:
        return ()
    unasked = grant.fixed and cluster.elastic.beside and AUTOSCALER not in grant.groups
    autoscaler = [GrowthUnit({AUTOSCALER: 1})] if unasked else []
    return (*autoscaler, *resizing.beyond(state, cluster, grant), *_beyond(state, cluster, grant))


def _beyond(state: BridgeState, cluster: Cluster, grant: Grant) -> Iterator[GrowthUnit]:
    """Replicas beyond the grant: the running ones, and the wished ones."""
    for group in cluster.elastic.groups:
        granted = grant.groups.get(group.name, 0)
        if group.replicas > granted:
            yield GrowthUnit({group.name: 1}, group.replicas - granted)
    if watchdog.deaf(state, cluster):
        for name, wanted in watchdog.room_to_recover(state, cluster).items():
            if wanted > max(grant.groups.get(name, 0), cluster.elastic.sizes[name]):
                yield GrowthUnit({name: 1}, wanted - max(grant.groups.get(name, 0), cluster.elastic.sizes[name]))
        return
    for unit in cluster.wish.units:
        yield resizing.with_size(cluster, grant, unit)


def _shares(cluster: Cluster, grant: Grant, named: Iterable[str]) -> dict[str, ReplicaCost]:
    groups = cluster.elastic.groups
    costs = {group.name: group.cost for group in groups}
    costs |= resizing.costs(cluster, grant)
    return {name: costs[name] for name in sorted({*named}) if name in costs}
