"""From events of the log to public events: a pure function of the event, its position, and what is known of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.codes.pods import HeldUp, TroubledPod, worse
from muster.core.objects.meta import rfc3339
from muster.core.readmodel.state import ReadState, waits_since
from muster.core.wording import pods, problems, refusals
from muster.core.wording.explain import waiting_for_quota
from muster.core.workloads.registry import KINDS
from muster.events import decisions, effects, facts, public
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.events.envelope import Stored
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.resources import format_quantity, texts
from muster.model.workload import PodState


class Facets(Struct, frozen=True):
    """Optional fields of public events; the default where a thing is not known."""

    priority: int | None = None
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None
    started_ms: int | None = None
    ran_ms: int | None = None
    reason: str = ""
    claimant: str = ""
    cause: PodCode | None = None
    """What keeps pods of it from running, or made them fail."""
    job: Ref | None = None
    """Of a pod: its job, where that is admitted."""
    attempt: int = 0


def facets_of(state: ReadState, uid: str, now: int) -> Facets:
    """What is known of a job before a commit. ``now``: log time of that, ms."""
    job, charge, record = state.queues.jobs.get(uid), state.queues.ledger.charges.get(uid), state.records.get(uid)
    admitted, running = (record.admitted_at, record.running_at) if record is not None else (0, 0)
    found: dict[str, Any] = {}
    if job is not None:
        waited = max(0, (admitted or now) - waits_since(state, job)) if job.queued_at else None
        found |= {"priority": job.priority, "queue": job.queue, "request": texts(job.demand.request)}
        found["waited_ms"] = waited
    elif charge is not None:
        found |= {"queue": charge.queue, "request": texts(charge.granted or charge.request)}
    if found and admitted:
        found["started_ms"] = max(0, now - admitted)
    if running:
        found["ran_ms"] = max(0, now - running)
    leaving = state.leaving.get(uid)
    if leaving is not None:
        found |= {"reason": "moved" if leaving.before else _snake(leaving.code), "claimant": leaving.claimant}
    if record is not None:
        held = state.pods.of(uid, state.presence) or state.pods.ended(uid, record, state.presence)
        found["cause"] = held.code if held is not None else None
    return Facets(**found)


def facets_in(state: ReadState, stored: Stored) -> dict[str, Facets]:
    """The same of every job that a commit has an event about; ``state``: as of the commit before."""
    now = max(state.now, stored.commit.at)
    refs = (getattr(event, "ref", None) for event in stored.commit.events)
    found = {ref.uid: facets_of(state, ref.uid, now) for ref in refs if isinstance(ref, Ref) and ref.kind != "Pod"}
    return found | _of_pods(state, stored, now)


def _of_pods(state: ReadState, stored: Stored, now: int) -> dict[str, Facets]:
    """What is known of the jobs of the troubled pods that a commit has an event about, by the pods' uids."""
    found: dict[str, Facets] = {}
    causes: dict[str, PodCode | None] = {}
    for event in stored.commit.events:
        if not isinstance(event, facts.PodObserved) or event.pod.trouble is None or not event.pod.owner_uid:
            continue
        uid = state.presence.owner_of.get(event.pod.owner_uid, event.pod.owner_uid)
        workload = state.queues.workloads.get(uid)
        if workload is None or uid not in state.queues.ledger.charges:
            continue
        known = facets_of(state, uid, now)
        cause = causes.setdefault(uid, known.cause)
        attempt = state.queues.attempts.get(uid, 0)
        found[event.pod.ref.uid] = replace(known, cause=cause, job=workload.ref, attempt=attempt)
        if worse(event.pod.trouble.code, cause):
            causes[uid] = event.pod.trouble.code
    return found


def _snake(code: str) -> str:
    """``RunningTimeout`` as ``running_timeout``."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in code).removeprefix("_")


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
    where["workload"] = public.PublicWorkload(ref.kind, ref.namespace, ref.name, ref.uid)
    return _about_workload(where, event, facets)


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
            )
        case decisions.GangAdmitted():
            return public.PublicWorkloadAdmitted(**where, attempt=event.attempt, queue=event.queue, **waits)
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
        case effects.EffectApplied(action="bind") | effects.EffectFailed(action="bind"):
            return None
        case effects.EffectApplied(action="request_nodes" | "withdraw_nodes" | "free_gpu" | "gate" | "remove_worker"):
            return None
        case effects.EffectFailed(action="request_nodes" | "withdraw_nodes" | "free_gpu" | "gate" | "remove_worker"):
            return None
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
        case decisions.EvictionOrdered():
            leaving: list[decisions.Victim | decisions.PartialVictim] = [*event.victims, *event.partial]
            victims = [
                public.PublicWorkload(each.ref.kind, each.ref.namespace, each.ref.name, each.ref.uid)
                for each in leaving
            ]
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
            return public.PublicWorkloadStarted(**where, **holds, started_ms=known.started_ms)
        case facts.PodObserved(pod=PodState(trouble=PodTrouble() as trouble) as pod) if worse(
            trouble.code, known.cause
        ):
            words = pods.reason(HeldUp(TroubledPod(pod.ref.name, trouble, 0))).text
            return public.PublicWorkloadHeldUp(
                **where, attempt=known.attempt, cause=trouble.code, pod=pod.ref.name, message=words, **holds
            )
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
