"""How the accountant's state changes with observations, and with the trees in force: one function per event."""

from __future__ import annotations

from muster.core.observed.presence import is_alone
from muster.core.quota.accounting import podasks
from muster.core.quota.accounting.entryfolds import forget
from muster.core.quota.accounting.rechecks import recheck, touched
from muster.core.quota.ledger import standalone
from muster.core.quota.state import (
    AccountantState,
    Entry,
    Judged,
)
from muster.events.base import Cause
from muster.events.decisions import (
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
)
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
    """Charges move to the leaves where the trees in force put them, and everything is looked at again."""
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
    """One that was charged with a fixed size is granted just that once it scales itself: it asks for the size it has
    grown to.
    """
    if elastic is not None and not entry.groups:
        entry.groups = granted_before(entry.fixed, elastic)


def workload_gone(state: AccountantState, at: Position, event: WorkloadGone) -> None:
    uid = event.ref.uid
    state.evictions.pop(uid, None)
    state.service.forget(uid)
    forget(state, uid)
    _forget(state, at, uid)


def unreadable(state: AccountantState, at: Position, event: ObjectUnreadable) -> None:
    """An object that can no longer be read may still run: its charge stays until it is seen to be gone."""
    if event.ref.uid not in state.workloads:
        return
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
    state.scaling.observed(event)
    if owner is not None:
        state.last_child[owner] = event.child.ref.name
        if owner in state.entries:
            _scales_itself(state.entries[owner], event.child.elastic)
        if former != owner:
            touched(state, at, former)
            touched(state, at, event.child.ref.uid)  # It may have been a workload by itself.
    touched(state, at, owner)


def child_gone(state: AccountantState, at: Position, event: ChildGone) -> None:
    state.scaling.forget(event.ref.uid)
    touched(state, at, state.presence.child_gone(event))


def pod_observed(state: AccountantState, at: Position, event: PodObserved) -> None:
    pod = event.pod
    touched(state, at, state.presence.pod_observed(event))
    left_behind = not pod.owner_uid and podasks.is_left_behind(state, pod.ref.uid)
    cause, alone = Cause(at.seq, at.item), is_alone(pod, state.presence.owner_of) and not left_behind
    if standalone.observed(state.standalone, pod, cause, alone=alone):
        _of_no_job(state, pod.ref.uid)
    if pod.labels.get(SPARK_ROLE) == "driver" and pod.ref.uid in state.presence.owner_of:
        for uid in state.presence.pods.get(pod.ref.uid, ()):  # What came before its driver did.
            if state.standalone.pop(uid, None) is not None:
                podasks.answered(state, uid)
                touched(state, at, uid)
    if state.members.observed(pod):
        _of_gang(state, pod.owner_uid)
    if pod.over and pod.owner_uid not in state.presence.pods:
        state.members.left(pod.owner_uid)


def pod_gone(state: AccountantState, at: Position, event: PodGone) -> None:
    holder = state.presence.pod_owner.get(event.ref.uid, "")
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
    """A pod of no job has changed, or is one no more."""
    if uid not in state.standalone:
        podasks.answered(state, uid)
    recheck(state, uid)


def pod_group_observed(state: AccountantState, at: Position, event: PodGroupObserved) -> None:
    """What kube-scheduler says of the gang of a job that was admitted for it to place."""
    found, key = event.pod_group, event.pod_group.ref.key
    if not (found.native and found.owner_uid):
        return
    before = state.judged.get(key)
    lacked = before.lacks_since if before is not None and before.uid == found.ref.uid else 0
    since = lacked or at.at if found.verdict is not None and not found.verdict.scheduled else 0
    said = _said_of(found.verdict) if found.verdict is not None else ""
    state.judged[key] = Judged(found.ref.uid, found.owner_uid, found.attempt, since, said, found.minimum)
    touched(state, at, found.owner_uid)


def pod_group_gone(state: AccountantState, at: Position, event: PodGroupGone) -> None:
    found = state.judged.get(event.ref.key)
    if found is not None and found.uid == event.ref.uid:
        del state.judged[event.ref.key]
        touched(state, at, found.owner)


def _said_of(verdict: Verdict) -> str:
    return ": ".join(each for each in (verdict.reason, verdict.message) if each)


def _of_gang(state: AccountantState, owner: str) -> None:
    """A pod of a gang has a node now, or no longer: matters where less than its minimum may be left."""
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
