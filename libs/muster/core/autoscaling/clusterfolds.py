"""The bridge's Ray clusters: one function per event, for objects, pods and decisions.

Self-scaling clusters, live head and worker pods, wishes, grants, and the table of clusters with a decision due are kept
consistent here.
"""

from __future__ import annotations

from muster.core.autoscaling import giveback, resizing, upgrades, watchdog
from muster.core.autoscaling.bridgestate import (
    BridgeState,
    Cluster,
    Grant,
    GrowthAsked,
    HeadSaid,
    Named,
    RayWorkload,
    Reclaim,
    Surplus,
    Worker,
    WorkersRefused,
)
from muster.core.autoscaling.gate import next_of, unused
from muster.core.autoscaling.wish import EXPLICIT, Wish, wish_of
from muster.core.objects.meta import RAY_GROUP, RAY_NODE_TYPE, RAY_WORKER, is_ray_head
from muster.core.quota.claims import is_down
from muster.core.stage import leave_out, mark
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.decisions import EvictionOrdered, QuotaReleased, QuotaReserved, WorkloadAdopted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import (
    GateSet,
    GrowthDenied,
    GrowthGranted,
    GrowthRequested,
    GrowthWithdrawn,
    SurplusOrdered,
    WorkersChosen,
    WorkersKept,
    WorkersRemoved,
)
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectGone,
    PodGone,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import PENDING, RAY_KINDS, Counts, Elastic, granted_before
from muster.model.keys import Position, Ref
from muster.model.resources import add_into
from muster.model.workload import PodState

# --- upkeep -----------------------------------------------------------------------------------------------------------


def seen(
    state: BridgeState, at: Position, ref: Ref, owner: str, rv: int, elastic: Elastic | None, *, runs: bool
) -> None:
    """``elastic``: the scaling rules of the cluster; None for a cluster of a fixed size."""
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
    """A cluster is gone, or has changed its role. Another cluster of the same owner is checked next."""
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
    """The wish of a cluster from the latest demand; the demand of an older attempt does not count."""
    grant, known = state.grants.get(cluster.owner), state.heard.get(cluster.ref.uid)
    of_now = known is not None and (grant is None or known.attempt == grant.attempt)
    demand = known.demand if known is not None and of_now else None
    granted = grant.groups if grant is not None else None
    waits = {gang.name for gang in demand.placement_groups} | {EXPLICIT} if demand is not None else set()
    cluster.refused = tuple(name for name in cluster.refused if name in waits)
    large = resizing.large(state, cluster)
    cluster.wish = wish_of(cluster.elastic, demand, granted, large, cluster.refused)
    cluster.closed, stuck = (), watchdog.barren(state, cluster)
    if stuck:
        other = wish_of(cluster.elastic, demand, granted, large, cluster.refused, stuck)
        if _elsewhere(other, stuck) > _elsewhere(cluster.wish, stuck):
            cluster.wish, cluster.closed = other, tuple(stuck)


def _elsewhere(wish: Wish, closed: Counts) -> int:
    """Replicas of other groups."""
    return sum(count for name, count in wish.in_all.items() if name not in closed)


def recheck(state: BridgeState, uid: str) -> None:
    """Bring ``due`` and ``unused_since`` in line with the state."""
    cluster = state.clusters.get(uid)
    if cluster is None:
        state.due.pop(uid, None)
        return
    watchdog.look(state, cluster)
    grant = state.grants.get(cluster.owner)
    idle = grant is not None and not cluster.fixed and unused(state, cluster, grant)
    cluster.unused_since = (cluster.unused_since or state.now) if idle else 0
    mark(state.due, uid, next_of(state, cluster) is not None)


# --- clusters ---------------------------------------------------------------------------------------------------------


REST_MS = 5_000
"""Pause after a failed write to a cluster."""
REFUSED_HOLD_MS = 60_000
"""Pause before growth is requested again whose workers were refused; doubled each time."""
LONGEST_HOLD = 5
"""Most doublings of the pause."""


def workload_observed(state: BridgeState, at: Position, event: WorkloadObserved) -> None:
    workload = event.workload
    uid, elastic = workload.ref.uid, workload.elastic
    if workload.ref.kind not in RAY_KINDS:
        return
    job = state.jobs.setdefault(uid, RayWorkload())
    runs = not workload.suspended and workload.phase in ("starting", "running")
    job.whole, job.runs = upgrades.whole_of(workload), runs
    if (job.through, job.outgoing) != (workload.child, workload.outgoing):
        job.through, job.outgoing = workload.child, workload.outgoing
        for cluster in state.families.get(uid, ()):
            recheck(state, cluster)
    started, job.starting = job.starting, workload.phase == "starting"
    if started and not job.starting:
        recheck(state, state.cluster_of(uid))
    job.sizes = elastic.sizes if elastic is not None else {}
    job.fixed = workload.fixed_pods if elastic is None else {}
    if elastic is None:
        _fixed(state, at, workload.ref, uid, workload.rv, runs=runs and workload.ref.kind == "RayCluster")
        return
    _scales_itself(state, uid, elastic)
    if workload.ref.kind == "RayCluster":
        seen(state, at, workload.ref, uid, workload.rv, elastic, runs=runs)


def _scales_itself(state: BridgeState, owner: str, elastic: Elastic) -> None:
    """A self-scaling cluster with a charge for a fixed size is granted this size; the cluster asks for any growth."""
    grant = state.grants.get(owner)
    if grant is not None and not grant.groups:
        grant.groups = granted_before(grant.fixed, elastic)


def workload_gone(state: BridgeState, _at: Position, event: WorkloadGone) -> None:
    state.jobs.pop(event.ref.uid, None)
    _gone(state, event, child=False)


def child_observed(state: BridgeState, at: Position, event: ChildObserved) -> None:
    child = event.child
    if child.ref.kind != "RayCluster" or not child.owner_uid:
        return
    if child.owner_kind == "RayService":
        upgrades.cluster_observed(state, at, event)
        recheck(state, state.cluster_of(child.owner_uid))  # The serving cluster asks for the new one.
    if child.elastic is None:
        _fixed(state, at, child.ref, child.owner_uid, child.rv, runs=bool(child.asks))
        return
    _scales_itself(state, child.owner_uid, child.elastic)
    seen(state, at, child.ref, child.owner_uid, child.rv, child.elastic, runs=True)


def _fixed(state: BridgeState, at: Position, ref: Ref, owner: str, rv: int, *, runs: bool) -> None:
    """A cluster of a fixed size is known while the cluster runs: the head may be lost."""
    if runs:
        seen(state, at, ref, owner, rv, None, runs=True)
    elif ref.uid in state.clusters:
        forget(state, ref.uid)


def child_gone(state: BridgeState, at: Position, event: ChildGone) -> None:
    upgrades.cluster_gone(state, at, event)
    _gone(state, event, child=True)
    if event.ref.uid not in state.clusters:
        state.heard.pop(event.ref.uid, None)


def _gone(state: BridgeState, event: ObjectGone, *, child: bool) -> None:
    """Forget a cluster by its last known role; an object with a changed role is another cluster by now."""
    cluster = state.clusters.get(event.ref.uid)
    if cluster is not None and (cluster.owner != event.ref.uid) is child:
        forget(state, event.ref.uid)


def heard(state: BridgeState, at: Position, event: RayDemandObserved) -> None:
    uid, known = event.ref.uid, state.heard.get(event.ref.uid)
    if uid not in state.clusters and (uid in state.seen.ended or uid in state.children_seen.ended):
        return
    if known is None or (event.attempt, event.read_at) > (known.attempt, known.read_at):
        if known is not None:
            begun = {report.pod for report in known.demand.idle} - {report.pod for report in event.demand.idle}
            for worker in state.workers_of(uid):
                if worker.ref.name in begun:
                    worker.busy_since = event.read_at
        state.heard[uid] = HeadSaid(event.attempt, event.read_at, event.demand)
        cluster = state.clusters.get(uid)
        if cluster is not None:
            cluster.cause = Cause(at.seq, at.item)
            wishes(state, cluster)
        recheck(state, uid)


# --- what is granted ------------------------------------------------------------------------------------------------


def charged(state: BridgeState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    if event.ref.kind in RAY_KINDS:
        job = state.jobs.get(uid) or RayWorkload()
        state.grants[uid] = Grant(event.ref, event.attempt, dict(job.sizes), fixed=job.fixed)
        cluster = state.clusters.get(state.cluster_of(uid))
        if cluster is not None and not cluster.fixed:
            _scales_itself(state, uid, cluster.elastic)
        wishes_of_owner(state, uid)


def released(state: BridgeState, _at: Position, event: QuotaReleased) -> None:
    grant = state.grants.get(event.ref.uid)
    if grant is not None and grant.attempt <= event.attempt:
        del state.grants[event.ref.uid]
        leave_out(event.ref.uid, state.reclaims, state.alarms, state.named)
        leave_out(event.ref.uid, state.upgrades, state.surplus, state.refused)
        for cluster in {**state.services.get(event.ref.uid, {}), **state.families.get(event.ref.uid, {})}:
            state.gates.pop(cluster, None)  # The actuator carries out none of them any more.
            state.chosen.pop(cluster, None)
            state.growing.pop(cluster, None)
            recheck(state, cluster)


def charge_fell(state: BridgeState, _at: Position, event: ChargeChanged) -> None:
    """A cluster of a fixed size was scaled down by hand: the rest is granted."""
    grant = state.grants.get(event.ref.uid)
    if grant is not None and grant.attempt == event.attempt and not grant.groups:
        grant.fixed = dict(event.fixed) or grant.fixed


def granted(state: BridgeState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
    grant = state.grants.get(event.ref.uid)
    if grant is None or grant.attempt != event.attempt:
        return
    grant.groups = dict(event.groups)
    if isinstance(event, GrowthGranted):
        upgrades.taken_over(state, event)
    if isinstance(event, GrowthWithdrawn):
        grant.giving, grant.giver = {}, ""
        state.named.pop(event.ref.uid, None)
    reclaim = state.reclaims.get(event.ref.uid)
    if reclaim is not None and is_down(grant.groups, reclaim.left):
        del state.reclaims[event.ref.uid]
        state.chosen.pop(event.cluster.uid, None)
    cluster = state.clusters.get(event.cluster.uid)
    if cluster is not None:
        cluster.cause, cluster.unused_since = Cause(at.seq, at.item), 0
        wishes(state, cluster)
    if not _is_part(state.growing.get(event.cluster.uid), event):
        state.growing.pop(event.cluster.uid, None)
    recheck(state, event.cluster.uid)


def _is_part(asked: GrowthAsked | None, event: GrowthGranted | GrowthWithdrawn) -> bool:
    """Whether a part of a request is granted: the cluster then asks again for the needed rest, if any."""
    if asked is None or not isinstance(event, GrowthGranted):
        return False
    wanted: Counts = {}
    for unit in asked.units:
        add_into(wanted, unit.groups, unit.times)
    return wanted != event.added


def denied(state: BridgeState, _at: Position, event: GrowthDenied) -> None:
    """Refused placement groups come last from now on, so that no other demand waits for these groups."""
    cluster, grant = state.clusters.get(event.cluster.uid), state.grants.get(event.ref.uid)
    if grant is not None and any(PENDING in refusal.groups for refusal in event.refusals):
        pending = state.pending_of(event.ref.uid)
        grant.waits = pending.ref.name if pending is not None else ""
    if cluster is None or grant is None or grant.attempt != event.attempt or event.cluster.uid not in state.growing:
        return
    refused = tuple(sorted({*cluster.refused, *cluster.wish.gangs}))
    if refused != cluster.refused:
        cluster.refused = refused
        wishes(state, cluster)
        recheck(state, cluster.ref.uid)


def requested(state: BridgeState, _at: Position, event: GrowthRequested) -> None:
    grant = state.grants.get(event.ref.uid)
    asked = GrowthAsked(event.attempt, event.granted, event.units, event.pending, event.cluster)
    if grant is not None and event.ref.uid in state.services and not state.asks_by_itself(event.ref.uid):
        state.upgrades.pop(event.ref.uid, None)
        if event.units and grant.attempt == event.attempt:
            state.upgrades[event.ref.uid] = asked
        return
    if event.units and grant is not None and grant.attempt == event.attempt and event.cluster.uid in state.clusters:
        state.growing[event.cluster.uid] = asked
        grant.grown |= {name: cost for name, cost in event.each.items() if not cost.hosts}
    else:
        state.growing.pop(event.cluster.uid, None)
    recheck(state, event.cluster.uid)


def gate_set(state: BridgeState, at: Position, event: GateSet) -> None:
    grant = state.grants.get(event.owner.uid)
    if event.stay or (event.workers and not event.granted):
        state.surplus.pop(event.owner.uid, None)
    service = state.services.get(event.owner.uid, {}).get(event.ref.uid) if event.suspend is not None else None
    if (service is None and event.ref.uid not in state.clusters) or grant is None or grant.attempt != event.attempt:
        return
    state.gates[event.ref.uid] = Cause(at.seq, at.item)
    if service is not None and event.suspend is not None:
        upgrades.ordered(service, at.at, suspend=event.suspend)
    if service is not None or event.stay:
        return
    if event.workers or event.claimant is not None:
        state.chosen.pop(event.ref.uid, None)
    if event.workers:
        state.named[event.owner.uid] = Named(event, state.gates[event.ref.uid])
    grant.giving, grant.giver = dict(event.granted), event.ref.uid
    refused = state.refused.get(event.owner.uid)
    if event.granted and refused is not None and refused.since:
        refused.since, refused.until = 0, at.at + (REFUSED_HOLD_MS << min(refused.tries, LONGEST_HOLD))
        refused.tries += 1
    recheck(state, event.ref.uid)


def workers_removed(state: BridgeState, at: Position, event: WorkersRemoved) -> None:
    named = state.named.get(event.owner.uid)
    if named is not None and named.ordered.attempt == event.attempt:
        named.tries, named.retry_at = event.tries, at.at + giveback.late_ms(event.tries)


def reclaim_ordered(state: BridgeState, at: Position, event: EvictionOrdered) -> None:
    """Clusters are to release workers for a job."""
    for part in event.partial:
        grant = state.grants.get(part.ref.uid)
        if grant is not None and grant.attempt == part.attempt:
            left, cause = dict(part.left), Cause(at.seq, at.item)
            state.reclaims[part.ref.uid] = Reclaim(event.ref, part.attempt, left, cause, at.at)
            recheck(state, state.cluster_of(part.ref.uid))


def surplus_ordered(state: BridgeState, at: Position, event: SurplusOrdered) -> None:
    """A cluster is to release workers beyond its grant."""
    grant = state.grants.get(event.ref.uid)
    if grant is not None and grant.attempt == event.attempt:
        state.surplus[event.ref.uid] = Surplus(event.attempt, event.surplus, Cause(at.seq, at.item))
        recheck(state, state.cluster_of(event.ref.uid))


def chosen(state: BridgeState, at: Position, event: WorkersChosen) -> None:
    """Note the chosen workers, unless the cluster has released enough by now, or is gone."""
    uid, grant = event.owner.uid, state.grants.get(event.owner.uid)
    if event.ref.uid not in state.clusters or grant is None or grant.attempt != event.attempt:
        return
    if event.claimant is None and uid not in state.reclaims:
        state.reclaims[uid] = Reclaim(None, event.attempt, event.left, Cause(at.seq, at.item), at.at)
    reclaim = state.reclaims.get(uid)
    if reclaim is not None and (reclaim.attempt, reclaim.claimant) == (event.attempt, event.claimant):
        state.chosen[event.ref.uid] = event
        recheck(state, event.ref.uid)


def kept(state: BridgeState, _at: Position, event: WorkersKept) -> None:
    reclaim = state.reclaims.get(event.ref.uid)
    if reclaim is not None and (reclaim.attempt, reclaim.claimant is None) == (event.attempt, event.unasked):
        del state.reclaims[event.ref.uid]
        cluster = state.cluster_of(event.ref.uid)
        state.chosen.pop(cluster, None)
        recheck(state, cluster)
    named, grant = state.named.get(event.ref.uid), state.grants.get(event.ref.uid)
    if named is None or grant is None or grant.attempt != event.attempt:
        return
    if event.unasked and named.ordered.claimant is None:  # They had been named to their operator.
        del state.named[event.ref.uid]
        grant.giving, grant.giver = {}, ""
        recheck(state, named.ordered.ref.uid)


def alarm_raised(state: BridgeState, at: Position, event: AlarmRaised) -> None:
    grant, cluster = state.grants.get(event.ref.uid), state.clusters.get(event.cluster.uid)
    if grant is None or grant.attempt != event.attempt:
        return
    state.alarms[event.ref.uid] = event
    if cluster is not None:
        cluster.cause = Cause(at.seq, at.item)
        if event.reason == "not_growing":
            cluster.watch.tries = event.tries
        if event.reason == "no_nodes":
            cluster.watch.barren = event.tries
    wishes_of_owner(state, event.ref.uid)
    recheck(state, state.cluster_of(event.ref.uid))


def alarm_cleared(state: BridgeState, _at: Position, event: AlarmCleared) -> None:
    known = state.alarms.get(event.ref.uid)
    if known is not None and known.attempt == event.attempt:
        del state.alarms[event.ref.uid]
        wishes_of_owner(state, event.ref.uid)
        recheck(state, state.cluster_of(event.ref.uid))


def _deletion_answered(state: BridgeState, at: Position, event: EffectApplied | EffectFailed) -> None:
    for owner, named in state.named.items():
        if named.cause == event.cause:
            if isinstance(event, EffectApplied):
                named.cause, named.since = Cause(at.seq, at.item), at.at
                named.retry_at = at.at + giveback.late_ms(0)
            else:
                del state.named[owner]
            return


def written(state: BridgeState, at: Position, event: EffectApplied | EffectFailed) -> None:
    """A write to a cluster is done, or cannot be; or the Events of its workers are read."""
    if event.action == "read_refusal" and isinstance(event, EffectApplied):
        _looked(state, event)
    if event.action != "gate" or state.gates.get(event.ref.uid) != event.cause:
        return
    del state.gates[event.ref.uid]
    _deletion_answered(state, at, event)
    cluster = state.clusters.get(event.ref.uid)
    if cluster is None:
        return
    if isinstance(event, EffectApplied):
        refused = state.refused.get(cluster.owner)
        cluster.written_rv = event.rv
        if refused is None or not refused.since:  # A write of others' values makes no refused worker.
            cluster.unused_since = 0
    else:
        if cluster.changed < event.cause.seq:  # Else another write came before it: what is due now is due at once.
            cluster.rests_until = at.at + REST_MS
        grant = state.grants.get(cluster.owner)
        if grant is not None and grant.giver == event.ref.uid:
            grant.giving, grant.giver = {}, ""
    recheck(state, event.ref.uid)


def _looked(state: BridgeState, event: EffectApplied) -> None:
    """The API server refuses pods of a workload, or refuses them no more."""
    owner, grant = event.ref.uid, state.grants.get(event.ref.uid)
    if grant is None or grant.attempt != event.attempt:
        return
    if event.problem is None:
        state.refused.pop(owner, None)
    else:
        refused = state.refused.setdefault(owner, WorkersRefused())
        refused.since = refused.since or state.now
    recheck(state, state.cluster_of(owner))


# --- pods of Ray clusters ---------------------------------------------------------------------------------------------


REPLICA = "ray.io/worker-group-replica-name"
"""Label shared by the hosts of one replica."""


def pod_observed(state: BridgeState, at: Position, event: PodObserved) -> None:
    pod = event.pod
    if is_ray_head(pod.labels) and pod.owner_uid:
        _head_over(state, pod.ref.uid)
        if not pod.over:
            state.head_of[pod.ref.uid] = pod.owner_uid
            state.heads.setdefault(pod.owner_uid, {})[pod.ref.uid] = pod.running
        recheck(state, pod.owner_uid)
    if pod.labels.get(RAY_NODE_TYPE) != RAY_WORKER or not pod.owner_uid:
        return
    if pod.over:
        _worker_over(state, pod.ref.uid)
    elif pod.ref.uid not in state.worker_of:
        state.worker_of[pod.ref.uid] = pod.owner_uid
        groups = state.workers.setdefault(pod.owner_uid, {})
        replica = pod.labels.get(REPLICA, pod.ref.name)
        worker = Worker(pod.ref, replica, bool(pod.node), pod.created, pod.request, pod.deleting)
        worker.stuck_since = at.at if _stuck(pod) else 0
        groups.setdefault(pod.labels.get(RAY_GROUP, ""), {})[pod.ref.uid] = worker
        recheck(state, pod.owner_uid)
    else:
        for workers in state.workers[state.worker_of[pod.ref.uid]].values():
            if pod.ref.uid in workers:
                _worker_changed(state, at, workers[pod.ref.uid], pod)


def _stuck(pod: PodState) -> bool:
    """Whether the scheduler reports that no node takes the pod."""
    return not pod.node and not pod.deleting and pod.trouble is not None and pod.trouble.code == "Unschedulable"


def _worker_changed(state: BridgeState, at: Position, worker: Worker, pod: PodState) -> None:
    cluster = state.clusters.get(state.worker_of[pod.ref.uid])
    if cluster is not None and pod.node and not worker.bound:
        cluster.watch.barren = 0
    worker.bound, worker.deleting = worker.bound or bool(pod.node), pod.deleting
    since = (worker.stuck_since or at.at) if _stuck(pod) else 0
    if since != worker.stuck_since:
        worker.stuck_since = since
        recheck(state, state.worker_of[pod.ref.uid])
    if worker.request != pod.request:  # It was grown in place, or made smaller.
        worker.request = pod.request
        if cluster is not None:
            wishes(state, cluster)
            recheck(state, cluster.ref.uid)


def pod_gone(state: BridgeState, _at: Position, event: PodGone) -> None:
    uid = event.ref.uid
    cluster = state.head_of.get(uid)
    if cluster is not None:
        _head_over(state, uid)
        recheck(state, cluster)
    _worker_over(state, uid)


def _head_over(state: BridgeState, uid: str) -> None:
    cluster = state.head_of.pop(uid, None)
    if cluster is not None:
        del state.heads[cluster][uid]
        if not state.heads[cluster]:
            del state.heads[cluster]


def _worker_over(state: BridgeState, uid: str) -> None:
    cluster = state.worker_of.pop(uid, None)
    if cluster is not None:
        groups = state.workers[cluster]
        for group in [group for group, pods in groups.items() if pods.pop(uid, None) is not None and not pods]:
            del groups[group]
        if not groups:
            del state.workers[cluster]
        recheck(state, cluster)
