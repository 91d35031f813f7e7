"""The folds of the accountant's state: observations, decisions and effects; ``claiming`` has the claims."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from muster.core.observed.presence import is_alone
from muster.core.quota.accountantstate import AccountantState, Entry, Judged, Leaving, Proposal, for_itself
from muster.core.quota.accounting import growth, podasks
from muster.core.quota.accounting.rechecks import aside_of, entry_of, is_active, recheck, regrant, touched
from muster.core.quota.accounting.suspending import looked, reduced, refused
from muster.core.quota.claims import Claim
from muster.core.quota.ledger import standalone
from muster.core.quota.ledger.books import ask_of, charge_of, claimant_of
from muster.core.quota.ledger.quotaledger import waits
from muster.core.stage import leave_out, put
from muster.core.workloads.registry import child_shards
from muster.events.base import Cause
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    GangDeferred,
    PodsAwaited,
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
from muster.events.elastic import GrowthGranted, GrowthWithdrawn, SurplusOrdered
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeObserved,
    ObjectUnreadable,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    QueueGone,
    QueueObserved,
    Synced,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.reasons import SuspensionReason, after_release
from muster.model.elastic import Elastic, granted_before
from muster.model.keys import Position
from muster.model.placing import GPU
from muster.model.quota import Gpus, QuotaTree
from muster.model.resources import lowest, summed
from muster.model.workload import SPARK_ROLE, PodState

# --- entryfolds -------------------------------------------------------------------------------------------------------


def _leaves_as(reason: SuspensionReason) -> Leaving:
    """How a workload leaves by an order for this reason."""
    match reason:
        case "running_timeout" | "no_pods" | "unschedulable":
            return "timed_out"
        case "stale_gang":
            return "stale"
        case "overuse":
            return "overuse"
    assert_never(reason)


def workload_queued(state: AccountantState, _at: Position, event: WorkloadQueued) -> None:
    state.priorities[event.ref.uid] = event.priority
    state.ledger.queued(event.ref.uid, ask_of(event))
    recheck(state, event.ref.uid)


def workload_dequeued(state: AccountantState, _at: Position, event: WorkloadDequeued) -> None:
    state.ledger.dequeued(event.ref.uid, event.attempt)
    forget(state, event.ref.uid)


def forget(state: AccountantState, uid: str) -> None:
    """A priority belongs to an attempt, and is forgotten with the attempts."""
    if state.ledger.forget(uid, state.seen):
        state.priorities.pop(uid, None)


def proposed(state: AccountantState, at: Position, event: CandidatesProposed) -> None:
    for candidate in event.candidates:
        state.proposals[candidate.ref.uid] = Proposal(candidate, Cause(at.seq, at.item))


def answered(state: AccountantState, _at: Position, event: QuotaReserved | QuotaDenied) -> None:
    """Close the answered proposal. A newer proposal of the same workload, folded after the decision, stays open."""
    proposal = state.proposals.get(event.ref.uid)
    if proposal is not None and proposal.candidate.attempt == event.attempt:
        del state.proposals[event.ref.uid]


def reserved(state: AccountantState, at: Position, event: QuotaReserved) -> None:
    open_entry(state, event, at)


def adopted(state: AccountantState, at: Position, event: WorkloadAdopted) -> None:
    workload = state.workloads.get(event.ref.uid)
    entry = open_entry(state, event, at)
    entry.bypassed = event.reason == "bypassed"
    if workload is not None and workload.suspended:
        # Its pods were seen: the controller has acted on the resume.
        entry.resumed_rv, entry.suspension_recorded, entry.acted = max(1, workload.rv - 1), True, True
    elif workload is not None:
        entry.resumed_rv, entry.since, entry.ran = workload.rv, at.at, workload.phase == "running"
    elif event.ref.kind == "Pod":  # It runs by itself, and its end is its proof.
        entry.resumed_rv, entry.since, entry.acted, entry.ran = 1, at.at, True, True
    recheck(state, event.ref.uid)


def open_entry(state: AccountantState, event: QuotaReserved | WorkloadAdopted, at: Position) -> Entry:
    uid = event.ref.uid
    entry = Entry(event.ref, event.attempt, event.queue, event.request, Cause(at.seq, at.item), flavors=event.flavors)
    workload = state.workloads.get(uid)
    if workload is not None:
        entry.child = workload.child
        entry.groups = state.scaling.granted(workload)
        entry.fixed = workload.fixed_pods
        entry.helpers = summed(pods.request for pods in workload.auxiliary)
    state.growths.pop(uid, None)
    state.claim_causes.pop(uid, None)
    tree = state.ledger.tree_of(event.queue)
    entry.pods, entry.aside = event.pods, aside_of(tree, workload, event.request)
    state.entries[uid] = entry
    _served(state, state.ledger.charge(uid, charge_of(event, at), claimant_of(event)))
    recheck(state, uid)
    return entry


def _served(state: AccountantState, claim: Claim | None) -> None:
    """A claim ends, because its claimant has the quota."""
    if claim is not None:
        state.claim_causes.pop(claim.uid, None)
        for uid in (claim.uid, *claim.victims):
            recheck(state, uid)


def moved(state: AccountantState, at: Position, event: QuotaMoved) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.queue, entry.cause = event.queue, Cause(at.seq, at.item)
        state.ledger.move(event.ref.uid, event.queue, event.named)
        recheck(state, event.ref.uid)


def released(state: AccountantState, at: Position, event: QuotaReleased) -> None:
    uid = event.ref.uid
    workload = state.workloads.get(uid)
    leave_out(uid, state.entries, state.growths, state.returns)
    state.opened = {cluster: owner for cluster, owner in state.opened.items() if owner != uid}
    charge, kind = state.ledger.release(uid, event.attempt, at.at), after_release(event.reason)
    if charge is not None and kind == "unplaced" and waits(workload):
        state.ledger.park(uid, event.attempt, charge)
    if kind == "evicted" and uid in state.workloads:
        state.evictions[uid] = state.evictions.get(uid, 0) + 1
    if uid not in state.workloads:
        state.causes.pop(uid, None)
        state.last_child.pop(uid, None)
    forget(state, uid)
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
    entry = entry_of(state, event.ref.uid, event.attempt) if event.action != "gate" else None
    if entry is None:
        return
    if event.action == "read_refusal":
        entry.refused = event.problem is not None
        recheck(state, event.ref.uid)
        return
    if event.action == "suspend":
        entry.suspended_rv, entry.suspended_at = max(event.rv, 1), at.at
    else:
        entry.resumed_rv = max(entry.resumed_rv, event.rv, 1)
        entry.since = entry.since or at.at
    entry.cause = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def effect_failed(state: AccountantState, at: Position, event: EffectFailed) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt) if event.action != "gate" else None
    if entry is None:
        return
    if event.action == "resume":
        entry.failed = event.reason
    elif entry.leaving:
        state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
        if for_itself(entry.leaving):
            refused(entry, at.at)
        entry.leaving = ""
    state.causes[event.ref.uid] = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)


def charge_changed(state: AccountantState, _at: Position, event: ChargeChanged) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        falls = not entry.groups and bool(event.fixed or not entry.fixed)  # Before it may have begun to scale itself.
        entry.fixed = event.fixed if falls and event.fixed else entry.fixed
        if falls and is_active(state.workloads.get(event.ref.uid)):
            entry.request, entry.pods = lowest(entry.request, event.request), min(entry.pods, event.pods)
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        recheck(state, event.ref.uid)


def growth_changed(state: AccountantState, at: Position, event: GrowthGranted | GrowthWithdrawn) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        growth.take_over(state, at, entry, event)
        state.ledger.recharge(event.ref.uid, event.request, event.pods, event.over)
        served = state.ledger.grown(event.ref.uid, event.added, at.at) if isinstance(event, GrowthGranted) else None
        _served(state, served)
        recheck(state, event.ref.uid)


def suspension_recorded(state: AccountantState, _at: Position, event: SuspensionRecorded) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.suspension_recorded = True
        recheck(state, event.ref.uid)


def surplus_ordered(state: AccountantState, _at: Position, event: SurplusOrdered) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        reduced(state, entry)


def suspension_ordered(state: AccountantState, _at: Position, event: SuspensionOrdered) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        entry.leaving, entry.suspended_rv = _leaves_as(event.reason), 0
        recheck(state, event.ref.uid)


def pods_awaited(state: AccountantState, _at: Position, event: PodsAwaited) -> None:
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None:
        looked(state, entry)
        recheck(state, event.ref.uid)


# --- folds ------------------------------------------------------------------------------------------------------------


def tree_accepted(state: AccountantState, _at: Position, event: QuotaTreeAccepted) -> None:
    state.forest.decided(event)
    before = state.ledger.trees.get(event.tree.root)
    state.ledger.install(event.tree)
    if before is not None and before.gpus != event.tree.gpus:
        _gpus_changed(state, before.gpus, event.tree)
    regrant(state, before.flavors if before is not None else (), event.tree)
    _trees_changed(state)


def _gpus_changed(state: AccountantState, before: Gpus, tree: QuotaTree) -> None:
    """A grant of an amount of GPU memory stays the same amount."""
    for uid, entry in state.entries.items():
        workload = state.workloads.get(uid)
        amounts = workload.gpu_memory if workload is not None and GPU in entry.request else {}
        if amounts and state.ledger.tree_of(entry.queue) is tree:
            entry.request = {**entry.request, GPU: entry.request[GPU] + before.less(amounts) - tree.gpus.less(amounts)}
    for seen in [*state.sharing_children.values()]:
        state.presence.child_observed(_in_parts(state, seen))


def _in_parts(state: AccountantState, seen: ChildObserved) -> ChildObserved:
    """A child with its amounts of GPU memory in parts of devices."""
    asks = state.forest.gpus.in_parts(seen.child.asks, seen.child.gpu_memory)
    return replace(seen, child=replace(seen.child, asks=asks)) if seen.child.gpu_memory else seen


def _trees_changed(state: AccountantState) -> None:
    """Charges move to their leaves in the trees in force, and every workload is checked again."""
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
    touched(state, at, state.presence.alone(uid))
    state.scaling.forget(uid)
    state.workloads[uid] = workload
    state.causes[uid] = Cause(at.seq, at.item)
    if not waits(workload):
        state.ledger.unpark(uid)
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
    """A cluster charged with a fixed size now scales itself: its grant stays the same size, and any growth is a
    request.
    """
    if elastic is not None and not entry.groups:
        entry.groups = granted_before(entry.fixed, elastic)


def workload_gone(state: AccountantState, at: Position, event: WorkloadGone) -> None:
    uid = event.ref.uid
    state.evictions.pop(uid, None)
    forget(state, uid)
    if event.unwatched and uid in state.entries:
        state.entries[uid].guarded = False  # The object is there, with its finalizer.
    _forget(state, at, uid)
    _owner_gone(state, at)


def _owner_gone(state: AccountantState, at: Position) -> None:
    for pod in [*state.orphans.values()]:
        _left_behind(state, at, pod)


def _left_behind(state: AccountantState, at: Position, pod: PodState) -> None:
    """A pod is charged by itself once its owner and its job are gone, and left it behind (``--cascade=orphan``)."""
    uid, presence = pod.ref.uid, state.presence
    owner = presence.pod_owner.get(uid, "")
    job = presence.owner_of.get(owner, owner)
    if job in state.workloads or presence.children.get(job, {}).get(owner):
        return
    del state.orphans[uid]
    charge, cause = state.ledger.charges.get(job), Cause(at.seq, at.item)
    if charge is None:
        return
    touched(state, at, presence.let_go(uid))
    state.standalone[uid] = standalone.left_behind(pod, charge, cause)
    _of_no_job(state, uid)


def unreadable(state: AccountantState, at: Position, event: ObjectUnreadable) -> None:
    """An unreadable object may still run: its charge stays until the object is seen to be gone."""
    if event.ref.uid not in state.workloads:
        return
    if event.ref.uid in state.entries:
        state.causes[event.ref.uid] = Cause(at.seq, at.item)
    else:
        _forget(state, at, event.ref.uid)


def _forget(state: AccountantState, at: Position, uid: str) -> None:
    state.workloads.pop(uid, None)
    state.causes.pop(uid, None)
    state.ledger.unpark(uid)
    if uid in state.entries:
        state.causes[uid] = Cause(at.seq, at.item)
    else:
        state.last_child.pop(uid, None)
    recheck(state, uid)


def child_observed(state: AccountantState, at: Position, event: ChildObserved) -> None:
    former = state.presence.owner_of.get(event.child.ref.uid)
    shares = event.child.gpu_memory and not event.child.over
    put(state.sharing_children, event.child.ref.uid, event if shares else None)
    owner = state.presence.child_observed(_in_parts(state, event))
    state.scaling.observed(event)
    if owner is not None:
        state.last_child[owner] = event.child.ref.name
        if owner in state.entries:
            growth.started(state, event.child)
            _scales_itself(state.entries[owner], event.child.elastic)
        if former != owner:
            touched(state, at, former)
            touched(state, at, event.child.ref.uid)  # The child may have been a workload before.
    touched(state, at, owner)


def child_gone(state: AccountantState, at: Position, event: ChildGone) -> None:
    state.scaling.forget(event.ref.uid)
    state.sharing_children.pop(event.ref.uid, None)
    touched(state, at, growth.pending_gone(state, event.ref.uid))
    touched(state, at, state.presence.child_gone(event))
    _owner_gone(state, at)


def synced(state: AccountantState, at: Position, event: Synced) -> None:
    """A fresh list may prove that the children of ended workloads are gone."""
    for uid in [uid for uid, entry in state.entries.items() if entry.idle_since]:
        if event.kind in child_shards(state.entries[uid].ref.kind):
            touched(state, at, uid)


def pod_observed(state: AccountantState, at: Position, event: PodObserved) -> None:
    _pod_seen(state, at, event.pod)


def _succeeded(state: AccountantState, pod: PodState) -> None:
    owner = state.presence.owner_of.get(pod.owner_uid, pod.owner_uid)
    if pod.succeeded and owner in state.entries:
        state.entries[owner].succeeded = True


def _pod_seen(state: AccountantState, at: Position, observed: PodState) -> None:
    podasks.note_sharing(state, observed.ref.uid, observed)
    _succeeded(state, observed)
    pod = podasks.counted(state, observed)
    touched(state, at, state.presence.pod_observed(pod))
    left_behind = not pod.owner_uid and podasks.is_left_behind(state, pod.ref.uid)
    if left_behind and not pod.over:
        state.orphans[pod.ref.uid] = pod
        _left_behind(state, at, pod)
    else:
        state.orphans.pop(pod.ref.uid, None)
    left_behind = left_behind and pod.ref.uid not in state.standalone
    cause, alone = Cause(at.seq, at.item), is_alone(pod, state.presence.owner_of) and not left_behind
    if standalone.observed(state.standalone, pod, cause, alone=alone):
        _of_no_job(state, pod.ref.uid)
    if pod.labels.get(SPARK_ROLE) == "driver" and pod.ref.uid in state.presence.owner_of:
        for uid in state.presence.pods.get(pod.ref.uid, ()):  # Executors may come before their driver.
            if state.standalone.pop(uid, None) is not None:
                podasks.answered(state, uid)
                touched(state, at, uid)
    if state.members.observed(pod):
        _of_gang(state, pod.owner_uid)
    if pod.over and pod.owner_uid not in state.presence.pods:
        state.members.left(pod.owner_uid)


def pod_gone(state: AccountantState, at: Position, event: PodGone) -> None:
    podasks.note_sharing(state, event.ref.uid, None)
    holder = state.presence.pod_owner.get(event.ref.uid, "")
    state.orphans.pop(event.ref.uid, None)
    touched(state, at, state.presence.pod_gone(event))
    if holder not in state.presence.pods:
        state.members.left(holder)
    owner = state.members.owners.get(event.ref.uid, "")
    if owner:
        state.members.gone(event.ref.uid)
        _of_gang(state, owner)
    if state.standalone.pop(event.ref.uid, None) is not None:
        _of_no_job(state, event.ref.uid)


def _of_no_job(state: AccountantState, uid: str) -> None:
    """A pod of no job has changed, or now belongs to a job."""
    if uid not in state.standalone:
        podasks.answered(state, uid)
    recheck(state, uid)


def pod_group_observed(state: AccountantState, at: Position, event: PodGroupObserved) -> None:
    """Fold kube-scheduler's verdict on the gang of an admitted job."""
    group, key = event.pod_group, event.pod_group.ref.key
    if not (group.native and group.owner_uid):
        return
    before = state.judged.get(key)
    lacked = before.lacks_since if before is not None and before.uid == group.ref.uid else 0
    since = lacked or at.at if group.verdict is not None and not group.verdict.scheduled else 0
    parts = (group.verdict.reason, group.verdict.message) if group.verdict is not None else ()
    text = ": ".join(filter(None, parts))
    state.judged[key] = Judged(group.ref.uid, group.owner_uid, group.attempt, since, text, group.minimum)
    touched(state, at, group.owner_uid)


def pod_group_gone(state: AccountantState, at: Position, event: PodGroupGone) -> None:
    judged = state.judged.get(event.ref.key)
    if judged is not None and judged.uid == event.ref.uid:
        del state.judged[event.ref.key]
        touched(state, at, judged.owner)


def node_observed(state: AccountantState, at: Position, event: NodeObserved) -> None:
    """A victim on a node that is not ready is awaited no more, and shares are parts of the node's devices. The event is
    folded into the forest already.
    """
    for uid in [*state.sharing_on.get(event.node.ref.name, ())]:
        _pod_seen(state, at, state.sharing[uid])
    for uid in state.ledger.claims.going:
        recheck(state, uid)
    new = state.forest.relabelled.pop(event.node.ref.name, 0) is None
    if new and any(tree.flavors for tree in state.ledger.trees.values()):
        _types_changed(state, event.node.ref.name)


def _types_changed(state: AccountantState, node: str) -> None:
    """The pods of a node may run on another flavor now."""
    for pod in [uid for uid, name in state.members.nodes.items() if name == node]:
        _of_gang(state, state.members.owners[pod])
    for uid in [uid for uid, pod in state.standalone.items() if pod.node == node]:
        recheck(state, uid)


def _of_gang(state: AccountantState, owner: str) -> None:
    """A pod of a gang has gained or lost its node: less than the gang's minimum may be left."""
    uid = state.presence.owner_of.get(owner, owner)
    if uid in state.entries:
        recheck(state, uid)


def queue_observed(state: AccountantState, _at: Position, event: QueueObserved) -> None:
    before = state.paused.pop(event.ref.uid, None)
    if event.paused:
        state.paused[event.ref.uid] = (event.path, event.paused)
    if event.paused or before is not None:
        _pauses_changed(state)


def queue_gone(state: AccountantState, _at: Position, event: QueueGone) -> None:
    if state.paused.pop(event.ref.uid, None) is not None:
        _pauses_changed(state)


def _pauses_changed(state: AccountantState) -> None:
    """A reservation without an admission may have to be released, or may stay; a claim may be over."""
    for uid, entry in state.entries.items():
        if not (entry.admitted or entry.resumed_rv):
            recheck(state, uid)
    for uid in state.ledger.claims.by_uid:
        recheck(state, uid)
