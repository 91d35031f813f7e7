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
from muster.model.victims import PartialVictim, Victim
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

    def made(kind: type[public.PublicEvent], **more: Any) -> public.PublicEvent:
        """Each field that is not given is that of the event, or else what is known of the job."""
        fields = {**where, **more}
        for name in kind.__struct_fields__:
            if name not in fields:
                value = getattr(event, name) if hasattr(event, name) else getattr(known, name)
                fields[name] = texts(value) if name == "request" and hasattr(event, name) else value
        return kind(**fields)

    match event:
        case decisions.WorkloadQueued():
            return made(public.PublicWorkloadQueued, queued_at=rfc3339(event.queued_at))
        case decisions.WorkloadDequeued():
            return made(public.PublicWorkloadDequeued)
        case decisions.WorkloadRefused():
            words = refusals.refused(event.refusal, event.ref.kind, event.ref.key)
            return made(public.PublicWorkloadRefused, reason=event.refusal.reason, message=words)
        case facts.ObjectUnreadable() if event.ref.kind in KINDS:
            return made(public.PublicWorkloadRefused, reason="unreadable", message=problems.line(event.problem))
        case decisions.QuotaDenied(short=Shortfall() as short):
            return made(
                public.PublicWorkloadDenied,
                quota=short.path,
                resource=short.resource,
                requested=format_quantity(short.asked, short.resource),
                used=format_quantity(short.used, short.resource),
                limit=format_quantity(short.limit, short.resource),
                message=waiting_for_quota(short).text,
                held=format_quantity(short.held, short.resource) if short.held else "",
                claimant=short.claimant,
                kept=format_quantity(short.kept, short.resource) if short.kept else "",
            )
        case decisions.GangAdmitted():
            nodes = sorted({place.node for place in event.placements})[:NODES]
            return made(public.PublicWorkloadAdmitted, nodes=nodes)
        case decisions.WorkloadAdopted():
            return made(public.PublicWorkloadAdopted)
        case GrowthGranted() | GrowthWithdrawn() | ChargeChanged():
            return made(public.PublicWorkloadRecharged, beyond_grant=texts(event.over))
        case effects.EffectApplied() | effects.EffectFailed() if event.action not in ("resume", "suspend"):
            return None  # It is written to another object.
        case effects.EffectApplied(action="suspend"):
            return made(public.PublicWorkloadEvicted)
        case effects.EffectFailed(action="suspend"):
            return None
        case decisions.EvictionOrdered(path=""):
            return None  # It makes room on nodes, and takes back no quota.
        case decisions.EvictionOrdered():
            leaving: list[Victim | PartialVictim] = [*event.evicted, *event.partial]
            victims = [_named(each.ref) for each in leaving]
            return made(public.PublicWorkloadReclaimed, quota=event.path, victims=victims, reason=event.kind)
        case effects.EffectApplied():
            return made(public.PublicWorkloadResumed)
        case effects.EffectFailed():
            words = problems.line(event.problem) if event.problem is not None else ""
            return made(public.PublicWorkloadNotResumed, message=words)
        case facts.WorkloadStarted():
            return made(public.PublicWorkloadStarted, nodes=list(known.nodes))
        case facts.PodObserved(pod=PodState(trouble=PodTrouble() as trouble) as pod) if worse(
            trouble.code, known.cause
        ):
            words = pods.reason(HeldUp(TroubledPod(pod.ref.name, trouble, 0))).text
            found: dict[str, Any] = {"cause": trouble.code, "pod": pod.ref.name, "node": pod.node}
            return made(public.PublicWorkloadHeldUp, message=words, **found)
        case ClaimOpened(kind="age"):
            promised = rfc3339(event.promised) if event.promised else ""
            return made(public.PublicWorkloadClaimOpened, quota=event.top, promised_by=promised)
        case ClaimEnded():
            return made(public.PublicWorkloadClaimEnded, reason=event.outcome)
        case AlarmRaised():
            words, since = events_ray.alarm_reason(event).text, rfc3339(event.since)
            return made(public.PublicWorkloadAlarmRaised, message=words, cluster=event.cluster.name, since=since)
        case AlarmCleared():
            return made(public.PublicWorkloadAlarmCleared, cluster=event.cluster.name)
        case decisions.SuspensionRecorded():
            return made(public.PublicWorkloadSuspended)
        case facts.WorkloadFinished():
            cause = (known.cause or "") if event.outcome == "failed" else ""
            return made(public.PublicWorkloadFinished, reason=event.detail, cause=cause)
        case decisions.QuotaReleased():
            return made(public.PublicWorkloadReleased)
    return None
