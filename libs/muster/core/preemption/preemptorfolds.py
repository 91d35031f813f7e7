"""How the preemptor's own state changes, after the queues' folds of the same events."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from muster.core.preemption import claimants, growthclaims, makingroom
from muster.core.preemption.growthclaims import scales_itself
from muster.core.preemption.plans import enlist, weigh
from muster.core.preemption.preemptorstate import (
    HOUR_MS,
    MIN_PAUSE_MS,
    NEVER,
    Holding,
    PastEvictions,
    PreemptorState,
    RetryGate,
)
from muster.core.queueing.book import Shape
from muster.core.quota.accounting.suspending import stays_ms
from muster.core.quota.claims import is_down
from muster.core.quota.ledger.standalone import as_job
from muster.core.quota.service import gpu_time
from muster.core.stage import leave_out
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    PreemptionProposed,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    ReclaimDeferred,
    SuspensionOrdered,
    WorkloadAdopted,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GrowthGranted, GrowthWithdrawn, WorkersKept
from muster.events.facts import (
    ObjectUnreadable,
    PodGone,
    PodObserved,
    QueueGone,
    QueueObserved,
    Synced,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.reasons import DeferralReason, after_release
from muster.events.shares import SharesChanged
from muster.events.system import PlacementChosen
from muster.model.keys import Position

KEPT_MS = 600_000
"""The time in which a cluster that could not release workers is asked for none; meanwhile the cluster may be suspended
as a whole.
"""

NO_NODES_MS = 60_000
"""The time until the next look at a job without places on the nodes, if the candidates have changed."""


def workload_observed(state: PreemptorState, _at: Position, event: WorkloadObserved) -> None:
    uid = event.workload.ref.uid
    state.sight.observed(event)
    _delays(state, uid)
    if state.queues.workloads.get(uid) is event.workload:
        state.scaling.forget(uid)
        scales_itself(state, uid, event.workload.elastic)
    changed(state, uid)


def _delays(state: PreemptorState, uid: str) -> None:
    state.delayed.pop(uid, None)
    if state.delay_ms(uid):
        state.delayed[uid] = None


def synced(state: PreemptorState, _at: Position, _event: Synced) -> None:
    """The first listing of everything ends first sight; work found later started without an admission."""
    state.sight.synced(everything=state.synced)


def unreadable(state: PreemptorState, _at: Position, event: ObjectUnreadable) -> None:
    """An unreadable workload may still run, and cannot be suspended: the state of its controller is unknown."""
    _delays(state, event.ref.uid)
    changed(state, event.ref.uid)
    state.gates.pop(event.ref.uid, None)
    state.open.pop(event.ref.uid, None)


def stirred(state: PreemptorState) -> None:
    """Look again at the queues touched by a commit."""
    for queue in state.queues.book.stirred:
        weigh(state, queue)
    claimants.settle_near(state.near, state.queues, state.queues.book.stirred)
    state.queues.book.stirred.clear()


def pod_observed(state: PreemptorState, _at: Position, event: PodObserved) -> None:
    """A pod without an owner and with a node may be charged by itself, and leave for others."""
    pod = event.pod
    if not pod.owner_uid and pod.node and not pod.over:
        state.lone[pod.ref.uid] = as_job(pod)
        changed(state, pod.ref.uid)
    else:
        _no_lone_pod(state, pod.ref.uid)


def pod_gone(state: PreemptorState, _at: Position, event: PodGone) -> None:
    _no_lone_pod(state, event.ref.uid)


def _no_lone_pod(state: PreemptorState, uid: str) -> None:
    if state.lone.pop(uid, None) is not None:
        changed(state, uid)
        leave_out(uid, state.evictions, state.stays, state.failed)


def workload_gone(state: PreemptorState, _at: Position, event: WorkloadGone) -> None:
    _delays(state, event.ref.uid)
    changed(state, event.ref.uid)
    state.gates.pop(event.ref.uid, None)
    state.open.pop(event.ref.uid, None)
    if event.ref.uid not in state.queues.workloads:
        leave_out(event.ref.uid, state.idle, state.evictions, state.sight.found)
        state.passing.left(event.ref.uid)
        state.service.forget(event.ref.uid)
        state.stays.pop(event.ref.uid, None)
        state.failed.pop(event.ref.uid, None)


def charged(state: PreemptorState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    if isinstance(event, WorkloadAdopted):
        state.sight.adopted(event)
    leave_out(uid, state.gates, state.stays, state.failed)
    holding, workload = Holding(event.attempt), state.queues.workloads.get(uid)
    if workload is not None:
        holding.groups, holding.fixed = state.scaling.granted(workload) or None, workload.fixed_pods
    state.charged[uid] = holding
    changed(state, uid)
    _graces_over(state)
    state.supply += 1


def _graces_over(state: PreemptorState) -> None:
    """A shape not owed quota now, or without waiting jobs, has a new grace the next time."""
    asking = {growthclaims.key_of(uid) for uid in state.growing}
    for key in [shape_key for shape_key in state.owed_since if shape_key not in asking]:
        shape = state.queues.book.shapes.get(key)
        if shape is None or not shape.waiting or not _may_be_owed(state, shape):
            del state.owed_since[key]


def _may_be_owed(state: PreemptorState, shape: Shape) -> bool:
    """Whether the shape stays within a guarantee of its queue. In a KAI queue always true: shares move."""
    ledger = state.queues.ledger
    return ledger.by_shares(shape.queue) or ledger.owed(shape.queue, shape.demand)


def moved(state: PreemptorState, _at: Position, event: QuotaMoved) -> None:
    """The workload is a candidate of another leaf from now on."""
    enlist(state, event.ref.uid)
    state.supply += 1


def admitted(state: PreemptorState, at: Position, event: GangAdmitted) -> None:
    if event.ref.uid in state.charged:
        state.ends.decided[event.ref.uid] = at.at
        job = state.queues.jobs.get(event.ref.uid)
        if job is not None:  # None where it ran before it was seen.
            state.passing.started(job, state.queues, at.at)


def effect_applied(state: PreemptorState, at: Position, event: EffectApplied) -> None:
    if event.action in ("resume", "suspend") and event.ref.uid in state.charged:
        state.ends.written(event.ref.uid, at.at, suspends=event.action == "suspend")
    changed(state, event.ref.uid)


def effect_failed(state: PreemptorState, at: Position, event: EffectFailed) -> None:
    state.ends.decided.pop(event.ref.uid, None)
    if event.action == "suspend":
        _runs_on(state, event.ref.uid, at)


def victim_stays(state: PreemptorState, at: Position, event: VictimStays) -> None:
    """Other jobs may be suspended instead; a victim that still leaves is not asked for again."""
    state.supply += 1
    makingroom.awaited_in_vain(state, event.ref.uid)
    if event.reason == "runs_again":
        _runs_on(state, event.ref.uid, at)
    elif event.reason == "not_ended" and event.ref.uid in state.started:
        state.leaving.pop(event.ref.uid, None)
        changed(state, event.ref.uid)


def _runs_on(state: PreemptorState, uid: str, at: Position) -> None:
    """The workload could not be suspended: no new attempt for a while, and other jobs may be victims."""
    makingroom.awaited_in_vain(state, uid)
    times = 1
    if uid in state.leaving:  # A late or second failure was counted at the first.
        del state.leaving[uid]
        times = state.failed[uid] = state.failed.get(uid, 0) + 1
    state.stays[uid] = max(at.at + stays_ms(times), state.stays.get(uid, 0))
    changed(state, uid)


def charge_changed(
    state: PreemptorState, _at: Position, event: ChargeChanged | GrowthGranted | GrowthWithdrawn
) -> None:
    """More, or less, could be taken back."""
    state.supply += 1
    holding = state.charged.get(event.ref.uid)
    if isinstance(event, ChargeChanged):
        if holding is not None and holding.fixed and event.fixed:
            holding.fixed = event.fixed
    elif holding is not None:
        holding.groups = event.groups
        if holding.left is not None and is_down(event.groups, holding.left):
            holding.left = None
    changed(state, event.ref.uid)


def released(state: PreemptorState, at: Position, event: QuotaReleased) -> None:
    makingroom.left(state, event.ref.uid, at.at)
    state.charged.pop(event.ref.uid, None)
    state.leaving.pop(event.ref.uid, None)
    started = state.started.get(event.ref.uid)
    state.ends.released(event, started.since if started is not None else None, at.at)
    if started is not None and event.ref.uid in state.queues.workloads:
        state.service.ran(event.ref.uid, gpu_time(event.request, started.kept - started.since))
    if started is not None and after_release(event.reason) != "moved":
        state.passing.left(event.ref.uid)
    if after_release(event.reason) == "evicted" and event.ref.uid in state.queues.workloads:
        state.evictions[event.ref.uid] = PastEvictions(state.suffered(event.ref.uid).times + 1, at.at)
    changed(state, event.ref.uid)
    state.supply += 1


def queued(state: PreemptorState, at: Position, event: WorkloadQueued) -> None:
    """A new attempt asks for other amounts, or elsewhere: gates of the last attempt are void."""
    state.gates.pop(event.ref.uid, None)
    if event.ref.uid in state.queues.workloads:
        state.passing.comes(event.ref.uid, event.queue, at.at)


def changed(state: PreemptorState, uid: str) -> None:
    """Enlist the workload again; the supply changes where its run does."""
    before = state.started.get(uid)
    was = (before.listed, before.run) if before is not None else None
    enlist(state, uid)
    after = state.started.get(uid)
    if before is None and after is None:
        return
    if was != ((after.listed, after.run) if after is not None else None):
        state.supply += 1


def trees_changed(state: PreemptorState, _at: Position, _event: QuotaTreeAccepted | QuotaTreeRemoved) -> None:
    _rules_changed(state)


def _rules_changed(state: PreemptorState) -> None:
    """A new tree, or another pause: everything is looked at again."""
    state.supply += 1
    state.gates.clear()
    state.owed_since.clear()
    for uid in list(state.started):
        enlist(state, uid)


def shares_changed(state: PreemptorState, _at: Position, event: SharesChanged) -> None:
    """A refused job may be within its share now, although no quota became free."""
    if event.usage:
        state.supply += 1


def queue_changed(state: PreemptorState, _at: Position, _event: QueueObserved | QueueGone) -> None:
    """A Queue object was seen, or is gone: the pauses may have changed."""
    pauses = {path: parts for path, parts in state.queues.paused.items() if parts}
    if pauses != state.shown_pauses:
        state.shown_pauses = pauses
        _rules_changed(state)


def bar(state: PreemptorState, uid: str, gate: RetryGate) -> None:
    """Shut a gate for a claimant, at most until its grace or its own delay ends: from then on the job may claim further
    quota. A job without a workload needs no gate.
    """
    if uid in state.queues.workloads:
        job = growthclaims.job_of(state, uid) or state.queues.jobs.get(uid)
        may = state.may_claim_at(job) if job is not None else 0
        if may > state.now:
            gate = replace(gate, until=min(gate.until or may, may))
        state.gates[uid] = gate


def proposed(state: PreemptorState, _at: Position, event: PreemptionProposed) -> None:
    bar(state, event.ref.uid, RetryGate(event.supply))
    if not event.withheld:
        makingroom.proposed(state, event)
        state.open[event.ref.uid] = RetryGate(event.supply, nodes=event.nodes)


def deferred(state: PreemptorState, at: Position, event: ReclaimDeferred) -> None:
    if event.reason == "grace":
        job = state.queues.jobs.get(event.ref.uid)
        if event.growth is not None:
            state.owed_since[growthclaims.key_of(event.ref.uid)] = at.at
        elif job is not None:
            state.owed_since[job.shape] = at.at
        return
    if growthclaims.passed_over(state, event):
        return
    rest = at.at + _rests_ms(event.reason, placed=event.nodes >= 0)
    gate = RetryGate(event.supply, event.until, event.nodes, min(rest, event.until or rest))
    if event.reason == "nodes_stay":
        makingroom.searched(state, event.ref.uid, gate)
        return
    bar(state, event.ref.uid, gate)


def _rests_ms(reason: DeferralReason, *, placed: bool) -> int:
    """How long (ms) a claimant rests. In a busy queue the running work of lower priority changes often. ``placed``: the
    plan was tried on nodes. Without a job to evict no node was looked at.
    """
    if placed and reason != "nothing_evictable":
        return NO_NODES_MS
    match reason:
        case "lower_stays" | "lower_too_young" | "lower_paused":
            return MIN_PAUSE_MS
        case "nothing_evictable" | "no_place" | "search_ended" | "too_young" | "evictions_paused" | "grace":
            return 0
        case "nodes_stay":
            return 0
    assert_never(reason)


def plan_stale(state: PreemptorState, at: Position, event: PlanStale) -> None:
    """The claimant asks again after a change since the proposal: the nodes of the plan may differ by the time of this
    event.
    """
    proposed = state.open.pop(event.ref.uid, state.shut(0))
    makingroom.stale(state, event.ref.uid, replace(proposed, rest=at.at + NO_NODES_MS))


def ordered(state: PreemptorState, at: Position, event: EvictionOrdered | ClaimOpened) -> None:
    state.open.pop(event.ref.uid, None)
    makingroom.ordered(state, event, at.at)
    if isinstance(event, ClaimOpened):
        state.gates.pop(event.ref.uid, None)  # The owed quota is a separate question, not asked yet.
        return
    if event.moves:
        state.moved = {uid: then for uid, then in state.moved.items() if then > at.at - HOUR_MS}
        state.moved |= dict.fromkeys((event.ref.uid, *(move.uid for move in event.moves)), at.at)
    for victim in event.victims:
        if victim.ref.uid in state.queues.ledger.charges:
            state.leaving[victim.ref.uid] = None
            if not victim.ends_by:
                state.ends.decided[victim.ref.uid] = at.at
            elif victim.ref.uid in state.started:
                state.ends.left[victim.ref.uid] = None
            if event.kind == "service":
                state.service.gave_way(victim.ref.uid)
            changed(state, victim.ref.uid)
    for part in event.partial:
        holding = state.charged.get(part.ref.uid)
        if holding is not None and holding.groups is not None:
            holding.left = part.left
            changed(state, part.ref.uid)


def placement_chosen(state: PreemptorState, _at: Position, event: PlacementChosen) -> None:
    state.moves = event.moves if event.strategy is not None else 0


def workers_kept(state: PreemptorState, at: Position, event: WorkersKept) -> None:
    """The cluster releases no workers; after a while the cluster may be suspended as a whole. Workers that the cluster
    was about to release unasked may be taken again.
    """
    holding = state.charged.get(event.ref.uid)
    if event.unasked:
        state.supply += 1
    elif holding is not None and holding.left is not None:
        holding.left, holding.kept_until = None, at.at + KEPT_MS
        changed(state, event.ref.uid)
        state.supply += 1


def suspension_ordered(state: PreemptorState, _at: Position, event: SuspensionOrdered) -> None:
    if event.ref.uid in state.queues.ledger.charges:
        state.leaving[event.ref.uid] = None
        changed(state, event.ref.uid)


def claim_ended(state: PreemptorState, at: Position, event: ClaimEnded) -> None:
    """The held quota is free for other plans. After an expired claim the claimant gets no new plan for ``claim_ms``,
    and for ``MIN_PAUSE_MS`` at least; after this pause, victims that could not leave before may be tried again.
    """
    state.supply += 1
    if event.outcome == "expired":
        job = state.queues.jobs.get(event.ref.uid)
        pause = max(state.queues.ledger.rules_of(job.queue if job is not None else "").claim_ms, MIN_PAUSE_MS)
        bar(state, event.ref.uid, RetryGate(NEVER, rest=at.at + pause))
