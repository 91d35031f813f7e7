"""How the accountant's state changes: one function per event, and the upkeep of what is due."""

from __future__ import annotations

from muster.core.quota import growth, standalone
from muster.core.quota.charging import ask_of, charge_of
from muster.core.quota.claiming import overdue_at, why_over
from muster.core.quota.service import gpu_time
from muster.core.quota.state import (
    AccountantState,
    Entry,
    Judged,
    Proposal,
    idle_deadline,
    kept_ms,
    must_adopt,
    must_move,
    note_idle,
    note_short,
    release_reason,
    stale_at,
    suspended_by_others,
    timeout_at,
    unplaced_at,
)
from muster.core.quota.usage import aside_of, charge_due
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    GangDeferred,
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    SuspensionOrdered,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    ObjectUnreadable,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    QueueGone,
    QueueObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.model.elastic import Elastic, granted_before
from muster.model.gang import Verdict
from muster.model.keys import Position
from muster.model.workload import SPARK_ROLE


def tree_accepted(state: AccountantState, _at: Position, event: QuotaTreeAccepted) -> None:
    state.forest.decided(event)
    state.ledger.install(event.tree)
    _trees_changed(state)


def _trees_changed(state: AccountantState) -> None:
    """Charges stand where the trees in force put them, and everything is looked at afresh."""
    for uid, entry in state.entries.items():
        entry.queue = state.ledger.charges[uid].queue
    for uid in (*state.workloads, *state.standalone):
        recheck(state, uid)


def tree_rejected(state: AccountantState, _at: Position, event: QuotaTreeRejected) -> None:
    state.forest.decided(event)


def tree_removed(state: AccountantState, _at: Position, event: QuotaTreeRemoved) -> None:
    state.ledger.remove(event.ref.uid)
    state.forest.removed(event.ref.uid, state.ledger.trees)
    _trees_changed(state)


def workload_observed(state: AccountantState, at: Position, event: WorkloadObserved) -> None:
    workload = event.workload
    uid = workload.ref.uid
    if not state.seen.newer(uid, workload.rv):
        return
    touched(state, at, state.presence.alone(uid))
    state.workloads[uid] = workload
    state.causes[uid] = Cause(at.seq, at.item)
    entry = state.entries.get(uid)
    if entry is not None:
        entry.child = workload.child
        _scales_itself(entry, workload.elastic)
        if not workload.suspended and workload.phase != "finished":
            entry.resumed_rv = workload.rv
            entry.suspension_recorded = False
            entry.since = entry.since or at.at
            entry.ran = entry.ran or workload.phase == "running"
            if 0 < entry.suspended_rv < workload.rv:
                entry.leaving = ""
    recheck(state, uid)


def _scales_itself(entry: Entry, elastic: Elastic | None) -> None:
    """One that was charged with a fixed size is granted just that once it scales itself: it asks for what it has grown
    to.
    """
    if elastic is not None and not entry.groups:
        entry.groups = granted_before(entry.fixed, elastic)


def workload_gone(state: AccountantState, at: Position, event: WorkloadGone) -> None:
    uid = event.ref.uid
    if state.seen.end(event, at.at):
        for told in (state.attempts, state.evictions, state.priorities):
            told.pop(uid, None)
        state.service.forget(uid)
        _forget(state, at, uid)


def unreadable(state: AccountantState, at: Position, event: ObjectUnreadable) -> None:
    """An object that can no longer be read may still run: its charge stays until it is seen to be gone."""
    if event.ref.uid in state.workloads and state.seen.newer(event.ref.uid, event.rv):
        if event.ref.uid in state.entries:
            state.causes[event.ref.uid] = Cause(at.seq, at.item)
        else:
            _forget(state, at, event.ref.uid)


def _forget(state: AccountantState, at: Position, uid: str) -> None:
    state.workloads.pop(uid, None)
    state.causes.pop(uid, None)
    if uid in state.entries:
        state.causes[uid] = Cause(at.seq, at.item)
    else:
        state.last_child.pop(uid, None)
    recheck(state, uid)


def child_observed(state: AccountantState, at: Position, event: ChildObserved) -> None:
    former = state.presence.owner_of.get(event.child.ref.uid)
    owner = state.presence.child_observed(event)
    if owner is not None:
        state.last_child[owner] = event.child.ref.name
        if owner in state.entries:
            _scales_itself(state.entries[owner], event.child.elastic)
        if former != owner:
            touched(state, at, former)
            touched(state, at, event.child.ref.uid)  # It may have been a workload by itself.
    touched(state, at, owner)


def child_gone(state: AccountantState, at: Position, event: ChildGone) -> None:
    touched(state, at, state.presence.child_gone(event, at.at))


def pod_observed(state: AccountantState, at: Position, event: PodObserved) -> None:
    pod = event.pod
    known = state.presence.seen.stale(pod.ref.uid, pod.rv)
    touched(state, at, state.presence.pod_observed(event))
    cause, role = Cause(at.seq, at.item), pod.labels.get(SPARK_ROLE)
    stray = role == "executor" and pod.owner_uid not in state.presence.owner_of
    if not known and standalone.observed(state.standalone, pod, cause, stray=stray):
        recheck(state, pod.ref.uid)
    if not known and role == "driver" and pod.ref.uid in state.presence.owner_of:
        for uid in state.presence.pods.get(pod.ref.uid, ()):  # What came before its driver did.
            if state.standalone.pop(uid, None) is not None:
                touched(state, at, uid)
    if not known and any(tree.by_shares for tree in state.ledger.trees.values()):
        state.members.observed(pod)
        _of_gang(state, pod.owner_uid)


def pod_gone(state: AccountantState, at: Position, event: PodGone) -> None:
    touched(state, at, state.presence.pod_gone(event, at.at))
    owner = state.members.owners.get(event.ref.uid, "")
    if owner:
        state.members.gone(event.ref.uid)
        _of_gang(state, owner)
    if state.standalone.pop(event.ref.uid, None) is not None:
        recheck(state, event.ref.uid)


def pod_group_observed(state: AccountantState, at: Position, event: PodGroupObserved) -> None:
    """What kube-scheduler says of the gang of a job that was admitted for it to place."""
    found, key = event.pod_group, event.pod_group.ref.key
    if not found.attempt or not state.seen.newer(found.ref.uid, found.rv):
        return
    if found.verdict is None:
        return
    before = state.judged.get(key)
    lacked = before.lacks_since if before is not None and before.uid == found.ref.uid else 0
    since = 0 if found.verdict.scheduled else lacked or at.at
    state.judged[key] = Judged(found.ref.uid, found.owner_uid, found.attempt, since, _said_of(found.verdict))
    touched(state, at, found.owner_uid)


def pod_group_gone(state: AccountantState, at: Position, event: PodGroupGone) -> None:
    found = state.judged.get(event.ref.key)
    if state.seen.end(event, at.at) and found is not None and found.uid == event.ref.uid:
        del state.judged[event.ref.key]
        touched(state, at, found.owner)


def _said_of(verdict: Verdict) -> str:
    return ": ".join(each for each in (verdict.reason, verdict.message) if each)


def _of_gang(state: AccountantState, owner: str) -> None:
    """A pod of a gang has a node now, or no longer: matters where less than its minimum may be left."""
    uid = state.presence.owner_of.get(owner, owner)
    if uid in state.entries:
        recheck(state, uid)


def touched(state: AccountantState, at: Position, uid: str | None) -> None:
    if uid is not None and (uid in state.entries or uid in state.workloads):
        state.causes[uid] = Cause(at.seq, at.item)
        recheck(state, uid)


def workload_queued(state: AccountantState, _at: Position, event: WorkloadQueued) -> None:
    if event.ref.uid not in state.seen.ended:  # else it is gone by now, and is about to be dequeued
        state.attempts[event.ref.uid] = event.attempt
        state.priorities[event.ref.uid] = event.priority
    state.ledger.queued(event.ref.uid, ask_of(event))
    recheck(state, event.ref.uid)


def workload_dequeued(state: AccountantState, _at: Position, event: WorkloadDequeued) -> None:
    state.ledger.dequeued(event.ref.uid, event.attempt)


def proposed(state: AccountantState, at: Position, event: CandidatesProposed) -> None:
    for candidate in event.candidates:
        state.proposals[candidate.ref.uid] = Proposal(candidate, Cause(at.seq, at.item))


def reserved(state: AccountantState, at: Position, event: QuotaReserved) -> None:
    answered(state, event)
    open_entry(state, at, event)


def adopted(state: AccountantState, at: Position, event: WorkloadAdopted) -> None:
    workload = state.workloads.get(event.ref.uid)
    entry = open_entry(state, at, event)
    if workload is not None and workload.suspended:
        entry.resumed_rv, entry.suspension_recorded = max(1, workload.rv - 1), True
    elif workload is not None:
        entry.resumed_rv, entry.since, entry.ran = workload.rv, at.at, workload.phase == "running"
    recheck(state, event.ref.uid)


def open_entry(state: AccountantState, at: Position, event: QuotaReserved | WorkloadAdopted) -> Entry:
    uid = event.ref.uid
    entry = Entry(event.ref, event.attempt, event.queue, event.request, Cause(at.seq, at.item))
    workload = state.workloads.get(uid)
    if workload is not None:
        entry.child = workload.child
        entry.groups = workload.elastic.sizes if workload.elastic is not None else {}
        entry.fixed = workload.fixed_pods
    state.growths.pop(uid, None)
    entry.pods, entry.aside = event.pods, aside_of(workload, event.request)
    state.entries[uid] = entry
    served = state.ledger.charge(uid, charge_of(event, at.at))
    if served is not None:
        state.claim_causes.pop(served.uid, None)
        for each in (served.uid, *served.victims):
            recheck(state, each)
    recheck(state, uid)
    return entry


def moved(state: AccountantState, at: Position, event: QuotaMoved) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.queue, entry.cause = event.queue, Cause(at.seq, at.item)
        state.ledger.move(event.ref.uid, event.queue, event.named)
        recheck(state, event.ref.uid)


def denied(state: AccountantState, _at: Position, event: QuotaDenied) -> None:
    answered(state, event)


def answered(state: AccountantState, event: QuotaReserved | QuotaDenied) -> None:
    """A newer proposal of the same workload may have come in after this answer was decided: it stays open."""
    proposal = state.proposals.get(event.ref.uid)
    if proposal is not None and proposal.candidate.attempt == event.attempt:
        del state.proposals[event.ref.uid]


def released(state: AccountantState, at: Position, event: QuotaReleased) -> None:
    uid = event.ref.uid
    entry, workload = state.entries.pop(uid, None), state.workloads.get(uid)
    if entry is not None and workload is not None:
        state.service.ran(uid, gpu_time(event.request, kept_ms(state, workload, entry)))
    state.growths.pop(uid, None)
    state.returns.pop(uid, None)
    state.ledger.release(uid, event.attempt, at.at)
    if event.reason in ("evicted", "preempted") and uid in state.workloads:
        state.evictions[uid] = state.evictions.get(uid, 0) + 1
    if uid not in state.workloads:
        state.causes.pop(uid, None)
        state.last_child.pop(uid, None)
    recheck(state, uid)


def admitted(state: AccountantState, at: Position, event: GangAdmitted) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.cause = Cause(at.seq, at.item)
        entry.admitted = True
        recheck(state, event.ref.uid)


def deferred(state: AccountantState, at: Position, event: GangDeferred) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.deferred = True
        state.causes[event.ref.uid] = Cause(at.seq, at.item)
        recheck(state, event.ref.uid)


def effect_applied(state: AccountantState, at: Position, event: EffectApplied) -> None:
    if event.action == "gate":
        growth.gate_written(state, at, event)
        return
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is None:
        return
    if event.action == "suspend":
        entry.suspended_rv, entry.suspended_at = max(event.rv, 1), at.at
    else:
        entry.resumed_rv = max(entry.resumed_rv, event.rv, 1)
        entry.since = entry.since or at.at
    entry.cause = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def effect_failed(state: AccountantState, at: Position, event: EffectFailed) -> None:
    if event.action == "gate":
        growth.gate_written(state, at, event)
        return
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is None:
        return
    if event.action == "resume":
        entry.failed = event.reason
    elif entry.leaving:
        state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
        entry.leaving = ""
    state.causes[event.ref.uid] = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def charge_changed(state: AccountantState, _at: Position, event: ChargeChanged) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        recheck(state, event.ref.uid)


def growth_changed(state: AccountantState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        growth.take_over(state, at, entry, event)
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        recheck(state, event.ref.uid)


def suspension_recorded(state: AccountantState, _at: Position, event: SuspensionRecorded) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.suspension_recorded = True
        recheck(state, event.ref.uid)


def suspension_ordered(state: AccountantState, _at: Position, event: SuspensionOrdered) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.leaving, entry.suspended_rv = "stale" if event.reason == "stale_gang" else "timed_out", 0
        recheck(state, event.ref.uid)


def queue_observed(state: AccountantState, _at: Position, event: QueueObserved) -> None:
    if state.seen.newer(event.ref.uid, event.rv):
        before = state.paused.pop(event.ref.uid, None)
        if event.paused:
            state.paused[event.ref.uid] = (event.path, event.paused)
        if event.paused or before is not None:
            _pauses_changed(state)


def queue_gone(state: AccountantState, at: Position, event: QueueGone) -> None:
    if state.seen.end(event, at.at) and state.paused.pop(event.ref.uid, None) is not None:
        _pauses_changed(state)


def _pauses_changed(state: AccountantState) -> None:
    """What is reserved and not admitted yet may have to be given back, or may stay; what is held may be over."""
    for uid, entry in state.entries.items():
        if not (entry.admitted or entry.resumed_rv):
            recheck(state, uid)
    for uid in state.ledger.claims.by_uid:
        recheck(state, uid)


def entry_of(state: AccountantState, uid: str, attempt: int) -> Entry | None:
    entry = state.entries.get(uid)
    return entry if entry is not None and entry.attempt == attempt else None


def recheck(state: AccountantState, uid: str) -> None:
    """Bring the ``due`` dicts and the deadline of one workload in line with the state."""
    entry, workload = state.entries.get(uid), state.workloads.get(uid)
    deadline = None
    if entry is not None:
        note_idle(state, entry)
        note_short(state, entry)
        times = (
            idle_deadline(state, entry),
            timeout_at(state, entry),
            unplaced_at(state, entry),
            stale_at(state, entry),
        )
        ends = [at for at in times if at is not None]
        deadline = min(ends, default=None)
    _set(state.due_release, uid, entry is not None and release_reason(state, entry) is not None)
    _set(state.due_move, uid, entry is not None and uid not in state.due_release and must_move(state, entry))
    changes = entry is not None and uid not in state.due_release and charge_due(state, entry) is not None
    _set(state.due_change, uid, changes)
    _set(state.due_suspension, uid, entry is not None and suspended_by_others(workload, entry))
    pod = state.standalone.get(uid) if entry is None else None
    uncharged = pod is not None and standalone.leaf_of(state.ledger, pod) is not None
    _set(state.due_adoption, uid, uncharged or (workload is not None and must_adopt(state, workload)))
    claim, leaves = state.ledger.claims.by_uid.get(uid), entry is not None and state.ledger.claims.goes(uid)
    _set(state.due_end, uid, claim is not None and why_over(state, claim) is not None)
    _set(state.due_stay, uid, leaves and entry is not None and not entry.leaving)
    overdue = overdue_at(entry) if leaves else None
    if overdue is not None:
        state.overdue[uid] = overdue
    else:
        state.overdue.pop(uid, None)
    if deadline is None or uid in state.due_release:
        state.deadlines.pop(uid, None)
    else:
        state.deadlines[uid] = deadline


def _set(due: dict[str, None], uid: str, wanted: bool) -> None:
    if wanted:
        due[uid] = None
    else:
        due.pop(uid, None)
