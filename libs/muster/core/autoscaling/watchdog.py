"""Troubles of Ray clusters that last too long, and the alarms about these troubles.

Workers without a node: no demand relies on such workers while another group would do. After a while the trouble becomes
an alarm. Where the waiting demand could run in another group, the bridge asks for the other group and takes the workers
without nodes back. The first group is tried again after a pause, longer each time.

Head, readiness, and autoscaler: a trouble past its limit is an alarm, and the most severe alarm is shown. While an
autoscaler is not heard, the cluster gets no new grant, and the unused grant is released, so that no quota is kept idle.
An autoscaler stalled with open launches gets a grant for these launches: Ray's second version fails at every tick once
more workers are starting than ``maxReplicas`` allows. Workers idle for too long are removed by the bridge instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from muster.core.autoscaling import resizing
from muster.core.autoscaling.bridgestate import NOTHING, BridgeState, Cluster, Grant, Worker
from muster.core.quota.trees.rules import span_or
from muster.core.stage import mark
from muster.events.alarms import AlarmCleared, AlarmRaised, AlarmReason, stops_grants
from muster.events.base import Decision
from muster.events.elastic import ChosenWorker, WorkersChosen
from muster.model.closed import total
from muster.model.elastic import Counts, ScaledGroup
from muster.model.raydemand import RayDemand, RayShape, Trouble

# --- workers that no node takes ---------------------------------------------------------------------------------------


WAIT_MS = 30_000
"""Allowed time of workers without a node, where the cluster sets none."""
NODELESS_HOLD_MS = 60_000
"""Pause before the group is tried again; doubled each time."""


def limit_ms(cluster: Cluster) -> int:
    """Allowed time of the cluster's workers without a node."""
    return span_or(cluster.elastic.node_wait, WAIT_MS)


def nodeless_deadlines(state: BridgeState, cluster: Cluster) -> Iterator[int]:
    """Log times (ms) at which a worker has been without a node for too long."""
    return (worker.stuck_since + limit_ms(cluster) for pods in stuck(state, cluster).values() for worker in pods)


def groups(state: BridgeState, cluster: Cluster) -> tuple[Counts, int]:
    """Worker groups with pods without a node, and since when; the groups of the alarm, while another group is tried."""
    held, nodeless = state.alarms.get(cluster.owner), stuck(state, cluster)
    counts = {name: len(pods) for name, pods in nodeless.items()}
    if held is not None and held.reason == "no_nodes":
        return held.groups | counts, held.since
    return counts, min((worker.stuck_since for pods in nodeless.values() for worker in pods), default=0)


def barren(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group of the alarm ``no_nodes``: pods without a node}; empty without this alarm."""
    alarm = state.alarms.get(cluster.owner)
    if alarm is None or alarm.reason != "no_nodes" or alarm.cluster != cluster.ref:
        return {}
    nodeless = stuck(state, cluster)
    return {name: len(nodeless.get(name, ())) for name in alarm.groups}


def leaving(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> list[list[Worker]]:
    """Replicas of a closed group without a node: whole replicas, the newest first, down to the group's minimum."""
    if group.name not in cluster.closed:
        return []
    replicas = state.replicas_in(cluster.ref.uid, group.name)
    pods = stuck(state, cluster).get(group.name, [])
    names = dict.fromkeys(worker.replica for worker in sorted(pods, key=lambda pod: (-pod.created, pod.ref.name)))
    going = [*names][: max(len(replicas) - group.least, 0)]
    return [workers for name, workers in replicas.items() if name in going]


def stuck(state: BridgeState, cluster: Cluster) -> dict[str, list[Worker]]:
    """{worker group: pods without a node}"""
    groups = state.workers.get(cluster.ref.uid, {}) if not cluster.fixed else {}
    nodeless = {name: [worker for worker in pods.values() if worker.stuck_since] for name, pods in groups.items()}
    return {name: pods for name, pods in sorted(nodeless.items()) if pods}


def late_groups(state: BridgeState, cluster: Cluster) -> Counts:
    """{worker group: pods without a node for too long}"""
    since = state.now - limit_ms(cluster)
    late = {name: sum(worker.stuck_since <= since for worker in pods) for name, pods in stuck(state, cluster).items()}
    return {name: count for name, count in late.items() if count}


# --- watchdog ---------------------------------------------------------------------------------------------------------


LIMITS_MS: dict[AlarmReason, int] = {
    "no_head": 60_000,
    "unauthorized": 30_000,
    "unreadable": 60_000,
    "unreachable": 60_000,
    "stalled": 0,
    "no_nodes": WAIT_MS,
    "not_growing": 60_000,
    "not_resizing": 60_000,
    "not_shrinking": 60_000,
    "no_group": 60_000,
    "not_ready": 600_000,
}
"""Allowed time of each trouble, the most severe first; ``stalled`` begins after six ticks without a tick."""
total(LIMITS_MS, AlarmReason, "libs/muster/core/autoscaling/watchdog.py (LIMITS_MS)")
MAX_LACKS = 5
"""Shapes named in an alarm."""
LATE = 3
"""Ticks in which a slow autoscaler has to ask for its grant."""
HOLD_MS = 300_000
"""Pause before unused growth is tried again; doubled each time."""
LONGEST_HOLD = 5
"""Most doublings of the pause."""
DRAIN_MS = 6_000
"""Time for the head to refuse draining a worker that is busy again: three readings of the head."""


class Wrong(Struct, frozen=True):
    """Something is wrong with a cluster."""

    groups: Counts
    since: int = 0
    """Start of the trouble, where the head reports the start; 0: since the trouble was noticed."""


def look(state: BridgeState, cluster: Cluster) -> None:
    """Note the troubles of a cluster, and their starts."""
    watch, sizes = cluster.watch, cluster.elastic.sizes
    watch.headed = watch.headed or bool(state.heads.get(cluster.ref.uid))
    if sizes != watch.sizes:
        watch.since.pop("not_growing", None)
        watch.sizes, watch.tries = sizes, 0
    troubles = dict(_wrong(state, cluster))
    watch.since = {reason: wrong.since or watch.since.get(reason, state.now) for reason, wrong in troubles.items()}
    watch.groups = {reason: wrong.groups for reason, wrong in troubles.items() if wrong.groups}
    mark(state.watched, cluster.ref.uid, troubles or cluster.owner in state.alarms)


def deaf(state: BridgeState, cluster: Cluster) -> bool:
    """Whether the cluster would use no further grant."""
    alarm = state.alarms.get(cluster.owner)
    return alarm is not None and stops_grants(alarm.reason)


def room_to_recover(state: BridgeState, cluster: Cluster) -> Counts:
    """Replicas of groups whose stalled autoscaler asked for more than exist, as long as a grant may help."""
    alarm, demand = state.alarms.get(cluster.owner), _demand(state, cluster)
    if alarm is None or alarm.reason != "stalled" or alarm.tries > 1:
        return {}
    missing: Counts = {}
    for group in cluster.elastic.groups:
        launching = -(-demand.launching.get(group.name, 0) // group.hosts)
        wanted = min(len(state.replicas_in(cluster.ref.uid, group.name)) + launching, cluster.elastic.ceiling(group))
        if launching and wanted > group.replicas:
            missing[group.name] = wanted
    return missing


def timed(state: BridgeState) -> Iterator[str]:
    """Clusters with a decision due by time."""
    for uid in state.watched:
        cluster = state.clusters[uid]
        if any(since + _limit_ms(state, cluster, reason) <= state.now for reason, since in cluster.watch.since.items()):
            yield uid


def deadlines(state: BridgeState) -> Iterator[int]:
    """Log times (ms) of the next possible decisions."""
    for uid in state.watched:
        cluster = state.clusters[uid]
        yield from (since + _limit_ms(state, cluster, reason) for reason, since in cluster.watch.since.items())
        yield from nodeless_deadlines(state, cluster)
        alarm = state.alarms.get(cluster.owner)
        if alarm is not None:
            yield alarm.until


def decisions(state: BridgeState) -> Iterator[Decision]:
    """Alarms to be raised, and alarms to end."""
    for uid in state.watched:
        cluster = state.clusters[uid]
        grant = state.grants.get(cluster.owner)
        if grant is not None and state.cluster_of(cluster.owner) == uid:
            yield from _alarm(state, cluster, grant)
    for owner, alarm in state.alarms.items():
        if not state.cluster_of(owner):  # Its cluster is gone, or scales itself no more.
            yield AlarmCleared(cause=alarm.cause, ref=alarm.ref, attempt=alarm.attempt, cluster=alarm.cluster)


def takeover(state: BridgeState, cluster: Cluster, grant: Grant) -> WorkersChosen | None:
    """Idle workers removed in place of the autoscaler; and workers without nodes, where another group takes over."""
    alarm = state.alarms.get(cluster.owner)
    which, wait = (leaving, 0) if cluster.closed else (_kept, DRAIN_MS)
    itself = cluster.elastic.driven or (alarm is not None and alarm.reason in ("not_shrinking", "stalled"))
    if not (itself or cluster.closed):
        return None
    chosen: list[ChosenWorker] = []
    left: Counts = {}
    for group in cluster.elastic.groups:
        going = which(state, cluster, group)
        keep = len(state.replicas_in(cluster.ref.uid, group.name)) - len(going)
        if going and keep < grant.groups.get(group.name, 0):
            left[group.name] = keep
            chosen += [ChosenWorker(worker.ref, group.name, True) for replica in going for worker in replica]
    if not chosen:
        return None
    return WorkersChosen(
        cause=cluster.cause,
        ref=cluster.ref,
        owner=grant.ref,
        attempt=grant.attempt,
        workers=tuple(chosen),
        left=left,
        until=state.now + wait,
    )


def _kept(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> list[list[Worker]]:
    """Replicas that should be gone for so long that the autoscaler is not waited for."""
    late = state.now - _limit_ms(state, cluster, "not_shrinking")
    return [members for due, members in _idle(state, cluster, group) if due <= late]


def _idle(state: BridgeState, cluster: Cluster, group: ScaledGroup) -> list[tuple[int, list[Worker]]]:
    """(end of the idle timeout, hosts) of the idle replicas that no demand needs, the oldest first."""
    demand = _demand(state, cluster)
    if demand.pending or demand.placement_groups or demand.explicit:
        return []
    over = {report.pod: report.since + group.idle_s * 1000 for report in demand.idle if report.group == group.name}
    replicas = state.replicas_in(cluster.ref.uid, group.name)
    named = set(group.leaving)
    unused = [
        (max(over[member.ref.name] for member in members), sorted(members, key=lambda member: member.ref.name))
        for members in replicas.values()
        if all(member.ref.name in over and member.ref.name not in named for member in members)
    ]
    unused.sort(key=lambda replica: (replica[0], replica[1][0].ref.name))
    wanted = cluster.wish.in_all.get(group.name, 0)
    needed = max(group.least, wanted if wanted > group.replicas else 0)
    return unused[: max(len(replicas) - needed, 0)]


def _wrong(state: BridgeState, cluster: Cluster) -> Iterator[tuple[AlarmReason, Wrong]]:
    if cluster.owner not in state.grants or not cluster.runs or state.cluster_of(cluster.owner) != cluster.ref.uid:
        return
    trouble = _demand(state, cluster).trouble
    if cluster.elastic.driven and trouble == "stalled":
        trouble = ""  # It has no autoscaler.
    head = _wrong_with_head(state, cluster, trouble)
    if head is not None:
        yield head, Wrong({})
    elif not trouble and (unasked := _unasked(state, cluster)):
        yield "not_growing", Wrong(unasked)
    if trouble in ("", "stalled"):
        idle = [due for group in cluster.elastic.groups for due, _ in _idle(state, cluster, group)]
        if idle:
            yield "not_shrinking", Wrong({}, since=min(idle))
    if small := resizing.untouched(state, cluster):
        yield "not_resizing", Wrong(small)
    if cluster.wish.unfit and not trouble:
        yield "no_group", Wrong({})
    without, since = groups(state, cluster)
    if without:
        yield "no_nodes", Wrong(without, since=since)
    job = state.jobs.get(cluster.owner)
    if job is not None and job.starting:
        yield "not_ready", Wrong({})


def _wrong_with_head(state: BridgeState, cluster: Cluster, trouble: Trouble) -> AlarmReason | None:
    """``trouble``: trouble with reading the head."""
    heads = state.heads.get(cluster.ref.uid, {})
    if heads:
        return None if trouble == "unreachable" and not any(heads.values()) else trouble or None
    never_ready = cluster.fixed and not cluster.watch.headed  # Which is said by itself.
    return None if never_ready else "no_head"


def _unasked(state: BridgeState, cluster: Cluster) -> Counts:
    """{group: replicas} wanted, allowed and not requested, while no worker is starting."""
    held = state.alarms.get(cluster.owner)
    again = held is not None and held.reason == "not_growing"  # Then it is not granted any more.
    wants = cluster.wish.in_all if again else cluster.wish.wanted
    unasked: Counts = {}
    for group in cluster.elastic.groups:
        wanted = wants.get(group.name, 0)
        most = wanted if again else group.most
        live = len(state.workers_in(cluster.ref.uid, group.name))
        if min(wanted, most) > group.replicas and live == group.replicas * group.hosts:
            unasked[group.name] = min(wanted, most) - group.replicas
    return unasked


def _alarm(state: BridgeState, cluster: Cluster, grant: Grant) -> Iterator[Decision]:
    known, watch = state.alarms.get(cluster.owner), cluster.watch
    reason = next((candidate for candidate in LIMITS_MS if _is_late(state, cluster, candidate)), None)
    over = known is not None and 0 < known.until <= state.now
    if known is not None and known.reason == reason == "not_growing" and over:
        reason = None  # It is tried again.
    barren = late_groups(state, cluster)
    if known is not None and known.reason == reason == "no_nodes" and over and not barren:
        reason = None
    if reason is None:
        if known is not None:
            yield AlarmCleared(cause=cluster.cause, ref=grant.ref, attempt=grant.attempt, cluster=cluster.ref)
        return
    tries, lacks = watch.tries + 1 if reason == "not_growing" else 1, _lacks(cluster) if reason == "no_group" else ()
    if known is not None and (known.reason, known.cluster) == (reason, cluster.ref):
        news = not barren.keys() <= known.groups.keys() if reason == "no_nodes" else known.lacks != lacks
        if not over and not news:
            return
        tries = known.tries + over
    groups = watch.groups.get(reason, {})
    if reason == "not_shrinking":
        late = {group.name: len(_kept(state, cluster, group)) for group in cluster.elastic.groups}
        groups = {name: count for name, count in late.items() if count}
    if reason == "no_nodes":
        groups = (known.groups if known is not None and known.reason == reason and not over else {}) | barren
        tries = max(tries, watch.barren + 1) if known is None else tries
    hold = _hold_ms(reason, tries, watch.tries)
    yield AlarmRaised(
        cause=cluster.cause,
        ref=grant.ref,
        attempt=grant.attempt,
        cluster=cluster.ref,
        reason=reason,
        since=watch.since[reason],
        groups=groups,
        lacks=lacks,
        fixed=cluster.fixed,
        until=state.now + hold if hold else 0,
        tries=tries,
    )


def _hold_ms(reason: AlarmReason, tries: int, grown: int) -> int:
    """How long (ms) growth is not tried again. ``tries``: alarms in a row; ``grown``: tries of growth in a row."""
    match reason:
        case "no_nodes":
            return NODELESS_HOLD_MS << min(tries - 1, LONGEST_HOLD)
        case "not_growing":
            return HOLD_MS << min(grown, LONGEST_HOLD)
        case "stalled":
            return HOLD_MS if tries == 1 else 0
        case "no_head" | "unauthorized" | "unreadable" | "unreachable":
            return 0
        case "not_resizing" | "not_shrinking" | "no_group" | "not_ready":
            return 0
    assert_never(reason)


def _lacks(cluster: Cluster) -> tuple[RayShape, ...]:
    """One shape for each kind of demand without a suitable worker, at most ``MAX_LACKS``."""
    shapes = dict.fromkeys((tuple(shape.resources.items()), shape.selectors) for shape in cluster.wish.unfit)
    return tuple(RayShape(dict(asked), 1, selectors) for asked, selectors in [*shapes][:MAX_LACKS])


def _is_late(state: BridgeState, cluster: Cluster, reason: AlarmReason) -> bool:
    """Whether a problem lasts for too long. Without an autoscaler only Muster removes workers."""
    since = None if cluster.elastic.driven and reason == "not_shrinking" else cluster.watch.since.get(reason)
    return since is not None and since + _limit_ms(state, cluster, reason) <= state.now


def _limit_ms(state: BridgeState, cluster: Cluster, reason: AlarmReason) -> int:
    if cluster.elastic.driven and reason == "not_shrinking":
        return 0
    if reason == "no_nodes":
        return limit_ms(cluster)
    return max(LIMITS_MS[reason], LATE * _demand(state, cluster).tick_ms if reason == "not_growing" else 0)


def _demand(state: BridgeState, cluster: Cluster) -> RayDemand:
    """The last report of the cluster's head, for the running attempt."""
    heard, grant = state.heard.get(cluster.ref.uid), state.grants.get(cluster.owner)
    return heard.demand if heard is not None and grant is not None and heard.attempt == grant.attempt else NOTHING
