"""From events of the log to public events: a pure function of the event, its position, and what is known of its job."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.core.objects.meta import rfc3339
from muster.core.readmodel.state import ReadState
from muster.core.wording import problems, refusals
from muster.core.wording.explain import waiting_for_quota
from muster.core.workloads.registry import KINDS
from muster.events import decisions, effects, facts, public
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.clearing import ClearingOrdered
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.resources import Vector, format_quantity, texts


class PublishedJob(Struct):
    """A job in its queue, or charged. Times are log times in ms, 0 where it has not happened."""

    attempt: int
    queue: str
    request: Vector
    priority: int | None = None
    queued_at: int = 0
    admitted_at: int = 0


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


class PublishedJobs(Struct):
    """What the events so far say of the jobs there are: fold every event after it was published."""

    jobs: dict[str, PublishedJob] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    """uid -> log time from which it has run"""
    leaving: dict[str, tuple[str, str]] = field(default_factory=dict)
    """uid -> (why it is suspended, the job it gives way to)"""

    def facets(self, uid: str, now: int) -> Facets:
        """What is known of a job. ``now``: log time, ms."""
        job, running = self.jobs.get(uid), self.running.get(uid)
        reason, claimant = self.leaving.get(uid, ("", ""))
        return Facets(
            priority=job.priority if job is not None else None,
            queue=job.queue if job is not None else "",
            request=texts(job.request) if job is not None else {},
            waited_ms=max(0, (job.admitted_at or now) - job.queued_at) if job is not None and job.queued_at else None,
            started_ms=max(0, now - job.admitted_at) if job is not None and job.admitted_at else None,
            ran_ms=max(0, now - running) if running is not None else None,
            reason=reason,
            claimant=claimant,
        )

    def fold(self, at: int, event: Event) -> None:  # noqa: C901 - a table of events
        """Take in an event that has been published. ``at``: log time, ms."""
        match event:
            case decisions.WorkloadQueued():
                old = self.jobs.get(event.ref.uid)
                admitted = old.admitted_at if old is not None else 0
                self.jobs[event.ref.uid] = PublishedJob(
                    event.attempt, event.queue, event.request, event.priority, event.queued_at, admitted
                )
            case decisions.WorkloadDequeued():
                self.jobs.pop(event.ref.uid, None)
            case decisions.QuotaReserved() | decisions.WorkloadAdopted():
                self.leaving.pop(event.ref.uid, None)
                if event.ref.uid not in self.jobs:
                    self.jobs[event.ref.uid] = PublishedJob(event.attempt, event.queue, event.request)
            case decisions.GangAdmitted():
                if event.ref.uid in self.jobs:
                    self.jobs[event.ref.uid].admitted_at = at
            case decisions.QuotaMoved():
                if event.ref.uid in self.jobs:
                    self.jobs[event.ref.uid].queue = event.queue
            case decisions.QuotaReleased():
                self._released(event)
            case decisions.EvictionOrdered() | ClearingOrdered():
                for victim in event.victims:
                    lower = victim.priority is not None and event.priority is not None
                    why = "preempted" if lower or event.kind == "service" else "reclaimed"
                    why = "moved" if event.kind == "move" else why
                    self.leaving[victim.ref.uid] = (why, event.ref.key)
            case decisions.SuspensionOrdered():
                self.leaving[event.ref.uid] = (event.reason, "")
            case facts.WorkloadStarted():
                self.running[event.ref.uid] = at
            case facts.WorkloadFinished():
                self.running.pop(event.ref.uid, None)
            case facts.WorkloadGone():
                self.running.pop(event.ref.uid, None)
                self.leaving.pop(event.ref.uid, None)
            case _:
                pass

    def _released(self, event: decisions.QuotaReleased) -> None:
        uid = event.ref.uid
        self.running.pop(uid, None)
        job = self.jobs.get(uid)
        if job is None:
            return
        job.admitted_at = 0
        if event.attempt >= job.attempt:
            del self.jobs[uid]


def known_of(state: ReadState) -> PublishedJobs:
    """The same from the read model, as of its position."""
    known = PublishedJobs()
    for uid, record in state.records.items():
        job, charge = state.queues.jobs.get(uid), state.queues.ledger.charges.get(uid)
        if job is not None:
            known.jobs[uid] = PublishedJob(
                job.attempt, job.queue, job.demand.request, job.priority, job.queued_at, record.admitted_at
            )
        elif charge is not None:
            attempt = state.queues.attempts.get(uid, 0)
            known.jobs[uid] = PublishedJob(
                attempt, charge.queue, charge.granted or charge.request, admitted_at=record.admitted_at
            )
        if record.running_at:
            known.running[uid] = record.running_at
    for uid, leaving in state.leaving.items():
        known.leaving[uid] = ("moved" if leaving.before else _LEAVING[leaving.code], leaving.claimant)
    return known


_LEAVING = {
    "Reclaimed": "reclaimed",
    "Preempted": "preempted",
    "RunningTimeout": "running_timeout",
    "StaleGang": "stale_gang",
}


def public_event(
    cell: str, generation: int, seq: int, index: int, at: int, event: Event, known: PublishedJobs | None = None
) -> public.PublicEvent | None:
    """The public event of an event of the log; None when it is not for others.

    ``at``: log time, ms; ``known``: what the events before it say of jobs.
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
    ref: Ref | None = getattr(event, "ref", None)
    if ref is None or ref.kind == "Pod":
        return None  # Pods of no job are charged where the tree says so; subscribers hear of jobs.
    where["workload"] = public.PublicWorkload(ref.kind, ref.namespace, ref.name, ref.uid)
    return _about_workload(where, event, (known or PublishedJobs()).facets(ref.uid, at))


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
                message=event.message,
                queue=known.queue,
                **waits,
            )
        case facts.WorkloadStarted():
            return public.PublicWorkloadStarted(**where, **holds, started_ms=known.started_ms)
        case decisions.SuspensionRecorded():
            return public.PublicWorkloadSuspended(**where, attempt=event.attempt, **holds, ran_ms=known.ran_ms)
        case facts.WorkloadFinished():
            return public.PublicWorkloadFinished(
                **where, outcome=event.outcome, **holds, reason=event.detail, ran_ms=known.ran_ms
            )
        case decisions.QuotaReleased():
            return public.PublicWorkloadReleased(
                **where, attempt=event.attempt, queue=event.queue, request=texts(event.request), reason=event.reason
            )
    return None
