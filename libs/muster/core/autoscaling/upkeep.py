"""Keeping what is known of Ray clusters in line with itself: what they want, and about which something is due."""

from __future__ import annotations

from muster.core.autoscaling import nodeless, resizing, watchdog
from muster.core.autoscaling.gate import next_of, unused
from muster.core.autoscaling.state import BridgeState, Cluster
from muster.core.autoscaling.wish import EXPLICIT, Wish, wish_of
from muster.events.base import Cause
from muster.model.elastic import Counts, Elastic
from muster.model.keys import Position, Ref


def seen(
    state: BridgeState, at: Position, ref: Ref, owner: str, rv: int, elastic: Elastic | None, *, runs: bool
) -> None:
    """``elastic``: how it scales itself; None for one of a fixed size."""
    cause = Cause(at.seq, at.item)
    cluster = state.clusters.get(ref.uid)
    if cluster is not None and (cluster.owner != owner or cluster.fixed is not (elastic is None)):
        forget(state, ref.uid)
        cluster = None
    if cluster is None:
        cluster = state.clusters[ref.uid] = Cluster(ref, owner, Elastic(), rv, cause, elastic is None)
    before, cluster.elastic = cluster.elastic, elastic or Elastic()
    if cluster.elastic != before:
        cluster.changed, cluster.rests_until = at.seq, 0
    cluster.rv, cluster.cause, cluster.runs = rv, cause, runs
    state.families.setdefault(owner, {})[ref.uid] = ref.name
    wishes(state, cluster)
    recheck(state, ref.uid)


def forget(state: BridgeState, uid: str) -> None:
    """A cluster is gone, or is something else. Another one of the same owner is looked at in its place."""
    cluster = state.clusters.pop(uid)
    grant = state.grants.get(cluster.owner)
    if grant is not None and grant.giver == uid:
        grant.giving, grant.giver = {}, ""  # Its next sight shows what came of the write that was to lower it.
    named = state.named.get(cluster.owner)
    if named is not None and named.ordered.ref.uid == uid:  # One that has a fixed size makes them again.
        del state.named[cluster.owner]
    for table in (state.growing, state.gates, state.due, state.heard, state.chosen, state.watched):
        table.pop(uid, None)
    family = state.families[cluster.owner]
    del family[uid]
    if not family:
        del state.families[cluster.owner]
    recheck(state, state.cluster_of(cluster.owner))


def wishes_of_owner(state: BridgeState, owner: str) -> None:
    cluster = state.clusters.get(state.cluster_of(owner))
    if cluster is not None:
        wishes(state, cluster)
        recheck(state, cluster.ref.uid)


def wishes(state: BridgeState, cluster: Cluster) -> None:
    """Its demand as it is known now; the demand of an older attempt counts no more."""
    grant, known = state.grants.get(cluster.owner), state.heard.get(cluster.ref.uid)
    of_now = known is not None and (grant is None or known.attempt == grant.attempt)
    demand = known.demand if known is not None and of_now else None
    granted = grant.groups if grant is not None else None
    waits = {each.name for each in demand.placement_groups} | {EXPLICIT} if demand is not None else set()
    cluster.refused = tuple(name for name in cluster.refused if name in waits)
    large = resizing.large(state, cluster)
    cluster.wish = wish_of(cluster.elastic, demand, granted, large, cluster.refused)
    cluster.closed, stuck = (), nodeless.barren(state, cluster)
    if stuck:
        other = wish_of(cluster.elastic, demand, granted, large, cluster.refused, stuck)
        if _elsewhere(other, stuck) > _elsewhere(cluster.wish, stuck):
            cluster.wish, cluster.closed = other, tuple(stuck)


def _elsewhere(wish: Wish, closed: Counts) -> int:
    """Replicas that it has of other groups."""
    return sum(count for name, count in wish.in_all.items() if name not in closed)


def recheck(state: BridgeState, uid: str) -> None:
    """Bring ``due`` and what is unused in line with the state."""
    cluster = state.clusters.get(uid)
    if cluster is None:
        state.due.pop(uid, None)
        return
    watchdog.look(state, cluster)
    grant = state.grants.get(cluster.owner)
    if grant is None or cluster.fixed or not unused(state, cluster, grant):
        cluster.unused_since = 0
    elif not cluster.unused_since:
        cluster.unused_since = state.now
    if next_of(state, cluster) is not None:
        state.due[uid] = None
    else:
        state.due.pop(uid, None)
