"""The one patch that resumes or suspends a workload, and what its answer means.

The API server is fenced too: every write tests the uid, the generation at which the object was read, and the annotation
``muster.dev/intent``, and replaces the latter by the decision it carries out. A write by a stale leader, or for a spec
that was edited meanwhile, changes nothing. The input of the decision is known by its digest (``basis``): where only the
generation has grown, because a controller wrote a default, the patch is built again on the object as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from muster.core.actuation.answers import Effect, RetryLater, absent, applied, failed, meta_of, said
from muster.core.actuation.gathering import group_name, groups
from muster.core.actuation.gating import SCALED, Op, annotate, gate_notes, gate_ops, opening, pointer
from muster.core.actuation.intents import Known, known_of
from muster.core.actuation.orders import Outstanding
from muster.core.objects.kaiqueue import POD_GROUP_NAME
from muster.core.objects.meta import (
    DEQUEUE_STAMPS,
    DEQUEUED_AT,
    ENQUEUE_STAMPS,
    GANG,
    INTENT,
    QUEUED_AT,
    SCHEDULING_GROUP,
    SUSPEND,
    UnreadableError,
    first_stamp,
    go_time,
    rfc3339,
)
from muster.core.workloads.registry import KINDS
from muster.core.workloads.steering import SCHEDULER
from muster.model.keys import Intent
from muster.model.problem import problem
from muster.model.workload import Switch, Template, Workload

NEVER = -1
"""A generation that no object has."""


def patch_for(order: Outstanding, known: Known) -> bytes:
    """The JSON patch that carries a decision out."""
    return resume_patch(order, known) if order.action == "resume" else suspend_patch(order, known)


def suspend_patch(order: Outstanding, known: Known) -> bytes:
    """The JSON patch that suspends the workload again; what it says of its place in the queue stays."""
    stamps = {INTENT: str(order.intent), **marked(known.switch, suspended=True)}
    switch = switched(order.ref.kind, known.switch, suspended=True)
    return _encode([*_fence(order.ref.uid, None, known), *annotate(stamps, annotated=known.annotated), *switch])


def resume_patch(order: Outstanding, known: Known) -> bytes:
    """The JSON patch that resumes the workload, fenced against everything but the object as ``known``.

    It changes nothing where the object is known to differ from the decision's input.
    """
    dequeued_at = max(order.at, order.queued_at + 1)
    stamps = {
        INTENT: str(order.intent),
        DEQUEUED_AT: rfc3339(dequeued_at),
        DEQUEUE_STAMPS[0]: go_time(dequeued_at),
    }
    if not known.queued_at and order.queued_at:
        stamps[QUEUED_AT] = rfc3339(order.queued_at)
        stamps[ENQUEUE_STAMPS[0]] = go_time(order.queued_at)
    stamps |= marked(known.switch, suspended=False)
    gate: list[Op] = []
    if known.elastic is not None:
        most = opening(known.elastic)
        stamps |= gate_notes(most, known.elastic, order.intent)
        gate = gate_ops(most, known.elastic, SCALED[order.ref.kind])
    switch = switched(order.ref.kind, known.switch, suspended=False)
    marks = {GANG: order.ref.name, **({POD_GROUP_NAME: order.pod_group} if order.pod_group else {})}
    steer = steered(known.switch, marks) if order.placed else []
    own = group_name(order.ref)
    if order.together and groups(order, known):
        steer = grouped(known.switch, own)
    else:
        steer += ungrouped(known.switch, own)
    fence = _fence(order.ref.uid, known.generation if known.basis == order.basis else NEVER, known)
    return _encode([*fence, *annotate(stamps, annotated=known.annotated), *gate, *switch, *steer])


def steered(switch: Switch, marks: dict[str, str]) -> list[Op]:
    """Operations that write into the descriptions of its pods that we place them, and the marks of their gang.

    They stay when it is suspended again: the next admission places it from the same descriptions.
    """
    ops: list[Op] = []
    for template in _open(switch):
        if not (template.named or template.fixed):
            spec = "" if template.flat else "/spec"
            ops.append({"op": "add", "path": f"{template.at}{spec}/schedulerName", "value": SCHEDULER})
        if not template.marked:
            ops += _noted(template, marks)
    return ops


def grouped(switch: Switch, group: str) -> list[Op]:
    """Operations that write into the descriptions of its pods which PodGroup of Kubernetes itself they are of.

    The annotation is for descriptions that have no such field, or whose spec is immutable: a policy of
    ``deploy/policies`` makes the field of a pod of it.
    """
    ops: list[Op] = []
    for template in _open(switch):
        if not (template.flat or template.fixed):
            path = f"{template.at}/spec/schedulingGroup"
            ops.append({"op": "add", "path": path, "value": {"podGroupName": group}})
        ops += _noted(template, {SCHEDULING_GROUP: group})
    return ops


def ungrouped(switch: Switch, group: str) -> list[Op]:
    """Operations that remove the values of ``grouped``: another scheduler places its pods this time."""
    ops: list[Op] = []
    for template in _open(switch):
        if template.group == group:
            ops.append({"op": "remove", "path": f"{template.at}/spec/schedulingGroup"})
        if template.noted:
            path = pointer(SCHEDULING_GROUP, "" if template.flat else "/metadata")
            ops.append({"op": "add", "path": f"{template.at}{path}", "value": ""})
    return ops


def _open(switch: Switch) -> Iterator[Template]:
    """The descriptions that can be changed."""
    return (template for template in switch.templates if not template.sealed)


def _noted(template: Template, marks: dict[str, str]) -> list[Op]:
    metadata = "" if template.flat else "/metadata"
    if template.annotations:
        return [
            {"op": "add", "path": f"{template.at}{pointer(key, metadata)}", "value": text}
            for key, text in marks.items()
        ]
    if template.metadata or template.flat:
        return [{"op": "add", "path": f"{template.at}{metadata}/annotations", "value": marks}]
    return [{"op": "add", "path": f"{template.at}{metadata}", "value": {"annotations": marks}}]


def switched(kind: str, switch: Switch, *, suspended: bool) -> list[Op]:
    """Operations that set the field which suspends a kind. One that is not there resumes nothing by being set."""
    path = KINDS[kind].suspend_path
    home, _, field = path.rpartition("/")
    if not switch.suspend_parent_missing:
        return [{"op": "add", "path": path, "value": suspended}]
    return [{"op": "add", "path": home, "value": {field: True}}] if suspended else []


def marked(switch: Switch, *, suspended: bool) -> dict[str, str]:
    """The annotation that suspends it for operators that know no field, where it is in use."""
    return {SUSPEND: "true" if suspended else "false"} if switch.annotation else {}


def stamp_patch(uid: str, queued_at: int, known: Known) -> bytes:
    """The JSON patch that stores on a waiting workload when it was queued, so that its place survives the log."""
    stamps = {QUEUED_AT: rfc3339(queued_at), ENQUEUE_STAMPS[0]: go_time(queued_at)}
    return _encode([*_fence(uid, None, known), *annotate(stamps, annotated=known.annotated)])


def _fence(uid: str, generation: int | None, known: Known) -> list[Op]:
    """Tests that only the object as known passes: this uid, this spec, our previous intent or none."""
    ops: list[Op] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if generation is not None:
        ops.append({"op": "test", "path": "/metadata/generation", "value": generation})
    if known.intent is not None:
        ops.append({"op": "test", "path": pointer(INTENT), "value": known.intent})
    elif known.annotated:
        ops.append({"op": "test", "path": pointer(INTENT), "value": None})
    else:
        ops.append({"op": "test", "path": "/metadata/annotations", "value": None})
    return ops


def _encode(ops: list[Op]) -> bytes:
    return msgspec.json.encode(ops, order="deterministic")


def after_reread(
    order: Outstanding, tried: Known, end: int, status: int, body: bytes, refusal: str
) -> Effect | RetryLater | Known:
    """What the object says about a patch that did not pass: an answer, or what to build the next patch on.

    ``tried``: what the patch was built on; if the object is just that, the tests passed and the API server refused
    the change itself. ``refusal``: its message. ``end``: sequence up to which our own log is known.
    """
    none = absent(order, status, body)
    if none is not None:
        return none
    meta = meta_of(body)
    if meta.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    stored = Intent.parse(meta.annotations.get(INTENT, ""))
    if stored == order.intent:
        return applied(order, meta.rv)
    if stored is not None and stored.generation > order.intent.generation:
        generation = order.intent.generation
        why = problem("", "intent_of_newer_log", key=INTENT, decision=str(stored), generation=generation)
        return failed(order, "refused", why)
    if stored is not None and stored > order.intent and stored.seq <= end:
        return failed(order, "superseded", problem("", "decision_superseded", decision=str(stored)))
    if order.basis is None:
        found = Known(
            intent=meta.annotations.get(INTENT),
            annotated=bool(meta.annotations),
            queued_at=first_stamp(meta.annotations, QUEUED_AT, *ENQUEUE_STAMPS),
            switch=replace(tried.switch, annotation=SUSPEND in meta.annotations),
        )
        same = (found.intent, found.annotated) == (tried.intent, tried.annotated)
    else:
        try:
            workload = KINDS[order.ref.kind].read(body)
        except UnreadableError as err:
            return failed(order, "spec_changed", problem("", "spec_unreadable", err.problem))
        if not isinstance(workload, Workload) or workload.basis != order.basis:
            return failed(order, "spec_changed", problem("", "spec_edited", generation=meta.generation))
        # As it is on the server: another client may have removed it, or written more than a fact keeps of it.
        found = replace(known_of(workload), intent=meta.annotations.get(INTENT))
        same = (found.intent, found.annotated, found.generation) == (tried.intent, tried.annotated, tried.generation)
    return failed(order, "refused", said(refusal)) if same else found
