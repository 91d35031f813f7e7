"""From events of the log to public events: a pure function of the event and its position."""

from __future__ import annotations

from typing import Any

from muster.core.objects.meta import rfc3339
from muster.core.wording.explain import waiting_for_quota
from muster.core.workloads.registry import KINDS
from muster.events import decisions, effects, facts, public
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.model.keys import Ref
from muster.model.resources import format_quantity, texts


def public_event(cell: str, generation: int, seq: int, index: int, at: int, event: Event) -> public.PublicEvent | None:
    """What outsiders are told of an event of the log; None when it is not for them."""
    where: dict[str, Any] = {
        "cell": cell,
        "at": rfc3339(at),
        "position": public.PublicPosition(generation, seq, index),
    }
    match event:
        case decisions.QuotaTreeAccepted():
            tree = event.tree
            return public.QuotaTreeAccepted(
                **where, namespace=tree.ref.namespace, name=tree.ref.name, nodes=[node.path for node in tree.nodes]
            )
        case decisions.QuotaTreeRejected():
            broken = [str(violation) for violation in event.violations]
            return public.QuotaTreeRejected(
                **where, namespace=event.ref.namespace, name=event.ref.name, violations=broken
            )
        case decisions.QuotaTreeRemoved():
            return public.QuotaTreeRemoved(**where, namespace=event.ref.namespace, name=event.ref.name)
    ref: Ref | None = getattr(event, "ref", None)
    if ref is None or ref.kind == "Pod":
        return None  # Pods of no job are charged where the tree says so; outsiders are told of jobs.
    where["workload"] = public.PublicWorkload(ref.kind, ref.namespace, ref.name, ref.uid)
    return _about_workload(where, event)


def _about_workload(  # noqa: C901 - a table of events
    where: dict[str, Any], event: Event
) -> public.PublicEvent | None:
    match event:
        case decisions.WorkloadQueued():
            return public.WorkloadQueued(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                request=texts(event.request),
                priority=event.priority,
                queued_at=rfc3339(event.queued_at),
            )
        case decisions.WorkloadDequeued():
            return public.WorkloadDequeued(**where, attempt=event.attempt, queue=event.queue, reason=event.reason)
        case decisions.WorkloadRefused():
            return public.WorkloadRefused(**where, reason=event.reason, message=event.message)
        case facts.ObjectUnreadable() if event.ref.kind in KINDS:
            return public.WorkloadRefused(**where, reason="unreadable", message=event.reason)
        case decisions.QuotaDenied() if event.reason != "stale":
            return public.WorkloadDenied(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                reason=event.reason,
                quota=event.path,
                resource=event.resource,
                requested=format_quantity(event.asked, event.resource),
                used=format_quantity(event.used, event.resource),
                limit=format_quantity(event.limit, event.resource),
                message=waiting_for_quota(event).text,
            )
        case decisions.GangAdmitted():
            return public.WorkloadAdmitted(**where, attempt=event.attempt, queue=event.queue)
        case decisions.WorkloadAdopted():
            return public.WorkloadAdopted(
                **where, attempt=event.attempt, queue=event.queue, request=texts(event.request), reason=event.reason
            )
        case ChargeChanged():
            return public.WorkloadRecharged(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                request=texts(event.request),
                beyond_grant=texts(event.over),
            )
        case effects.EffectApplied(action="bind") | effects.EffectFailed(action="bind"):
            return None
        case effects.EffectApplied(action="request_nodes" | "withdraw_nodes" | "free_gpu"):
            return None
        case effects.EffectFailed(action="request_nodes" | "withdraw_nodes" | "free_gpu"):
            return None
        case effects.EffectApplied(action="suspend"):
            return public.WorkloadEvicted(**where, attempt=event.attempt)
        case effects.EffectFailed(action="suspend"):
            return None
        case decisions.EvictionOrdered():
            victims = [
                public.PublicWorkload(each.ref.kind, each.ref.namespace, each.ref.name, each.ref.uid)
                for each in event.victims
            ]
            return public.WorkloadReclaimed(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                quota=event.path,
                resource=event.resource,
                victims=victims,
            )
        case effects.EffectApplied():
            return public.WorkloadResumed(**where, attempt=event.attempt)
        case effects.EffectFailed():
            return public.WorkloadNotResumed(**where, attempt=event.attempt, reason=event.reason, message=event.message)
        case facts.WorkloadStarted():
            return public.WorkloadStarted(**where)
        case decisions.SuspensionRecorded():
            return public.WorkloadSuspended(**where, attempt=event.attempt)
        case facts.WorkloadFinished():
            return public.WorkloadFinished(**where, outcome=event.outcome)
        case decisions.QuotaReleased():
            return public.WorkloadReleased(
                **where, attempt=event.attempt, queue=event.queue, request=texts(event.request), reason=event.reason
            )
    return None
