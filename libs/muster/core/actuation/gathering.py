"""The PodGroup of Kubernetes itself that an admitted job gets where kube-scheduler places its pods.

It is there before the job is resumed, is owned by the job and goes with it. Its spec cannot be changed: that of an
earlier attempt, which also says how that one went, is replaced. The intent in it fences it like every other write.
"""

from __future__ import annotations

from typing import Any

import msgspec

from muster.core.actuation.answers import Effect, RetryLater, failed, message_of, meta_of, refused, said, said_by
from muster.core.actuation.intents import Known
from muster.core.actuation.orders import Outstanding
from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import ATTEMPT, INTENT, UnreadableError
from muster.core.workloads.registry import KINDS
from muster.model.api import NATIVE_POD_GROUPS
from muster.model.keys import Intent, Ref
from muster.model.problem import FieldProblem, problem

GROUPS = NATIVE_POD_GROUPS[-1]
"""In which version they are written."""


def group_name(ref: Ref) -> str:
    """The name of the PodGroup of a job."""
    return pod_group_name(ref)


def groups(order: Outstanding, known: Known) -> bool:
    """Whether the pods of a job are to name a PodGroup: they name no other scheduler, nor us, and no other PodGroup.

    Those of a Job that has begun name it for good: a new one is made for each attempt all the same.
    """
    own, templates = group_name(order.ref), known.switch.templates
    ours = any(template.marked or template.named for template in templates)
    return bool(templates) and not ours and all(template.group in ("", own) for template in templates)


def group_for(order: Outstanding) -> bytes:
    """The PodGroup of an admission."""
    resource, ref = KINDS[order.ref.kind].resource, order.ref
    owner: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind, "name": ref.name}
    meta = {
        "name": group_name(ref),
        "namespace": ref.namespace,
        "annotations": {INTENT: str(order.intent), ATTEMPT: str(order.attempt)},
        "ownerReferences": [{**owner, "uid": ref.uid, "controller": True}],
    }
    spec = {"schedulingPolicy": {"gang": {"minCount": order.together}}}
    body = {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind, "metadata": meta, "spec": spec}
    return msgspec.json.encode(body, order="deterministic")


def read_made(order: Outstanding, status: int, body: bytes) -> Effect | RetryLater | None:
    """What the answer to making it means; None: it is there."""
    if 200 <= status < 300:
        return None
    message = message_of(body)
    if status == 404 and message.startswith("namespaces "):
        return failed(order, "gone", said(message))
    if status == 404:
        version = GROUPS.api_version
        return failed(order, "refused", problem("", "pod_groups_not_served", resource=str(GROUPS), version=version))
    return refused(order, status, body)


def read_former(order: Outstanding, end: int, status: int, body: bytes) -> Effect | RetryLater | bytes | None:
    """What there is under its name: None for that of this very admission, else what deletes that of an earlier one.

    ``end``: sequence up to which our own log is known; what says that it is of a later decision was written by others.
    """
    if status == 404:
        return RetryLater("conflict", _leaving(order))
    if not 200 <= status < 300:
        return RetryLater("unavailable", said_by(body))
    try:
        meta = meta_of(body)
    except UnreadableError as err:
        return failed(order, "refused", problem("", "pod_group_unreadable", err.problem, group=group_name(order.ref)))
    named = f"{order.ref.namespace}/{meta.name}"
    if meta.controller.uid != order.ref.uid:
        return failed(order, "refused", problem("", "pod_group_not_ours", group=named, api=GROUPS.group))
    stored = Intent.parse(meta.annotations.get(INTENT, ""))
    if stored is not None and stored.generation > order.intent.generation:
        return failed(order, "refused", problem("", "pod_group_of_newer_log", group=named, api=GROUPS.group))
    if stored is not None and stored > order.intent and stored.seq <= end:
        return failed(order, "superseded", problem("", "pod_group_superseded", decision=str(stored)))
    if meta.deletion_timestamp:
        return RetryLater("conflict", _leaving(order))
    if stored == order.intent:
        return None
    preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return msgspec.json.encode({"preconditions": preconditions}, order="deterministic")


def read_removed(order: Outstanding, status: int, body: bytes) -> Effect | RetryLater:
    """What the answer to removing that of an earlier attempt means: this one is made when it is gone."""
    if 200 <= status < 300 or status == 404:
        return RetryLater("conflict", _leaving(order))
    return refused(order, status, body)


def _leaving(order: Outstanding) -> FieldProblem:
    return problem("", "pod_group_leaving", group=group_name(order.ref))
