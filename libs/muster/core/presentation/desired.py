"""What every job and its QueueUnit should say now, and the Events that tell it."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, to_builtins

from muster.core import explain, explain_nodes
from muster.core.actuation.intents import Known
from muster.core.actuation.patch import stamp_patch
from muster.core.explain import Reason
from muster.core.objects.kubequeue import (
    MAX_POD_SETS,
    Admission,
    QueueUnitStatus,
    queue_name,
)
from muster.core.objects.meta import MAX_NAME, SHOWN, digest, rfc3339
from muster.core.presentation.view import ViewState
from muster.core.queueing.book import as_of_now
from muster.core.queueing.state import Job
from muster.core.quota.ledger import leaf_of
from muster.core.workloads.registry import KINDS
from muster.model import api
from muster.model.api import ApiResource
from muster.model.keys import Ref
from muster.model.resources import texts
from muster.model.text import clean, shorten
from muster.model.workload import PodSet, Workload

Body = dict[str, Any]

MAX_MESSAGE = 1024
"""Bytes of the message of an Event."""


class Upsert(Struct, frozen=True):
    """One object as it should be: created whole when it is missing, else merged into what is there.

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


class Standing(Struct, frozen=True):
    """Where a job stands, as its QueueUnit says it."""

    phase: str
    reason: Reason
    admitted: bool


def standing(state: ViewState, uid: str) -> Standing | None:
    """Where a job stands; None for what was never queued by us."""
    workload, job = state.workloads.get(uid), state.jobs.get(uid)
    if workload is None or not (uid in state.attempts or workload.queued_at):
        return None
    if workload.phase == "finished":
        word = {"succeeded": "Succeed"}.get(workload.outcome, "Failed")
        return Standing(word, Reason(word, word, f"{workload.detail or word}"), admitted=False)
    if uid in state.suspended_outside:
        return Standing("Dequeued", explain.SUSPENDED_OUTSIDE, admitted=True)
    if uid in state.ledger.charges:
        return _charged(state, workload)
    if state.not_before.get(uid, 0) > state.now:
        return Standing("TimeoutBackoff", _backs_off(state, uid), admitted=False)
    if uid in state.troubles:
        trouble = state.troubles[uid]
        code = explain.REFUSED.get(trouble.code, "Refused")
        return Standing("Enqueued", Reason(code, f"{code}:{trouble.text}", trouble.text), admitted=False)
    if job is not None:
        return Standing("Enqueued", waiting_reason(state, job), admitted=False)
    return Standing("Enqueued", explain.waiting_untried(0), admitted=False)


def _charged(state: ViewState, workload: Workload) -> Standing:
    """Of a job that holds quota: how far it has come."""
    uid = workload.ref.uid
    if uid in state.leaving:
        return Standing("Dequeued", state.leaving[uid].reason, admitted=True)
    if not workload.suspended and workload.phase == "running":
        return Standing("Running", explain.RUNNING, admitted=True)
    if uid in state.shortages:
        reason = explain_nodes.waiting_for_nodes(state.shortages[uid], state.pool_words.get(uid, ""))
        return Standing("Enqueued", reason, admitted=False)
    resumed = uid in state.resumed or not workload.suspended
    return Standing("Dequeued" if resumed else "Enqueued", explain.ADMITTED, admitted=resumed)


def _backs_off(state: ViewState, uid: str) -> Reason:
    """Why a job rests before it is queued again."""
    until = rfc3339(state.not_before[uid])
    if uid in state.shortages:
        return explain_nodes.deferred_for_nodes(state.shortages[uid], until, state.pool_words.get(uid, ""))
    if uid in state.leaving:
        return state.leaving[uid].reason
    return explain.resume_failed(state.failure_messages.get(uid, ""), until)


def waiting_reason(state: ViewState, job: Job) -> Reason:
    """Why a job waits: what refused its shape, or that nobody has tried it yet."""
    if not state.synced:
        return explain.waiting_for_sync(sorted(state.unsynced))
    if "admissions" in state.resting(job.queue):
        return explain.paused(job.queue, *pause_of(state, job.queue))
    shape = state.book.shapes.get(job.shape)
    if shape is not None and shape.denial is not None and job.status == "waiting":
        denial, claim = as_of_now(shape.denial, job.queue, state.ledger), state.ledger.claim
        if claim is not None and claim.serves(job.queue, job.demand):
            return explain.waiting_for_claim(denial)
        return explain.waiting_for_quota(denial, claim.ref.key if claim is not None else "")
    return explain.waiting_untried(state.book.position(job.queue, job.place) - 1)


def pause_of(state: ViewState, queue: str) -> tuple[str, str]:
    """Who paused the admissions of a queue, and why, as far as they said."""
    rules = state.ledger.tree.rules if state.ledger.tree else None
    if rules is not None and "admissions" in rules.paused:
        return rules.paused_by, rules.paused_reason
    return state.pauses.get(queue, ("", ""))


def pauses_over(state: ViewState, queue: str = "") -> list[str]:
    """What rests on all of the tree and, for a queue, what rests there on top: a sentence each."""
    rules, found = state.ledger.tree.rules if state.ledger.tree else None, []
    if rules is not None and rules.paused:
        found.append(explain.resting("", rules.paused, rules.paused_by, rules.paused_reason))
    if state.paused.get(queue):
        found.append(explain.resting(queue, state.paused[queue], *state.pauses.get(queue, ("", ""))))
    return found


def queue_unit(state: ViewState, uid: str) -> Upsert | None:
    """The QueueUnit of a job, or None when it should have none or shows what it should."""
    workload, stands = state.workloads.get(uid), standing(state, uid)
    if workload is None or stands is None or workload.ref.kind not in KINDS or workload.deleting:
        return None
    admissions = tuple(
        Admission(_set_name(pods), pods.count, pods.count if stands.phase == "Running" else 0)
        for pods in workload.pod_sets[:MAX_POD_SETS]
        if stands.admitted
    )
    spec = _unit_spec(state, workload)
    shown = digest((stands.phase, stands.reason.key, admissions, spec))
    existing = state.units.get(uid)
    if existing is not None and existing.shown == shown:
        return None
    status = QueueUnitStatus(
        stands.phase, shown_text(stands.reason.text), admissions, rfc3339(state.now // 1000 * 1000)
    )
    return Upsert(
        key=f"unit/{uid}",
        resource=api.QUEUE_UNITS,
        namespace=workload.ref.namespace,
        name=unit_name(workload),
        exists=existing is not None,
        shown=shown,
        metadata={
            "annotations": {SHOWN: shown},
            "labels": dict(workload.labels),
            "ownerReferences": [_owner(workload)],
        },
        spec=spec,
        status=to_builtins(status),
        passing=existing is not None and stands.phase == "Enqueued" and stands.reason.code in _PASSING,
    )


_PASSING = (explain.ADMITTED.code, explain.waiting_untried(0).code)
"""Reasons to wait that are over as soon as the next stage has answered."""


def _unit_spec(state: ViewState, workload: Workload) -> Body:
    """What the job asks for: an edit of a waiting job shows at once, though it waits for the same as before."""
    leaf = leaf_of(state.ledger, workload)
    job, need = state.jobs.get(workload.ref.uid), texts(state.demand_of(workload).request)
    pod_sets = workload.pod_sets[:MAX_POD_SETS]
    return {
        "consumerRef": {
            "apiVersion": workload.api_version,
            "kind": workload.ref.kind,
            "name": workload.ref.name,
            "namespace": workload.ref.namespace,
        },
        "podSet": [{"name": _set_name(pods), "count": pods.count, "template": {}} for pods in pod_sets],
        "priority": job.priority if job is not None else state.priority_of(workload),
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


def _owner(workload: Workload) -> Body:
    return {
        "apiVersion": workload.api_version,
        "kind": workload.ref.kind,
        "name": workload.ref.name,
        "uid": workload.ref.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def queued_stamp(state: ViewState, uid: str) -> tuple[Ref, bytes] | None:
    """The workload and the patch that stores on it when it was queued; None when it is stored or does not wait."""
    workload, job = state.workloads.get(uid), state.jobs.get(uid)
    if workload is None or job is None or job.status == "charged" or workload.queued_at:
        return None
    known = Known(workload.intent, workload.annotated, workload.queued_at, workload.switch)
    return workload.ref, stamp_patch(uid, job.queued_at, known)


_TOLD = (
    "InsufficientQuota",
    "ExceedsMaxQuota",
    "InsufficientMinQuota",
    "ExceedsMinQuota",
    "QuotaHeld",
    "WaitingForClaim",
    "Paused",
    "ResumeFailed",
    "SuspendedOutside",
    "RunningTimeout",
)
"""Reasons that are worth an Event on the job; the others show in the QueueUnit alone."""
_OF_NODES = ("AwaitingNodes", "GangUnschedulable")
"""Reasons that are, too, where node pools have a say: once for each thing they say."""


def leaving_event(state: ViewState, uid: str) -> EventNote | None:
    """The Event that tells a job why it was suspended, and where it stands now; None until it is queued again."""
    workload, job, leaving = state.workloads.get(uid), state.jobs.get(uid), state.leaving.get(uid)
    if workload is None or job is None or leaving is None or job.status != "waiting":
        return None
    place, length = state.book.position(job.queue, job.place), state.book.length(job.queue)
    text = f"{leaving.reason.text}; position {place} of {length} in queue {job.queue}"
    return note_on(state, workload.ref, workload.api_version, leaving.stamp, leaving.reason.code, text)


def job_event(state: ViewState, uid: str) -> EventNote | None:
    """The Event that tells a job why it waits, and where; None when nothing needs telling."""
    workload, stands = state.workloads.get(uid), standing(state, uid)
    pools = state.pool_words.get(uid, "") if stands is not None and stands.reason.code in _OF_NODES else ""
    if workload is None or stands is None or (stands.reason.code not in _TOLD and not pools):
        return None
    job = state.jobs.get(uid)
    text, stamp = stands.reason.text, f"{state.attempts.get(uid, 0)}.{digest(stands.reason.key)}"
    if pools:
        stamp = f"pools.{digest((stands.reason.code, pools))}"
    if job is not None and job.status == "waiting":
        place = state.book.position(job.queue, job.place)
        text = f"{text}; position {place} of {state.book.length(job.queue)} in queue {job.queue}"
        shape = state.book.shapes[job.shape]
        if shape.denial is not None:
            stamp = f"{state.generation}-{shape.denial.cause.seq}-{shape.denial.cause.item}.{digest(stands.reason.key)}"
    return note_on(state, workload.ref, workload.api_version, stamp, stands.reason.code, text)


def note_on(state: ViewState, ref: Ref, api_version: str, stamp: str, reason: str, text: str) -> EventNote:
    """A warning, within what the API server takes of an Event whatever the object is called."""
    base = re.sub(r"[^a-z0-9.-]", "-", ref.name[:200].lower())
    base = re.sub(r"[-.]*\.[-.]*", ".", base).strip("-.") or "object"
    return EventNote(ref, api_version, f"{base}.{stamp}", "Warning", reason, shown_text(text), state.now)


def shown_text(text: str) -> str:
    """A text for an object of the API server: harmless, and as long as the message of an Event may be, in bytes."""
    text = clean(text)
    while len(text.encode()) > MAX_MESSAGE:
        text = shorten(text, len(text) * MAX_MESSAGE // len(text.encode()))
    return text


def trouble_event(state: ViewState, uid: str) -> EventNote | None:
    """The Event that tells an object why it is refused."""
    trouble = state.troubles.get(uid)
    if trouble is None:
        return None
    kind = trouble.ref.kind
    version = KINDS[kind].resource.api_version if kind in KINDS else api.VERSIONS.get(kind, "v1")
    codes = {"tree_rejected": "QuotaTreeRejected", "pools_refused": "NodePoolRefused"}
    code = codes.get(trouble.code) or explain.REFUSED.get(trouble.code, "Refused")
    return note_on(state, trouble.ref, version, digest((trouble.code, trouble.text, uid)), code, trouble.text)
