"""Workers that grow in place: Ray's autoscaler picks the pods, so a group may grow as a whole, or not at all.

The number of grown pods is counted and granted like replicas, under the name ``elastic.grown``, which includes the
amount. A group is open, and the autoscaler may try, while a task waits for growth and the grant covers every pod of the
group. Then the group is closed, and growth not used by any pod is released.
"""

from __future__ import annotations

from msgspec import structs

from muster.core.autoscaling.bridgestate import BridgeState, Cluster, Grant
from muster.events.elastic import GrowthUnit
from muster.model.elastic import AUTOSCALER, Counts, ReplicaCost, ScaledGroup, grown
from muster.model.resources import Vector

RESIZED = ("cpu", "memory")


def large(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group: pods of the group with a larger request than at their creation}"""
    grew = {group.name: len(_extras(state, cluster, group)) for group in cluster.elastic.groups if group.grows}
    return {name: count for name, count in grew.items() if count}


def is_open(cluster: Cluster, group: ScaledGroup, counts: Counts) -> bool:
    """Whether a task waits for growth of the group's pods, and the grant allows every pod to grow."""
    pods, name = max(counts.get(group.name, 0), group.replicas) * group.hosts, grown(group)
    return bool(group.grows and cluster.wish.wanted.get(name)) and 0 < pods <= counts.get(name, 0)


def opened(cluster: Cluster, counts: Counts) -> tuple[str, ...]:
    """The groups that may grow by the grant."""
    return tuple(group.name for group in cluster.elastic.groups if is_open(cluster, group, counts))


def is_written(cluster: Cluster, grant: Grant) -> bool:
    """Whether the object names exactly the groups that may grow."""
    return not cluster.elastic.ungated and {*cluster.elastic.growing} == {*opened(cluster, grant.kept)}


def untouched(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group: pods}, for groups whose written spec allows growth, while no pod of the group has grown."""
    grant, grew = state.grants.get(cluster.owner), large(state, cluster)
    written = grant is not None and is_written(cluster, grant)
    names = (name for name in cluster.elastic.growing if written and not grew.get(name))
    pods = {name: len(state.workers_in(cluster.ref.uid, name)) for name in names}
    return {name: count for name, count in pods.items() if count}


def unused(state: BridgeState, cluster: Cluster, grant: Grant) -> Counts:
    """{name of a growth: pods with a need}, for growths with a larger grant."""
    needs = _needs(state, cluster, grant)
    for group in cluster.elastic.groups:
        needs[grown(group)] = max(needs.get(grown(group), 0), cluster.wish.wanted.get(grown(group), 0))
    names = {group.name for group in cluster.elastic.groups}
    return {
        name: needs.get(name, 0)
        for name, count in grant.groups.items()
        if name in grant.grown and name not in names and name != AUTOSCALER and needs.get(name, 0) < count
    }


def beyond(state: BridgeState, cluster: Cluster, grant: Grant) -> list[GrowthUnit]:
    """Pods grown beyond the grant."""
    more = {name: count - grant.groups.get(name, 0) for name, count in _needs(state, cluster, grant).items()}
    return [GrowthUnit({name: 1}, count) for name, count in sorted(more.items()) if count > 0]


def _needs(state: BridgeState, cluster: Cluster, grant: Grant) -> Counts:
    """{name of a growth: grown pods}, by the sizes of the grant, else by the size that the owner allows now."""
    needs: Counts = {}
    for group in cluster.elastic.groups:
        sizes = {name: cost.request for name, cost in grant.grown.items() if name.startswith(f"{group.name}/")}
        if not (sizes or group.grows):
            continue  # Nor are its pods looked at, for each of them, whenever one of them changes.
        for extra in _extras(state, cluster, group):
            fits = [
                (sorted(more.items()), name)
                for name, more in sizes.items()
                if needs.get(name, 0) < grant.groups.get(name, 0) and not _above(extra, more)
            ]
            name = min(fits)[1] if fits else grown(group) if group.grows else ""
            if name:
                needs[name] = needs.get(name, 0) + 1
    return needs


def _extras(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> list[Vector]:
    """The growth of each grown pod of a group beyond the request at creation."""
    whole = group.request if group.takes is None else group.takes
    made = {name: -(-amount // group.hosts) for name, amount in whole.items()}
    pods = state.workers_in(cluster.ref.uid, group.name).values()
    return [
        {name: max(pod.request.get(name, 0) - made.get(name, 0), 0) for name in RESIZED}
        for pod in pods
        if _above(pod.request, made)
    ]


def with_size(cluster: Cluster, grant: Grant, unit: GrowthUnit) -> GrowthUnit:
    """Replicas of an open group come with room to grow."""
    otherwise = tuple(
        structs.replace(option, groups=_sized(cluster, grant, option.groups, spared=False)) for option in unit.otherwise
    )
    return GrowthUnit(_sized(cluster, grant, unit.groups, spared=unit.times == 1), unit.times, otherwise)


def _sized(cluster: Cluster, grant: Grant, groups: Counts, *, spared: bool) -> Counts:
    sized = dict(groups)
    for group in cluster.elastic.groups:
        name = grown(group)
        if group.name in groups and name not in groups and is_open(cluster, group, grant.groups):
            spare = grant.groups[name] - grant.groups.get(group.name, 0) * group.hosts if spared else 0
            sized[name] = max(groups[group.name] * group.hosts - max(spare, 0), 0)
    return {name: count for name, count in sorted(sized.items()) if count}


def costs(cluster: Cluster, grant: Grant) -> dict[str, ReplicaCost]:
    """The additional charge of a pod that may grow."""
    now = {grown(group): ReplicaCost(group.grows, hosts=0) for group in cluster.elastic.groups if group.grows}
    return grant.grown | now | {AUTOSCALER: ReplicaCost({}, cluster.elastic.beside, hosts=0)}


def _above(request: Vector, made: Vector) -> bool:
    return any(request.get(name, 0) > made.get(name, 0) for name in RESIZED)
