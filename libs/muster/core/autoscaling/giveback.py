"""Which workers of a Ray cluster go when the cluster has to release some, and when.

Starting workers may arrive first, for at most three ticks. Then workers are chosen in the order of the smallest loss:
without a node, idle longest, busy, and last the workers with actors, parts of placement groups or the only copy of an
object; among equals the worker with the latest start of work. The head is to place nothing more on chosen workers. The
workers may finish their work, at most until a deadline: the annotation ``muster.dev/drain`` of the cluster. Then one
write names the workers to their operator and lowers ``maxReplicas``; the charge of a worker is free when its pods are
gone. A cluster never goes below ``minReplicas`` and never loses a head.

A cluster of a fixed size releases the workers beyond its grant: the last worker group first, of a group the youngest
worker, until the ordered amounts are covered. One write lowers ``replicas``; the operator deletes the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.core.autoscaling.bridgestate import BridgeState, Cluster, Grant, Reclaim, Surplus, Worker
from muster.core.quota.trees.rules import span_or
from muster.events.base import Decision
from muster.events.elastic import ChosenWorker, GateSet, WorkersChosen, WorkersKept, WorkersRemoved
from muster.model.elastic import Counts, ScaledGroup
from muster.model.keys import Ref
from muster.model.resources import add_into

LAUNCH_MS = 15_000
"""Wait of a reclaim for starting workers: three ticks of Ray's autoscaler."""
READ_MS = 3_000
"""Wait of a choice for a reading of the head newer than the order: heads are read every 2 s."""
DRAIN_MS = 15_000
"""Time for chosen workers to finish their work, where the cluster sets none."""
IDLE_DRAIN_MS = 2_000
"""The same for idle workers: long enough to inform the head."""
LATE_MS = 60_000
"""Time for workers named to their operator to end before their deletion by uid: longer than the end of a pod, or the
start of an operator. Doubled each time."""
LONGEST_LATE = 5
"""Most doublings of the time."""
GIVE_UP_MS = 120_000
"""Longest wait of a claim for a cluster that releases nothing."""


class Lowered(Struct, frozen=True):
    """The write: the replicas left in each group, and the pods that go."""

    left: Counts
    workers: dict[str, tuple[Ref, ...]]


def step(state: BridgeState, cluster: Cluster, grant: Grant, reclaim: Reclaim) -> Decision | Lowered | None:
    """The next decision about a cluster with workers to release; None while the cluster has to wait."""
    left = {
        group.name: keep
        for group in cluster.elastic.groups
        if group.name in reclaim.left
        and (keep := max(reclaim.left[group.name], group.least)) < grant.groups.get(group.name, 0)
    }
    if not left:
        return _kept(grant, reclaim, "at_minimum")
    if state.now >= reclaim.since + GIVE_UP_MS:
        return _kept(grant, reclaim, "not_written")
    chosen = state.chosen.get(cluster.ref.uid)
    if reclaim.claimant is None:
        return _unasked(state, cluster, grant, reclaim, left)
    if chosen is None and state.now < reclaim.since + READ_MS and _is_read(state, cluster):
        return None
    if chosen is None and state.now < reclaim.since + LAUNCH_MS and _launching(state, cluster, left):
        return None
    groups = [group for group in cluster.elastic.groups if group.name in left]
    going = [worker for group in groups for worker in _going(state, cluster, group, left[group.name])]
    if chosen is None and going:
        return _choice(state, cluster, grant, reclaim, left, going)
    if chosen is not None and state.now < chosen.until and not _emptied(state, cluster, chosen):
        return None
    return _lowered(left, going)


def _emptied(state: BridgeState, cluster: Cluster, chosen: WorkersChosen) -> bool:
    """Whether every chosen worker is gone or has nothing left to do."""
    left = {leaver.pod for leaver in state.said_by(cluster.ref.uid).left}
    live = {worker.ref.uid for worker in state.workers_of(cluster.ref.uid)}
    return all(worker.ref.name in left or worker.ref.uid not in live for worker in chosen.workers)


def _unasked(
    state: BridgeState, cluster: Cluster, grant: Grant, reclaim: Reclaim, left: Counts
) -> Decision | Lowered | None:
    """Workers without a claimant go only while idle: all chosen workers, or none."""
    chosen = state.chosen.get(cluster.ref.uid)
    if chosen is None:
        return _kept(grant, reclaim, "not_written")
    left_it = {leaver.pod for leaver in state.said_by(cluster.ref.uid).left}
    if state.now < chosen.until and not all(worker.ref.name in left_it for worker in chosen.workers):
        return None  # Once all drain it is written at once: their operator would replace them.
    idle = _unused(state, cluster.ref.uid)
    live = {worker.ref.uid for worker in state.workers_of(cluster.ref.uid)}
    if not all(worker.ref.uid in live and worker.ref.name in idle for worker in chosen.workers):
        return _kept(grant, reclaim, "in_use")
    return _lowered(left, chosen.workers)


def _lowered(left: Counts, going: Iterable[ChosenWorker]) -> Lowered:
    workers: dict[str, tuple[Ref, ...]] = {}
    for worker in going:
        workers[worker.group] = (*workers.get(worker.group, ()), worker.ref)
    return Lowered(left, workers)


def given_up(state: BridgeState) -> Iterator[Decision]:
    """A reclaim ends where the cluster is gone: a missing cluster releases nothing."""
    for owner, reclaim in state.reclaims.items():
        grant = state.grants.get(owner)
        cluster = state.clusters.get(state.cluster_of(owner))
        scales = cluster is not None and not cluster.fixed
        if grant is not None and not scales and state.now >= reclaim.since + GIVE_UP_MS:
            yield _kept(grant, reclaim, "no_cluster")


def late_ms(tries: int) -> int:
    """Time for workers to end after this number of deletions."""
    return int(LATE_MS * 2 ** min(tries, LONGEST_LATE))


def overdue(state: BridgeState) -> Iterator[Decision]:
    """Workers that neither their operator nor their autoscaler removes.

    Workers without a claimant stay while one of the workers is used again; once no worker is named to the operator any
    more, the cluster keeps the grant.
    """
    for named in state.named.values():
        if not named.since or state.now < named.retry_at:
            continue
        live = {
            group: pods
            for group, refs in named.ordered.workers.items()
            if (pods := tuple(ref for ref in refs if _stays(state, named.ordered.ref.uid, group, ref.uid)))
        }
        if not live:
            continue
        if named.ordered.claimant is None and not _all_idle(state, named.ordered.ref.uid, live):
            if not _leaving(state, named.ordered.ref.uid, live):
                yield WorkersKept(
                    cause=named.cause,
                    ref=named.ordered.owner,
                    attempt=named.ordered.attempt,
                    reason="in_use",
                    unasked=True,
                )
        else:
            yield WorkersRemoved(
                cause=named.cause,
                ref=named.ordered.ref,
                owner=named.ordered.owner,
                attempt=named.ordered.attempt,
                workers=live,
                since=named.since,
                tries=named.tries + 1,
                claimant=named.ordered.claimant,
            )


def _stays(state: BridgeState, cluster: str, group: str, pod: str) -> bool:
    """Whether a worker exists and was not deleted: a worker that ends slowly does not count."""
    worker = state.workers_in(cluster, group).get(pod)
    return worker is not None and not worker.deleting


def _all_idle(state: BridgeState, cluster: str, workers: Mapping[str, tuple[Ref, ...]]) -> bool:
    """Whether every worker is idle, by the last report of the head."""
    idle = _unused(state, cluster)
    return all(pod.name in idle for pods in workers.values() for pod in pods)


def _leaving(state: BridgeState, cluster: str, workers: Mapping[str, tuple[Ref, ...]]) -> bool:
    """Whether one of the workers is still named to the operator, as the cluster was seen last."""
    known = state.clusters.get(cluster)
    groups = known.elastic.groups if known is not None else ()
    return any(pod.name in group.leaving for group in groups for pod in workers.get(group.name, ()))


def _unused(state: BridgeState, cluster: str) -> set[str]:
    """Names of the pods with an idle or left worker, by the last report of the head, and of pods without a node."""
    demand = state.said_by(cluster)
    idle = {report.pod for report in (*demand.idle, *demand.left)}
    return idle | {worker.ref.name for worker in state.workers_of(cluster) if worker.stuck_since}


def deadlines(state: BridgeState) -> Iterator[int]:
    """Log times (ms) of the next possible decisions."""
    for reclaim in state.reclaims.values():
        yield from (reclaim.since + READ_MS, reclaim.since + LAUNCH_MS, reclaim.since + GIVE_UP_MS)
    yield from (named.retry_at for named in state.named.values() if named.since)
    yield from (chosen.until for chosen in state.chosen.values())


def _choice(
    state: BridgeState, cluster: Cluster, grant: Grant, reclaim: Reclaim, left: Counts, going: list[ChosenWorker]
) -> WorkersChosen:
    bound = {worker.ref.uid: worker.bound for worker in state.workers_of(cluster.ref.uid)}
    busy = any(bound[worker.ref.uid] and not worker.idle for worker in going)
    wait = IDLE_DRAIN_MS if any(worker.idle for worker in going) else 0
    if busy:
        wait = span_or(cluster.elastic.drain, DRAIN_MS)
    return WorkersChosen(
        cause=reclaim.cause,
        ref=cluster.ref,
        owner=grant.ref,
        attempt=grant.attempt,
        workers=tuple(going),
        left=left,
        until=state.now + wait,
        claimant=reclaim.claimant,
    )


def _going(state: BridgeState, cluster: Cluster, group: ScaledGroup, keep: int) -> Iterator[ChosenWorker]:
    """The workers of a group that go: workers already leaving, then workers chosen before, then the smallest loss."""
    replicas = state.replicas_in(cluster.ref.uid, group.name)
    surplus = max(len(replicas) - keep, 0)
    before = state.chosen.get(cluster.ref.uid)
    known = {worker.ref.uid for worker in before.workers} if before is not None else set()
    demand = state.said_by(cluster.ref.uid)
    idle = {report.pod: report.since for report in demand.idle}
    pinned, holding = set(demand.pinned), set(demand.holding)

    def loss(members: list[Worker]) -> tuple[Any, ...]:
        names = [worker.ref.name for worker in members]
        is_idle = all(name in idle for name in names)
        return (
            not any(worker.deleting or worker.ref.name in group.leaving for worker in members),
            not any(worker.ref.uid in known for worker in members),
            all(worker.bound for worker in members),
            not is_idle,
            any(name in pinned for name in names) + any(name in holding for name in names),
            any(name in pinned for name in names),
            max(idle[name] for name in names) if is_idle else -max(_begun(worker) for worker in members),
            names,
        )

    for members in sorted(replicas.values(), key=loss)[:surplus]:
        for worker in sorted(members, key=lambda member: member.ref.name):
            yield ChosenWorker(worker.ref, group.name, worker.ref.name in idle)


def _begun(worker: Worker) -> int:
    """The earliest possible start of the worker's current work."""
    return worker.busy_since or worker.created


def _is_read(state: BridgeState, cluster: Cluster) -> bool:
    """Whether the head answers, so that the busy workers are known."""
    heard = state.heard.get(cluster.ref.uid)
    return heard is not None and heard.demand.trouble in ("", "stalled")


def _launching(state: BridgeState, cluster: Cluster, groups: Iterable[str]) -> bool:
    """Whether workers of these groups are starting."""
    launching = state.said_by(cluster.ref.uid).launching
    return any(
        len(state.workers_in(cluster.ref.uid, group.name)) < group.replicas * group.hosts or launching.get(group.name)
        for group in cluster.elastic.groups
        if group.name in groups
    )


def _kept(grant: Grant, reclaim: Reclaim, reason: Any) -> WorkersKept:
    unasked = reclaim.claimant is None
    return WorkersKept(cause=reclaim.cause, ref=grant.ref, attempt=grant.attempt, reason=reason, unasked=unasked)


# --- clusters of a fixed size -----------------------------------------------------------------------------------------


def surplus_of(state: BridgeState, cluster: Cluster, grant: Grant, order: Surplus) -> Lowered | None:
    """The workers beyond the grant of a cluster that scales itself, which cover the ordered amounts; None: no such
    workers.
    """
    rest, left, going = dict(order.amounts), dict[str, int](), list[ChosenWorker]()
    for group in reversed(cluster.elastic.groups):
        there = len(state.replicas_in(cluster.ref.uid, group.name))
        one = group.request
        needed = max((-(-amount // one[name]) for name, amount in rest.items() if one.get(name)), default=0)
        gone = min(there - grant.groups.get(group.name, 0), there - group.least, needed)
        if gone > 0:
            left[group.name] = there - gone
            going += _going(state, cluster, group, there - gone)
            add_into(rest, one, -gone)
    return _lowered(left, going) if left else None


def surplus_due(state: BridgeState) -> Iterator[Decision]:
    """The writes due; an order for a cluster without such workers has no write."""
    for owner, order in state.surplus.items():
        grant, cluster = state.grants.get(owner), state.clusters.get(state.cluster_of(owner))
        if grant is None or cluster is None or not cluster.fixed or cluster.ref.uid in state.gates:
            continue
        stay = _stay(state, cluster.ref.uid, order)
        if stay:
            yield GateSet(
                cause=order.cause,
                ref=cluster.ref,
                owner=grant.ref,
                attempt=grant.attempt,
                groups=(),
                most={},
                ceilings={},
                stay=stay,
            )


def _stay(state: BridgeState, cluster: str, order: Surplus) -> Counts:
    """{worker group: pods that stay}, for the groups that release pods."""
    rest, stay = dict(order.amounts), dict[str, int]()
    for group, pods in reversed([*state.workers.get(cluster, {}).items()]):
        live = sorted((pod for pod in pods.values() if not pod.deleting), key=lambda pod: (-pod.created, pod.ref.name))
        gone = 0
        for pod in live:
            if not any(amount > 0 and pod.request.get(name) for name, amount in rest.items()):
                break
            add_into(rest, pod.request, -1)
            gone += 1
        if gone:
            stay[group] = len(live) - gone
    return dict(sorted(stay.items()))
