"""From events of the log to public events: a pure function of the event, its position, and what is known of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core.codes.pods import HeldUp, TroubledPod, worse
from muster.core.objects.meta import rfc3339
from muster.core.views.facets import NODES, Facets
from muster.core.wording import events_ray, pods, problems, refusals
from muster.core.wording.explain import waiting_for_quota
from muster.core.workloads.registry import KINDS
from muster.events import decisions, effects, facts, public
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.podtrouble import PodTrouble
from muster.model.resources import format_quantity, texts
from muster.model.workload import PodState


def public_event(
    cell: str, generation: int, seq: int, index: int, at: int, event: Event, known: Mapping[str, Facets] | None = None
) -> public.PublicEvent | None:
    """The public event of an event of the log; None when it is not for others.

    ``at``: log time, ms; ``known``: what is known of jobs before its commit, by uid.
    """
    where: dict[str, Any] = {
        "cell": cell,
        "at": rfc3339(at),
        "position": public.PublicPosition(generation, seq, index),
    }
    match event:
        case decisions.QuotaTreeAccepted():
            tree = event.tree
            return public.PublicQuotaTreeAccepted(
                **where, namespace=tree.ref.namespace, name=tree.ref.name, nodes=[node.path for node in tree.nodes]
            )
        case decisions.QuotaTreeRejected():
            broken = [problems.line(each) for each in event.violations]
            return public.PublicQuotaTreeRejected(
                **where, namespace=event.ref.namespace, name=event.ref.name, violations=broken
            )
        case decisions.QuotaTreeRemoved():
            return public.PublicQuotaTreeRemoved(**where, namespace=event.ref.namespace, name=event.ref.name)
    about: Ref | None = event.pod.ref if isinstance(event, facts.PodObserved) else getattr(event, "ref", None)
    if about is None:
        return None
    facets = (known or {}).get(about.uid, Facets())
    ref = facets.job or about
    if ref.kind == "Pod":
        return None  # Pods of no job are charged where the tree says so; subscribers hear of jobs.
    where["workload"] = _named(ref)
    where |= {"owner": facets.owner, "labels": facets.labels}
    return _about_workload(where, event, facets)


def _named(ref: Ref) -> public.PublicWorkload:
    return public.PublicWorkload(ref.kind, ref.namespace, ref.name, ref.uid)


def _about_workload(  # noqa: C901 - a table of events
    where: dict[str, Any], event: Event, known: Facets
) -> public.PublicEvent | None:
    if not isinstance(event, decisions.WorkloadQueued):
        where["priority"] = known.priority
    waits: dict[str, Any] = {"request": known.request, "waited_ms": known.waited_ms}
    holds: dict[str, Any] = {"queue": known.queue, "request": known.request}
    match event:
        case decisions.WorkloadQueued():
            return public.PublicWorkloadQueued(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                request=texts(event.request),
                priority=event.priority,
                queued_at=rfc3339(event.queued_at),
            )
        case decisions.WorkloadDequeued():
            return public.PublicWorkloadDequeued(
                **where, attempt=event.attempt, queue=event.queue, reason=event.reason, **waits
            )
        case decisions.WorkloadRefused():
            words = refusals.refused(event.refusal, event.ref.kind, event.ref.key)
            return public.PublicWorkloadRefused(**where, reason=event.refusal.reason, message=words)
        case facts.ObjectUnreadable() if event.ref.kind in KINDS:
            return public.PublicWorkloadRefused(**where, reason="unreadable", message=problems.line(event.problem))
        case decisions.QuotaDenied(short=Shortfall() as short):
            return public.PublicWorkloadDenied(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                reason=event.reason,
                quota=short.path,
                resource=short.resource,
                requested=format_quantity(short.asked, short.resource),
                used=format_quantity(short.used, short.resource),
                limit=format_quantity(short.limit, short.resource),
                message=waiting_for_quota(short).text,
                request=texts(event.request),
                waited_ms=known.waited_ms,
                held=format_quantity(short.held, short.resource) if short.held else "",
                claimant=short.claimant,
                kept=format_quantity(short.kept, short.resource) if short.kept else "",
                promised_by=known.promised_by,
            )
        case decisions.GangAdmitted():
            return public.PublicWorkloadAdmitted(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                **waits,
                nodes=sorted({place.node for place in event.placements})[:NODES],
                borrowed=known.borrowed,
                promised_by=known.promised_by,
            )
        case decisions.WorkloadAdopted():
            return public.PublicWorkloadAdopted(
                **where, attempt=event.attempt, queue=event.queue, request=texts(event.request), reason=event.reason
            )
        case GrowthGranted() | GrowthWithdrawn() | ChargeChanged():
            return public.PublicWorkloadRecharged(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                request=texts(event.request),
                beyond_grant=texts(event.over),
            )
        case effects.EffectApplied() | effects.EffectFailed() if event.action not in ("resume", "suspend"):
            return None  # It is written to another object.
        case effects.EffectApplied(action="suspend"):
            return public.PublicWorkloadEvicted(
                **where,
                attempt=event.attempt,
                **holds,
                reason=known.reason,
                claimant=known.claimant,
                ran_ms=known.ran_ms,
            )
        case effects.EffectFailed(action="suspend"):
            return None
        case decisions.EvictionOrdered(path=""):
            return None  # It makes room on nodes, and takes back no quota.
        case decisions.EvictionOrdered():
            leaving: list[decisions.Victim | decisions.PartialVictim] = [*event.suspended, *event.partial]
            victims = [_named(each.ref) for each in leaving]
            return public.PublicWorkloadReclaimed(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                quota=event.path,
                resource=event.resource,
                victims=victims,
                request=texts(event.request),
                waited_ms=known.waited_ms,
                reason=event.kind,
            )
        case effects.EffectApplied():
            return public.PublicWorkloadResumed(**where, attempt=event.attempt, queue=known.queue, **waits)
        case effects.EffectFailed():
            return public.PublicWorkloadNotResumed(
                **where,
                attempt=event.attempt,
                reason=event.reason,
                message=problems.line(event.problem) if event.problem is not None else "",
                queue=known.queue,
                **waits,
            )
        case facts.WorkloadStarted():
            return public.PublicWorkloadStarted(**where, **holds, started_ms=known.started_ms, nodes=list(known.nodes))
        case facts.PodObserved(pod=PodState(trouble=PodTrouble() as trouble) as pod) if worse(
            trouble.code, known.cause
        ):
            words = pods.reason(HeldUp(TroubledPod(pod.ref.name, trouble, 0))).text
            return public.PublicWorkloadHeldUp(
                **where,
                attempt=known.attempt,
                cause=trouble.code,
                pod=pod.ref.name,
                message=words,
                **holds,
                node=pod.node,
            )
        case ClaimOpened(kind="age"):
            return public.PublicWorkloadClaimOpened(
                **where,
                attempt=event.attempt,
                queue=event.queue,
                quota=event.top,
                request=texts(event.request),
                waited_ms=known.waited_ms,
                promised_by=rfc3339(event.promised) if event.promised else "",
            )
        case ClaimEnded():
            return public.PublicWorkloadClaimEnded(**where, queue=known.queue, reason=event.outcome)
        case AlarmRaised():
            return public.PublicWorkloadAlarmRaised(
                **where,
                attempt=event.attempt,
                reason=event.reason,
                message=events_ray.alarm_reason(event).text,
                cluster=event.cluster.name,
                since=rfc3339(event.since),
            )
        case AlarmCleared():
            return public.PublicWorkloadAlarmCleared(**where, attempt=event.attempt, cluster=event.cluster.name)
        case decisions.SuspensionRecorded():
            return public.PublicWorkloadSuspended(**where, attempt=event.attempt, **holds, ran_ms=known.ran_ms)
        case facts.WorkloadFinished():
            return public.PublicWorkloadFinished(
                **where,
                outcome=event.outcome,
                **holds,
                reason=event.detail,
                ran_ms=known.ran_ms,
                cause=(known.cause or "") if event.outcome == "failed" else "",
            )
        case decisions.QuotaReleased():
            return public.PublicWorkloadReleased(
                **where, attempt=event.attempt, queue=event.queue, request=texts(event.request), reason=event.reason
            )
    return None
