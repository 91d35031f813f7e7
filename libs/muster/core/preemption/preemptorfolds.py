"""How the preemptor's own state changes, after the queues' folds of the same events."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from muster.core.preemption import growthclaims, makingroom
from muster.core.preemption.growthclaims import scales_itself
from muster.core.preemption.plans import enlist, weigh
from muster.core.preemption.preemptorstate import (
    HOUR_MS,
    MAX_REMEMBERED,
    MIN_PAUSE_MS,
    NEVER,
    PreemptorState,
    RetryGate,
)
from muster.core.queueing.book import Shape
from muster.core.quota.accounting.suspending import stays_ms
from muster.core.quota.claims import is_down
from muster.core.quota.service import gpu_time
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, VictimStays, rests_on_nodes
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
    QueueGone,
    QueueObserved,
    Synced,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.reasons import DeferralReason, after_release
from muster.events.shares import SharesChanged
from muster.events.system import PlacementChosen
from muster.model.keys import Position, root_of

KEPT_MS = 600_000
"""How long a cluster that could not give workers is not asked for some again; it may be suspended as a whole."""

NO_NODES_MS = 60_000
"""A job that would find no place on the nodes is looked at again after this, if the candidates have changed."""


def workload_observed(state: PreemptorState, _at: Position, event: WorkloadObserved) -> None:
    uid = event.workload.ref.uid
    if not state.sighted and not event.workload.intent:
        state.found[uid] = None
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
    state.sighted = state.sighted or state.synced


def unreadable(state: PreemptorState, _at: Position, event: ObjectUnreadable) -> None:
    """What cannot be read any more may still run, and cannot be suspended: its controller's word is unknown."""
    _delays(state, event.ref.uid)
    changed(state, event.ref.uid)
    state.gates.pop(event.ref.uid, None)
    state.open.pop(event.ref.uid, None)


def stirred(state: PreemptorState) -> None:
    """What is kept of the queues that a commit has touched."""
    for queue in state.queues.book.stirred:
        weigh(state, queue)
    state.heads.settle(state.queues, state.evictions, state.service)


def workload_gone(state: PreemptorState, _at: Position, event: WorkloadGone) -> None:
    _delays(state, event.ref.uid)
    changed(state, event.ref.uid)
    if event.ref.uid in state.queues.jobs:  # Its age counts from another time.
        state.queues.book.stirred[state.queues.jobs[event.ref.uid].queue] = None
    state.gates.pop(event.ref.uid, None)
    state.open.pop(event.ref.uid, None)
    if event.ref.uid not in state.queues.workloads:
        state.idle.pop(event.ref.uid, None)
        state.evictions.pop(event.ref.uid, None)
        state.found.pop(event.ref.uid, None)
        state.service.forget(event.ref.uid)
        state.stays.pop(event.ref.uid, None)
        state.failed.pop(event.ref.uid, None)


def charged(state: PreemptorState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    uid = event.ref.uid
    if isinstance(event, WorkloadAdopted) and event.reason == "already_running" and uid in state.found:
        state.foreign[root_of(event.queue)] = None
    state.charged[uid] = event.attempt
    state.gates.pop(uid, None)
    state.stays.pop(uid, None)
    state.failed.pop(uid, None)
    state.shrinking.pop(uid, None)
    workload = state.queues.workloads.get(uid)
    state.granted.pop(uid, None)
    if workload is not None and (groups := state.scaling.granted(workload)):
        state.granted[uid] = groups
    state.fixed.pop(uid, None)
    if workload is not None and (fixed := workload.fixed_pods):
        state.fixed[uid] = fixed
    state.age_claims.looked(state.queues.ledger, state.now, uid)
    changed(state, uid)
    _graces_over(state)
    state.supply += 1


def _graces_over(state: PreemptorState) -> None:
    """A shape that is not owed any more, or does not wait, has a grace again the next time."""
    asking = {growthclaims.key_of(uid) for uid in state.growing}
    for key in [each for each in state.owed_since if each not in asking]:
        shape = state.queues.book.shapes.get(key)
        if shape is None or not shape.waiting or not _may_be_owed(state, shape):
            del state.owed_since[key]


def _may_be_owed(state: PreemptorState, shape: Shape) -> bool:
    """Whether it stays within a guarantee of its queue; in a KAI queue its share says that, which moves."""
    ledger = state.queues.ledger
    return ledger.by_shares(shape.queue) or ledger.owed(shape.queue, shape.demand)


def moved(state: PreemptorState, _at: Position, event: QuotaMoved) -> None:
    """It is a candidate as work of another leaf from here on."""
    enlist(state, event.ref.uid)
    state.supply += 1


def admitted(state: PreemptorState, at: Position, event: GangAdmitted) -> None:
    if event.ref.uid in state.charged:
        state.ends.decided[event.ref.uid] = at.at


def effect_applied(state: PreemptorState, at: Position, event: EffectApplied) -> None:
    if event.action in ("resume", "suspend") and event.ref.uid in state.charged:
        state.ends.written(event.ref.uid, at.at, suspends=event.action == "suspend")
    changed(state, event.ref.uid)


def effect_failed(state: PreemptorState, at: Position, event: EffectFailed) -> None:
    state.ends.decided.pop(event.ref.uid, None)
    if event.action == "suspend":
        _runs_on(state, event.ref.uid, at)


def victim_stays(state: PreemptorState, at: Position, event: VictimStays) -> None:
    """Others may be suspended in its place; one that still leaves is not asked for again."""
    state.supply += 1
    makingroom.awaited_in_vain(state, event.ref.uid)
    if event.reason == "runs_again":
        _runs_on(state, event.ref.uid, at)
    elif event.reason == "not_ended" and event.ref.uid in state.started:
        state.leaving.pop(event.ref.uid, None)
        changed(state, event.ref.uid)


def _runs_on(state: PreemptorState, uid: str, at: Position) -> None:
    """It could not be suspended: it is left alone for a while, and others may go in its place."""
    makingroom.awaited_in_vain(state, uid)
    times = 1
    if uid in state.leaving:  # What fails late, or once more, was counted when it failed.
        del state.leaving[uid]
        times = state.failed[uid] = state.failed.get(uid, 0) + 1
    state.stays[uid] = max(at.at + stays_ms(times), state.stays.get(uid, 0))
    changed(state, uid)


def charge_changed(
    state: PreemptorState, _at: Position, event: ChargeChanged | GrowthGranted | GrowthWithdrawn
) -> None:
    """More, or less, could be taken back."""
    state.supply += 1
    if not isinstance(event, ChargeChanged) and event.ref.uid in state.charged:
        uid = event.ref.uid
        state.granted[uid] = dict(event.groups)
        if uid in state.shrinking and is_down(event.groups, state.shrinking[uid]):
            del state.shrinking[uid]
    changed(state, event.ref.uid)


def released(state: PreemptorState, at: Position, event: QuotaReleased) -> None:
    makingroom.left(state, event.ref.uid, at.at)
    state.charged.pop(event.ref.uid, None)
    state.leaving.pop(event.ref.uid, None)
    started = state.started.get(event.ref.uid)
    state.ends.released(event, started.since if started is not None else None, at.at)
    if started is not None and event.ref.uid in state.queues.workloads:
        state.service.ran(event.ref.uid, gpu_time(event.request, started.kept - started.since))
    state.shrinking.pop(event.ref.uid, None)
    state.granted.pop(event.ref.uid, None)
    state.fixed.pop(event.ref.uid, None)
    state.kept.pop(event.ref.uid, None)
    state.age_claims.looked(state.queues.ledger, state.now)
    state.age_claims.left(event.ref.uid, started.since if started is not None else None, state.now)
    if after_release(event.reason) == "evicted" and event.ref.uid in state.queues.workloads:
        state.evictions[event.ref.uid] = [*state.evictions.get(event.ref.uid, ()), at.at][-MAX_REMEMBERED:]
    changed(state, event.ref.uid)
    state.supply += 1


def queued(state: PreemptorState, _at: Position, event: WorkloadQueued) -> None:
    """A new attempt asks for something else, or elsewhere: what was found for the one before says nothing about it."""
    state.gates.pop(event.ref.uid, None)


def changed(state: PreemptorState, uid: str) -> None:
    """What could be taken back may have changed."""
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
    """A job that was refused may be within its share now, though nothing became free."""
    if event.usage:
        state.supply += 1


def queue_changed(state: PreemptorState, _at: Position, _event: QueueObserved | QueueGone) -> None:
    """A Queue object was seen, or is gone: what is paused may have changed."""
    pauses = {path: parts for path, parts in state.queues.paused.items() if parts}
    if pauses != state.shown_pauses:
        state.shown_pauses = pauses
        _rules_changed(state)


def bar(state: PreemptorState, uid: str, gate: RetryGate) -> None:
    """Nothing is proposed for it for now, at most until its grace or its own delay is over: from then on it may claim
    quota that was not looked for before. A job that is gone needs no gate.
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
    rest = at.at + (NO_NODES_MS if event.nodes >= 0 else _rests_ms(event.reason))
    gate = RetryGate(event.supply, event.until, event.nodes, min(rest, event.until or rest))
    if event.reason == "nodes_stay":
        makingroom.searched(state, event.ref.uid, gate)
        return
    bar(state, event.ref.uid, gate)


def _rests_ms(reason: DeferralReason) -> int:
    """How long (ms) a claimant rests. In a busy queue the running work of lower priority changes often."""
    match reason:
        case "lower_stays" | "lower_too_young" | "lower_paused":
            return MIN_PAUSE_MS
        case "nothing_evictable" | "no_place" | "search_ended" | "too_young" | "evictions_paused" | "grace":
            return 0
        case "nodes_stay":
            return 0
    assert_never(reason)


def plan_stale(state: PreemptorState, at: Position, event: PlanStale) -> None:
    """It is looked at again if anything has changed since it was proposed: the nodes that it was tried on may be others
    by the time that this is heard.
    """
    proposed = state.open.pop(event.ref.uid, state.shut(0))
    gate, refused = replace(proposed, rest=at.at + NO_NODES_MS), rests_on_nodes(event.reason)
    makingroom.stale(state, event.ref.uid, gate, refused=refused)
    if refused:
        bar(state, event.ref.uid, gate)


def ordered(state: PreemptorState, at: Position, event: EvictionOrdered | ClaimOpened) -> None:
    state.open.pop(event.ref.uid, None)
    makingroom.ordered(state, event, at.at)
    if isinstance(event, ClaimOpened):
        state.gates.pop(event.ref.uid, None)  # What it is owed is another question, and has not been asked.
        if event.kind == "age":
            state.age_claims.opened(event.ref.uid, event.top, state.queues.ledger, at.at)
        else:
            state.age_claims.looked(state.queues.ledger, state.now)
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
        if part.ref.uid in state.granted:
            state.shrinking[part.ref.uid] = dict(part.left)
            changed(state, part.ref.uid)
    state.age_claims.looked(state.queues.ledger, state.now)


def placement_chosen(state: PreemptorState, _at: Position, event: PlacementChosen) -> None:
    state.moves = event.moves if event.strategy is not None else 0


def workers_kept(state: PreemptorState, at: Position, event: WorkersKept) -> None:
    """It gives no workers; as a whole it may be suspended after a while. What was on its way back by itself can be
    taken again.
    """
    if event.unasked:
        state.supply += 1
    elif state.shrinking.pop(event.ref.uid, None) is not None:
        state.kept[event.ref.uid] = at.at + KEPT_MS
        changed(state, event.ref.uid)
        state.supply += 1


def suspension_ordered(state: PreemptorState, _at: Position, event: SuspensionOrdered) -> None:
    if event.ref.uid in state.queues.ledger.charges:
        state.leaving[event.ref.uid] = None
        changed(state, event.ref.uid)


def claim_ended(state: PreemptorState, at: Position, event: ClaimEnded) -> None:
    """The held quota is free for other plans. A plan that failed rests as long as it lasted without progress; then it
    is looked at again, for work that could not go before may be asked again by then.
    """
    state.supply += 1
    state.age_claims.looked(state.queues.ledger, state.now)
    if event.outcome == "expired":
        job = state.queues.jobs.get(event.ref.uid)
        pause = max(state.queues.ledger.rules_of(job.queue if job is not None else "").claim_ms, MIN_PAUSE_MS)
        bar(state, event.ref.uid, RetryGate(NEVER, rest=at.at + pause))
