"""The desired state of every job and QueueUnit on the API server, and the Events of jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from msgspec import Struct, convert, to_builtins

from muster.core.actuation.intents import Known
from muster.core.actuation.patches import stamp_patch
from muster.core.objects.meta import GANG_SWITCH, MAX_NAME, SHOWN, TIMES, digest, is_label_value, rfc3339, sealed
from muster.core.quota import demand
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.reading.kubequeue import (
    MAX_POD_SETS,
    Admission,
    QueueUnitSpec,
    QueueUnitStatus,
    queue_name,
    unit_content,
)
from muster.core.workloads.registry import KINDS, is_job, suffix_of
from muster.events.elastic import GrowthDenied, GrowthGranted
from muster.model import api
from muster.model.api import ApiResource
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.model.quota import ROOT
from muster.model.resources import texts
from muster.model.text import clean, shorten
from muster.model.workload import PodSet, Workload
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NoPlace, NotQueued
from muster.told.readmodel.readstate import ReadState, Record, Trouble, waits_since
from muster.told.status.statuses import job_status
from muster.told.status.unfit import unfit
from muster.told.wording import explain, jobs, meanings, pods, problems, queuewords, raywords, reasons
from muster.told.wording.explain import Reason

Body = dict[str, Any]

MAX_MESSAGE = 1024
"""Bytes of the message of an Event."""


class ObjectVersion(Struct, frozen=True):
    """An object of the API server: which one, and its resourceVersion."""

    uid: str
    rv: int


class DesiredObject(Struct, frozen=True):
    """One desired object: created whole when missing, else merged into the existing object.

    ``shown`` is the fingerprint of the desired state, stored on the object.
    """

    key: str
    resource: ApiResource
    namespace: str
    name: str
    seen: ObjectVersion | None
    """The object as observed last; None: missing."""
    shown: str
    metadata: Body
    spec: Body
    status: Body
    passing: bool = False
    """The shown state is about to change: not worth a write unless the state stays."""

    @property
    def body(self) -> Body:
        """The written fields."""
        return {"metadata": self.metadata, "spec": self.spec, "status": self.status}


class EventNote(Struct, frozen=True):
    """A Kubernetes Event on an object. The name is derived from the cause, so that writing the Event twice makes one
    Event.
    """

    ref: Ref
    api_version: str
    name: str
    type: str
    reason: str
    message: str
    at: int


class UnitState(Struct, frozen=True):
    """The state of a QueueUnit: kube-queue's phase, the reason, and whether the pods of the job are admitted."""

    phase: str
    reason: Reason
    admitted: bool
    passing: bool
    """The state ends as soon as the next stage has answered."""
    place: str = ""
    """About the place in the queue, as the end of a sentence; empty for a job that does not wait in a queue."""


def unit_state(state: ReadState, uid: str) -> UnitState | None:
    """The state of the QueueUnit of a job. None for a job that Muster never queued."""
    workload = state.queues.workloads.get(uid)
    if workload is None or not (uid in state.queues.ledger.attempts or workload.queued_at):
        return None
    status = job_status(state, uid)
    reason = jobs.reason(status)
    if status.phase == "finished":
        return UnitState(reason.code, reason, admitted=False, passing=False)
    reason = jobs.with_the_rest(reason, status)
    row, charged = CODES[status.code], status.charge is not None
    phase = "Enqueued"
    if status.phase == "running":
        phase = "Running"
    elif not charged and status.until:
        phase = "TimeoutBackoff"
    elif charged and row.started:
        phase = "Dequeued"
    passing = phase == "Enqueued" and row.lasts == "moment"
    job, place = state.queues.jobs.get(uid), ""
    if status.line.position and job is not None and not state.queues.is_blocking(job.queue):
        near = nearly(state.queues.book.position(job.queue, job.place))
        place = explain.nearly_in_place(*near, status.queue)
    return UnitState(phase, reason, charged and row.started, passing, place)


NEAR = 64
"""Places in a queue beyond this are not told apart in a QueueUnit."""


def nearly(position: int) -> tuple[int, int]:
    """The first and the last of the places that a QueueUnit does not tell apart: 1, 2 to 4, 5 to 16, 17 to 64, more.

    A QueueUnit is written when such a step changes, and at no other move: a start of one job in a queue of any length
    moves four other jobs over a step. The last place of the last step is 0.
    """
    first, last = 1, 1
    while position > last and last < NEAR:
        first, last = last + 1, last * 4
    return (first, last) if position <= last else (NEAR + 1, 0)


def moved_up(state: ReadState, queue: str, before: dict[str, dict[str, int]]) -> list[str]:
    """Uids of the jobs of a queue on another step than at the last look. ``before``: queue -> {uid: step}; updated."""
    line = islice(state.queues.book.in_order(queue), NEAR)
    now = {place.uid: nearly(index)[0] for index, (place, _) in enumerate(line, 1)}
    last = before.pop(queue, {})
    if now:
        before[queue] = now
    return [uid for uid in now | last if now.get(uid) != last.get(uid)]


def pauses_over(state: ReadState, queue: str = "") -> list[str]:
    """The pauses of the whole tree and, for a queue, the pauses of the queue: one sentence for each pause."""
    tree, pauses = state.queues.ledger.tree_of(queue) or state.queues.ledger.tree, []
    rules = tree.rules if tree is not None else None
    if rules is not None and rules.paused:
        pauses.append(explain.resting("", rules.paused, rules.paused_by, rules.paused_reason))
    if state.queues.paused.get(queue):
        pauses.append(explain.resting(queue, state.queues.paused[queue], *state.queues.pauses.get(queue, ("", ""))))
    return pauses


def queue_unit(state: ReadState, uid: str) -> DesiredObject | None:
    """The QueueUnit of a job. None when the job should have none, or when the existing QueueUnit is up to date."""
    workload, unit = state.queues.workloads.get(uid), unit_state(state, uid)
    if workload is None or unit is None or not is_job(workload.ref.kind) or workload.deleting:
        return None
    admissions = tuple(
        Admission(_set_name(pods), pods.count, pods.count if unit.phase == "Running" else 0)
        for pods in workload.pod_sets[:MAX_POD_SETS]
        if unit.admitted
    )
    spec = _unit_spec(state, workload)
    shown = digest((unit.phase, unit.reason.key, unit.place, admissions, spec))
    existing = state.units.get(uid)
    if existing is not None and existing.shown == shown:
        return None
    status = QueueUnitStatus(
        unit.phase, shown_text(f"{unit.reason.text}{unit.place}"), admissions, rfc3339(state.now // 1000 * 1000)
    )
    labels, free = labels_and_texts(workload.labels)
    return DesiredObject(
        key=f"unit/{uid}",
        resource=api.QUEUE_UNITS,
        namespace=workload.ref.namespace,
        name=unit_name(workload),
        seen=ObjectVersion(existing.ref.uid, existing.rv) if existing is not None else None,
        shown=shown,
        metadata={
            "annotations": {SHOWN: sealed(shown, unit_content(convert(spec, QueueUnitSpec), status)), **free},
            "labels": labels,
            "ownerReferences": [owner_of(workload)],
        },
        spec=spec,
        status=to_builtins(status),
        passing=existing is not None and unit.passing,
    )


def labels_and_texts(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(labels, annotations) of an object with these labels of a job: what users may write freely is an annotation."""
    free = {key: text for key, text in labels.items() if key in TIMES or not is_label_value(text)}
    return {key: text for key, text in labels.items() if key not in free}, free


def _unit_spec(state: ReadState, workload: Workload) -> Body:
    """The spec of a QueueUnit. An edit of a waiting job shows at once, even if the job waits for the same limit as
    before.
    """
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
    """Name of the QueueUnit of a job: the name of the job and the suffix of the kind, at most 253 characters.

    A name that is too long is cut and ends in a fingerprint of the name: two jobs never share a QueueUnit.
    """
    name, suffix = workload.ref.name, suffix_of(workload.ref.kind)
    if len(name) + len(suffix) <= MAX_NAME:
        return name + suffix
    mark = f"-{digest(name)}{suffix}"
    return name[: MAX_NAME - len(mark)].rstrip("-.") + mark


def _set_name(pods: PodSet) -> str:
    """The name of a pod set in a QueueUnit: at most 63 characters."""
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
    """Uids of the waiting jobs that another limit refuses than at the last look, or no limit.

    ``cleared``: keys of the refused shapes whose first refusal had room at the last look; brought up to date.
    """
    shapes = state.queues.book.shapes
    now = dict.fromkeys(state.queues.book.awake(state.queues.ledger))
    moved = [key for key in (*now, *cleared) if (key in now) != (key in cleared) and key in shapes]
    cleared.clear()
    cleared.update(now)
    return [place.uid for key in moved for place in shapes[key].waiting]


def run_elsewhere(state: ReadState, before: dict[str, None]) -> list[str]:
    """Uids of the waiting jobs that no node could run at the last look and can now, or the reverse.

    ``before``: the jobs that no node could run; brought up to date.
    """
    queued = (uid for uid, job in state.queues.jobs.items() if job.status != "charged")
    waiting = (uid for uid in (*queued, *state.queues.unplaced) if uid in state.queues.workloads)
    now = {uid: None for uid in waiting if unfit(state.nodes, state.queues.workloads[uid]) is not None}
    moved = [uid for uid in (*now, *before) if (uid in now) != (uid in before)]
    before.clear()
    before.update(now)
    return moved


def queued_stamp(state: ReadState, uid: str) -> tuple[Ref, bytes] | None:
    """The workload and the patch with the queueing time. None when the time is stored or the job does not wait."""
    workload, job = state.queues.workloads.get(uid), state.queues.jobs.get(uid)
    if workload is None or job is None or job.status == "charged" or workload.queued_at:
        return None
    known = Known(workload.intent or None, workload.annotated, workload.queued_at, workload.switch)
    return workload.ref, stamp_patch(uid, job.queued_at, known)


WAITED_MS = 2_000
"""A job that waited this long may have an Event with the reason."""
ADMITTED_MS = 300_000
"""How long after an admission an Event says so: Events last an hour, and are not made again for old admissions."""


def leaving_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event with the reason of a suspension and the status now. None until the job is queued again."""
    workload, job, leaving = state.queues.workloads.get(uid), state.queues.jobs.get(uid), state.leaving.get(uid)
    if workload is None or job is None or leaving is None or job.status != "waiting":
        return None
    place, length = state.queues.book.position(job.queue, job.place), state.queues.book.length(job.queue)
    text = explain.in_place(meanings.leaving(leaving).text, place, length, job.queue)
    return note_on(state, workload.ref, workload.api_version, leaving.stamp, leaving.code, text)


def admitted_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event for the admission of a job, so that the newest Event on the job is not a refusal.

    None for a job that was admitted at once (no Event came before), and for an admission long ago.
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
    """Whether the job itself was refused since it was queued."""
    for happening in reversed(record.past.all()):
        if happening.what == "quota_denied":
            return True
        if happening.what == "workload_queued":
            return False
    return False


def overuse_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event for a job that runs without an admission, or with more than the grant: one Event for each amount.

    A job that ran when the cluster was first listed has no such Event: no user went around Muster then.
    """
    workload, charge = state.queues.workloads.get(uid), state.queues.ledger.charges.get(uid)
    if workload is None or charge is None:
        return None
    record, told = state.records.get(uid), job_status(state, uid).charge
    if told is not None and told.beyond:
        reason = explain.beyond_grant(told.beyond, told.granted, charge.queue, told.back_at)
    elif (
        record is not None
        and uid not in state.leaving
        and (record.adoption == "bypassed" or (record.adoption == "already_running" and record.came))
    ):
        reason = jobs.reason(job_status(state, uid))
    else:
        return None
    return note_on(state, workload.ref, workload.api_version, digest((uid, reason.key)), reason.code, reason.text)


def size_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event for growth that was denied or granted, for a waiting upgrade, or for released workers; one for each
    change.
    """
    workload, record = state.queues.workloads.get(uid), state.records.get(uid)
    if workload is None or record is None or record.change is None or uid not in state.queues.ledger.charges:
        return None
    event, at = record.change.event, record.change.at
    open_denial = record.growth.denied is not None if isinstance(event, GrowthDenied) else False
    recent = not isinstance(event, GrowthDenied) and state.now - record.change.time <= ADMITTED_MS
    if not (open_denial or recent):
        return None
    reason = raywords.size_reason(event)
    stamp, kind = f"{state.generation}-{at.seq}-{at.item}", "Normal" if isinstance(event, GrowthGranted) else "Warning"
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, reason.text, kind=kind)


def alarm_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event for the alarm of a job's Ray cluster; one for each alarm."""
    workload, record = state.queues.workloads.get(uid), state.records.get(uid)
    if workload is None or record is None or record.growth.alarm is None:
        return None
    alarm = record.growth.alarm
    reason = raywords.alarm_reason(alarm)
    stamp = digest((uid, alarm.cluster.uid, reason.code, alarm.since))
    return note_on(state, workload.ref, workload.api_version, stamp, reason.code, reason.text)


def pods_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event with the trouble that keeps pods from running or made the job fail; one for each cause and attempt."""
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


MOST_LOWERED = 5
"""Queues named in the Event of a tree."""


def tree_event(state: ReadState) -> EventNote | None:
    """The Event for nodes that cannot serve, on a tree whose root follows the nodes; one for each change."""
    tree = state.queues.ledger.trees.get(ROOT)
    if tree is None or tree.shared is None or not tree.rules.capacity:
        return None
    whole = tree.nodes[0].limit
    lacks = {name: whole[name] - amount for name, amount in tree.shared.items()}
    lacking = [(name, amount, whole[name]) for name, amount in lacks.items() if amount > 0]
    lowered = [
        queuewords.owed_now(node.path, node.owes.get(name, 0), least, name)
        for node in tree.nodes
        for name, least in node.guaranteed.items()
        if node.owes.get(name, 0) < least
    ]
    text = queuewords.capacity_lowered(lacking, lowered[:MOST_LOWERED], len(lowered[MOST_LOWERED:]))
    stamp = f"capacity.{digest((tree.ref.uid, tree.shared, tree.nodes[0].limit))}"
    return note_on(state, tree.ref, api.QUOTA_TREES.api_version, stamp, "CapacityLowered", text)


def settings_left_out(state: ReadState, uid: str) -> list[str]:
    """A sentence for each setting of a job that cannot be read, or is not followed here."""
    workload = state.queues.workloads.get(uid)
    if workload is None:
        return []
    wrong, gang = [*demand.settings_left_out(workload)], workload.labels.get(GANG_SWITCH)
    if leaf := leaf_of(state.queues.ledger, workload):
        wrong += demand.flavors_left_out(state.queues.ledger.tree_of(leaf), leaf, workload)
    if gang is not None and not state.gangs_placed:
        wrong.append(problem(GANG_SWITCH, "gangs_not_placed", value=gang))
    if not state.placement:
        wrong += [problem("", "shares_not_given", value=name) for name in _sharing_unplaced(workload)]
    return [*map(problems.left_out, wrong)]


def _sharing_unplaced(workload: Workload) -> list[str]:
    """The pod sets that ask for a share of a GPU and name no scheduler that gives one."""
    unnamed = {template.pods for template in workload.switch.templates if not (template.named or template.elsewhere)}
    sharing = [pods.name for pods in workload.pod_sets if pods.rules.share or pods.rules.gpu_memory]
    return [name for name in sharing if name.lower()[:MAX_NAME] in unnamed]


def settings_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event with the settings of a job that cannot be read; one for each set of values."""
    workload, texts_told = state.queues.workloads.get(uid), settings_left_out(state, uid)
    if workload is None or not texts_told:
        return None
    stamp = f"settings.{digest(texts_told)}"
    return note_on(state, workload.ref, workload.api_version, stamp, "SettingIgnored", "; ".join(texts_told))


def job_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event with the reason and the place of a waiting job. None when the status needs no Event."""
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
    """An Event within the length limits of the API server for names and messages."""
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
    """The problem of an object in words."""
    refusal, ref = trouble.refusal, trouble.ref
    if refusal is not None:
        return explain.trouble(trouble.code, [reasons.refused(refusal, ref.kind, ref.key)], trouble.more)
    return explain.trouble(trouble.code, list(map(problems.line, trouble.found)), trouble.more)


def trouble_event(state: ReadState, uid: str) -> EventNote | None:
    """The Event with the refusal of an object."""
    trouble = state.troubles.get(uid)
    if trouble is None:
        return None
    kind = trouble.ref.kind
    version = KINDS[kind].resource.api_version if kind in KINDS else api.VERSIONS.get(kind, "v1")
    reason, stamp = trouble_reason(trouble), digest((trouble, uid))
    return note_on(state, trouble.ref, version, stamp, reason.code, reason.text)
