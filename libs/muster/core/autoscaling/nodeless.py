"""Workers of Ray clusters that no node takes: nothing counts on them while another group would do.

After a while that is an alarm of the watchdog. Where what waits could run in another group, that one is asked for, and
the workers without nodes are taken back; their group is tried again after a pause, longer each time.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.autoscaling.state import BridgeState, Cluster, Worker
from muster.core.quota.trees.rules import span_or
from muster.model.elastic import Counts, ScaledGroup

WAIT_MS = 30_000
"""How long workers may be without a node where their cluster does not say."""
HOLD_MS = 60_000
"""How long their group is not tried again; twice as long each time."""


def limit_ms(cluster: Cluster) -> int:
    """How long its workers may be without a node."""
    return span_or(cluster.elastic.node_wait, WAIT_MS)


def deadlines(state: BridgeState, cluster: Cluster) -> Iterator[int]:
    """Log times (ms) at which a worker has been without a node for too long."""
    return (each.stuck_since + limit_ms(cluster) for pods in stuck(state, cluster).values() for each in pods)


def groups(state: BridgeState, cluster: Cluster) -> tuple[Counts, int]:
    """Worker groups with pods that no node takes, and since when; those of the alarm, while another group is tried."""
    held, found = state.alarms.get(cluster.owner), stuck(state, cluster)
    counts = {name: len(pods) for name, pods in found.items()}
    if held is not None and held.reason == "no_nodes":
        return held.groups | counts, held.since
    return counts, min((each.stuck_since for pods in found.values() for each in pods), default=0)


def barren(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group whose workers find no nodes: its pods that no node takes}, while that is an alarm."""
    alarm = state.alarms.get(cluster.owner)
    if alarm is None or alarm.reason != "no_nodes" or alarm.cluster != cluster.ref:
        return {}
    found = stuck(state, cluster)
    return {name: len(found.get(name, ())) for name in alarm.groups}


def leaving(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> list[list[Worker]]:
    """Replicas of a closed group that no node takes: whole ones, the newest first, down to the least."""
    if group.name not in cluster.closed:
        return []
    replicas = state.replicas_in(cluster.ref.uid, group.name)
    pods = stuck(state, cluster).get(group.name, [])
    names = dict.fromkeys(each.replica for each in sorted(pods, key=lambda each: (-each.created, each.ref.name)))
    going = [*names][: max(len(replicas) - group.least, 0)]
    return [workers for name, workers in replicas.items() if name in going]


def stuck(state: BridgeState, cluster: Cluster) -> dict[str, list[Worker]]:
    """{worker group: its pods that no node takes}"""
    groups = state.workers.get(cluster.ref.uid, {}) if not cluster.fixed else {}
    found = {name: [each for each in pods.values() if each.stuck_since] for name, pods in groups.items()}
    return {name: pods for name, pods in sorted(found.items()) if pods}


def late(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group: pods that no node has taken for too long}"""
    since = state.now - limit_ms(cluster)
    found = {name: sum(each.stuck_since <= since for each in pods) for name, pods in stuck(state, cluster).items()}
    return {name: count for name, count in found.items() if count}
