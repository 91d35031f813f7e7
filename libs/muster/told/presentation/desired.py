"""What every job and its QueueUnit should say now, and the Events that tell it."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, to_builtins

from muster.core.actuation.intents import Known
from muster.core.actuation.patches import stamp_patch
from muster.core.objects.meta import MAX_NAME, SHOWN, digest, rfc3339
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.reading.kubequeue import (
    MAX_POD_SETS,
    Admission,
    QueueUnitStatus,
    queue_name,
)
from muster.core.workloads.registry import KINDS
from muster.model import api
from muster.model.api import ApiResource
from muster.model.keys import Ref
from muster.model.resources import texts
from muster.model.text import clean, shorten
from muster.model.workload import PodSet, Workload
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NoPlace, NotQueued
from muster.told.readmodel.readstate import ReadState, Record, Trouble, waits_since
from muster.told.status.statuses import job_status
from muster.told.wording import explain, jobs, pods, problems, raywords, reasons
from muster.told.wording.explain import Reason

Body = dict[str, Any]

MAX_MESSAGE = 1024
"""Bytes of the message of an Event."""


class DesiredObject(Struct, frozen=True):
    """One object as it should be: created whole when it is missing, else merged into the object that is there.

    ``shown`` is the fingerprint the object carries once it says this.
    """

    key: str
    resource: ApiResource
    namespace: str
    name: str
    exists: bool
    shown: str
    metadata: Body
    spec: Body
    status: Body
    passing: bool = False
    """What it says is about to change: not worth a write unless it stays."""


class EventNote(Struct, frozen=True):
    """A Kubernetes Event on an object. The name is derived from its cause, so that writing it twice makes one."""

    ref: Ref
    api_version: str
    name: str
    type: str
    reason: str
    message: str
    at: int


class UnitState(Struct, frozen=True):
    """What a QueueUnit says of its job: kube-queue's phase, the reason, and whether its pods are admitted."""

    phase: str
    reason: Reason
    admitted: bool
    passing: bool
    """It is over as soon as the next stage has answered."""


def unit_state(state: ReadState, uid: str) -> UnitState | None:
    """The status of the QueueUnit of a job; None for a job that was never queued by us."""
    workload = state.queues.workloads.get(uid)
    if workload is None or not (uid in state.queues.ledger.attempts or workload.queued_at):
        return None
    status = job_status(state, uid)
    reason = jobs.reason(status)
    if status.phase == "finished":
        return UnitState(reason.code, reason, admitted=False, passing=False)
    row, charged = CODES[status.code], status.charge is not None
    phase = "Enqueued"
    if status.phase == "running":
        phase = "Running"
    elif not charged and status.until:
        phase = "TimeoutBackoff"
    elif charged and row.started:
        phase = "Dequeued"
    passing = phase == "Enqueued" and row.lasts == "moment"
    return UnitState(phase, reason, charged and row.started, passing)


def pauses_over(state: ReadState, queue: str = "") -> list[str]:
    """What rests on all of the tree and, for a queue, what rests there on top: a sentence each."""
    tree, found = state.queues.ledger.tree_of(queue) or state.queues.ledger.tree, []
    rules = tree.rules if tree is not None else None
    if rules is not None and rules.paused:
        found.append(explain.resting("", rules.paused, rules.paused_by, rules.paused_reason))
    if state.queues.paused.get(queue):
        found.append(explain.resting(queue, state.queues.paused[queue], *state.queues.pauses.get(queue, ("", ""))))
    return found


def queue_unit(state: ReadState, uid: str) -> DesiredObject | None:
    """The QueueUnit of a job, or None when it should have none or shows what it should."""
    workload, found = state.queues.workloads.get(uid), unit_state(state, uid)
    if workload is None or found is None or workload.ref.kind not in KINDS or workload.deleting:
        return None
    admissions = tuple(
        Admission(_set_name(pods), pods.count, pods.count if found.phase == "Running" else 0)
        for pods in workload.pod_sets[:MAX_POD_SETS]
        if found.admitted
    )
    spec = _unit_spec(state, workload)
    shown = digest((found.phase, found.reason.key, admissions, spec))
    existing = state.units.get(uid)
    if existing is not None and existing.shown == shown:
        return None
    status = QueueUnitStatus(found.phase, shown_text(found.reason.text), admissions, rfc3339(state.now // 1000 * 1000))
    return DesiredObject(
        key=f"unit/{uid}",
        resource=api.QUEUE_UNITS,
        namespace=workload.ref.namespace,
        name=unit_name(workload),
        exists=existing is not None,
        shown=shown,
        metadata={
            "annotations": {SHOWN: shown},
            "labels": dict(workload.labels),
            "ownerReferences": [owner_of(workload)],
        },
        spec=spec,
        status=to_builtins(status),
        passing=existing is not None and found.passing,
    )


def _unit_spec(state: ReadState, workload: Workload) -> Body:
    """What the job asks for: an edit of a waiting job shows at once, though it waits for the same as before."""
    leaf = leaf_of(state.queues.ledger, workload)
    job, need = state.queues.jobs.get(workload.ref.uid), texts(state.queues.demand_of(workload).request)
    pod_sets = workload.pod_sets[:MAX_POD_SETS]
    return {
        "consumerRef": {
            "apiVersion": workload.api_version,
            "kind": workload.ref.kind,
            "name": workload.ref.name,
            "namespace": workload.ref.namespace,
        },
        "podSet": [{"name": _set_name(pods), "count": pods.count, "template": {}} for pods in pod_sets],
        "priority": job.priority if job is not None else state.queues.priority_of(workload),
        "queue": queue_name(leaf) if leaf else "",
        "resource": need,
        "request": need,
        **({"priorityClassName": workload.priority_class} if workload.priority_class else {}),
    }


def unit_name(workload: Workload) -> str:
    """Name of the QueueUnit of a job: its own name and the suffix of its kind, at most 253 characters.

    Of a name that has to be cut, a fingerprint keeps what was lost: two jobs never share a QueueUnit.
    """
    name, suffix = workload.ref.name, KINDS[workload.ref.kind].unit_suffix
    if len(name) + len(suffix) <= MAX_NAME:
        return name + suffix
    mark = f"-{digest(name)}{suffix}"
    return name[: MAX_NAME - len(mark)].rstrip("-.") + mark


def _set_name(pods: PodSet) -> str:
    """The name of a pod set as a QueueUnit takes it: at most 63 characters."""
    return clean(pods.name)[:63]


def owner_of(workload: Workload) -> Body:
    return {
        "apiVersion": workload.api_version,
        "kind": workload.ref.kind,
        "name": workload.ref.name,
        "uid": workload.ref.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def refused_elsewhere(state: ReadState, cleared: dict[str, None]) -> list[str]:
    """Uids of the waiting jobs that are refused by another limit than at the last look, or by none.

    ``cleared``: keys of the refused shapes whose first refusal had room then; brought up to date.
    """
    shapes = state.queues.book.shapes
    now = dict.fromkeys(state.queues.book.awake(state.queues.ledger))
    moved = [key for key in (*now, *cleared) if (key in now) != (key in cleared) and key in shapes]
    cleared.clear()
    cleared.update(now)
    return [place.uid for key in moved for place in shapes[key].waiting]


def queued_stamp(state: ReadState, uid: str) -> tuple[Ref, bytes] | None:
    """The workload and the patch that stores on it when it was queued; None when it is stored or does not wait."""
    workload, job = state.queues.workloads.get(uid), state.queues.jobs.get(uid)
    if workload is None or job is None or job.status == "charged" or workload.queued_at:
        return None
    known = Known(workload.intent or None, workload.annotated, workload.queued_at, workload.switch)
    return workload.ref, stamp_patch(uid, job.queued_at, known)


WAITED_MS = 2_000
"""A job that waited this long may have an Event that says why."""
ADMITTED_MS = 300_000
"""How long after an admission an Event says so: Events last an hour, and are not made again for old admissions."""


def leaving_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job why it was suspended, and its status now; None until it is queued again."""
    workload, job, leaving = state.queues.workloads.get(uid), state.queues.jobs.get(uid), state.leaving.get(uid)
    if workload is None or job is None or leaving is None or job.status != "waiting":
        return None
    place, length = state.queues.book.position(job.queue, job.place), state.queues.book.length(job.queue)
    text = explain.in_place(explain.leaving(leaving).text, place, length, job.queue)
    return note_on(state, workload.ref, workload.api_version, leaving.stamp, leaving.code, text)


def admitted_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job that it is admitted, so that the newest one on it is not a refusal.

    None for a job that was admitted at once (no Event came before), and for one that was long ago.
    """
    workload, record, job = state.queues.workloads.get(uid), state.records.get(uid), state.queues.jobs.get(uid)
    charge = state.queues.ledger.charges.get(uid)
    if workload is None or record is None or job is None or charge is None or not record.admitted_at:
        return None
    waited, ago = max(0, record.admitted_at - waits_since(state, job)), state.now - record.admitted_at
    if ago > ADMITTED_MS or (waited < WAITED_MS and not _was_refused(record)):
        return None
    reason = explain.admitted(job.queue, charge.request, waited)
    stamp = f"{job.attempt}.admitted.{record.admitted_at}"
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, reason.text, kind="Normal")


def _was_refused(record: Record) -> bool:
    """Whether it was refused itself since it was queued."""
    for each in reversed(record.happenings):
        if each.what == "quota_denied":
            return True
        if each.what == "workload_queued":
            return False
    return False


def overuse_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job that it runs without an admission, or with more than its grant: one an amount."""
    workload, charge = state.queues.workloads.get(uid), state.queues.ledger.charges.get(uid)
    if workload is None or charge is None:
        return None
    record = state.records.get(uid)
    if charge.over:
        reason = explain.beyond_grant(charge.over, charge.granted)
    elif record is not None and record.adoption == "bypassed" and uid not in state.leaving:
        reason = jobs.reason(job_status(state, uid))
    else:
        return None
    return note_on(state, workload.ref, workload.api_version, digest((uid, reason.key)), reason.code, reason.text)


def alarm_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job what is wrong with its Ray cluster; one for each alarm."""
    workload, record = state.queues.workloads.get(uid), state.records.get(uid)
    if workload is None or record is None or record.growth.alarm is None:
        return None
    alarm = record.growth.alarm
    reason = raywords.alarm_reason(alarm)
    stamp = digest((uid, alarm.cluster.uid, reason.code, alarm.since))
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, reason.text)


def pods_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job what keeps its pods from running, or made it fail; one for each cause and attempt."""
    workload = state.queues.workloads.get(uid)
    if workload is None:
        return None
    status = job_status(state, uid)
    held = status.pods
    if held is None or held.code == "InitWaiting":
        return None
    reason, over = pods.reason(held), "failed" if status.phase == "finished" else "pods"
    stamp = f"{status.attempt}.{over}.{held.code.lower()}"
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, reason.text)


def job_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells a job why it waits, and where; None when nothing needs telling."""
    workload = state.queues.workloads.get(uid)
    if workload is None or not (uid in state.queues.ledger.attempts or workload.queued_at):
        return None
    status = job_status(state, uid)
    row, values = CODES[status.code], status.values
    pools = jobs.pools(values.pools) if isinstance(values, NoPlace) else ""  # Once for each thing that pools say.
    if isinstance(values, NotQueued) or (row.event != "while" and not pools):  # trouble_event tells a refusal.
        return None
    reason = jobs.reason(status)
    text, stamp = reason.text, f"{status.attempt}.{digest(reason.key)}"
    if pools:
        stamp = f"pools.{digest((reason.code, pools))}"
    if status.line.position:
        text = explain.in_place(text, status.line.position, status.line.length, status.queue)
    cause = status.short.cause if status.short is not None else None
    if cause is not None:
        stamp = f"{state.generation}-{cause.seq}-{cause.item}.{digest(reason.key)}"
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, text)


def note_on(
    state: ReadState, ref: Ref, api_version: str, stamp: str, reason: str, text: str, *, kind: str = "Warning"
) -> EventNote:
    """An Event, within what the API server takes of an Event whatever the object is called."""
    base = re.sub(r"[^a-z0-9.-]", "-", ref.name[:200].lower())
    base = re.sub(r"[-.]*\.[-.]*", ".", base).strip("-.") or "object"
    return EventNote(ref, api_version, f"{base}.{stamp}", kind, reason, shown_text(text), state.now)


def shown_text(text: str) -> str:
    """A text for an object of the API server: harmless, and as long as the message of an Event may be, in bytes."""
    text = clean(text)
    while len(text.encode()) > MAX_MESSAGE:
        text = shorten(text, len(text) * MAX_MESSAGE // len(text.encode()))
    return text


def trouble_reason(trouble: Trouble) -> Reason:
    """What is wrong with an object, in words."""
    refusal, ref = trouble.refusal, trouble.ref
    if refusal is not None:
        return explain.trouble(trouble.code, [reasons.refused(refusal, ref.kind, ref.key)], trouble.more)
    return explain.trouble(trouble.code, list(map(problems.line, trouble.found)), trouble.more)


def trouble_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event that tells an object why it is refused."""
    trouble = state.troubles.get(uid)
    if trouble is None:
        return None
    kind = trouble.ref.kind
    version = KINDS[kind].resource.api_version if kind in KINDS else api.VERSIONS.get(kind, "v1")
    reason, stamp = trouble_reason(trouble), digest((trouble, uid))
    return note_on(state, trouble.ref, version, stamp, reason.code, reason.text)
