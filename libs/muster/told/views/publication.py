"""From events of the log to public events, with the facts about the job that the log holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.objects.meta import rfc3339
from muster.core.quota.demand import Charge
from muster.core.workloads.registry import is_job
from muster.events import decisions, effects, facts, public
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.events.envelope import Stored
from muster.model.closed import total
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.problem import FieldProblem
from muster.model.resources import format_quantity, texts
from muster.model.victims import PartialVictim, Victim
from muster.model.workload import PodState
from muster.told.codes.codetable import HeldUp, TroubledPod, worse
from muster.told.codes.values import LeavingCode
from muster.told.readmodel.readstate import ReadState, waits_since
from muster.told.wording import pods, problems, raywords, reasons
from muster.told.wording.explain import waiting_for_quota

# --- facets -----------------------------------------------------------------------------------------------------------


NODES = 32
"""Nodes that are named of one job."""


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
    """The code that keeps pods of the job from running, or made pods fail."""
    job: Ref | None = None
    """Of a pod: the job, if admitted."""
    attempt: int = 0
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    borrowed: dict[str, str] = field(default_factory=dict)
    promised_by: str = ""


_EVICTED: Mapping[LeavingCode, public.EvictedFor] = {
    "Reclaimed": "reclaimed",
    "Preempted": "preempted",
    "RunningTimeout": "running_timeout",
    "StaleGang": "stale_gang",
    "Overuse": "overuse",
}
total(_EVICTED, LeavingCode, "libs/muster/told/views/publication.py (_EVICTED)")


def facets_of(state: ReadState, uid: str, now: int) -> Facets:
    """The facts about a job before a commit. ``now``: log time of the commit, ms."""
    job, charge, record = state.queues.jobs.get(uid), state.queues.ledger.charges.get(uid), state.records.get(uid)
    admitted, running = (record.admitted_at, record.running_at) if record is not None else (0, 0)
    facets: dict[str, Any] = {}
    if job is not None:
        waited = max(0, (admitted or now) - waits_since(state, job)) if job.queued_at else None
        facets |= {"priority": job.priority, "queue": job.queue, "request": texts(job.demand.request)}
        facets["waited_ms"] = waited
    elif charge is not None:
        facets |= {"queue": charge.queue, "request": texts(charge.granted or charge.request)}
    if facets and admitted:
        facets["started_ms"] = max(0, now - admitted)
    if running:
        facets["ran_ms"] = max(0, now - running)
    workload, wait = state.queues.workloads.get(uid), state.promises.waits.get(uid)
    if workload is not None:
        facets |= {"owner": workload.origin.owner, "labels": workload.labels}
    if charge is not None:
        facets["borrowed"] = _borrowed(state, charge)
    if wait is not None and wait.first:
        facets["promised_by"] = rfc3339(wait.first)
    leaving = state.leaving.get(uid)
    if leaving is not None:
        facets |= {"reason": "moved" if leaving.before else _EVICTED[leaving.code], "claimant": leaving.claimant}
    if record is not None:
        held = state.pods.of(uid, state.presence) or state.pods.ended(uid, record, state.presence)
        facets["cause"] = held.code if held is not None else None
    return Facets(**facets)


def _nodes(state: ReadState, uid: str) -> tuple[str, ...]:
    """Nodes with pods of the job."""
    family = (uid, *state.presence.children.get(uid, ()))
    pods = [state.nodes.pods.get(pod) for owner in family for pod in state.presence.pods.get(owner, ())]
    return tuple(sorted({pod.node for pod in pods if pod is not None})[:NODES])


def _borrowed(state: ReadState, charge: Charge) -> dict[str, str]:
    """The part of a charge that the queue uses beyond its guarantee."""
    ledger = state.queues.ledger
    node, used = ledger.nodes.get(charge.queue), ledger.used.get(charge.queue, {})
    least = node.guaranteed if node is not None else {}
    excess = {name: min(amount, used.get(name, 0) - least.get(name, 0)) for name, amount in charge.request.items()}
    return texts({name: amount for name, amount in excess.items() if amount > 0})


def facets_in(state: ReadState, stored: Stored) -> dict[str, Facets]:
    """The facts about every job with an event in a commit; ``state``: as of the commit before."""
    now = max(state.now, stored.commit.at)
    refs = (getattr(event, "ref", None) for event in stored.commit.events)
    by_uid = {ref.uid: facets_of(state, ref.uid, now) for ref in refs if isinstance(ref, Ref) and ref.kind != "Pod"}
    for event in stored.commit.events:
        if isinstance(event, facts.WorkloadStarted):  # One look at all pods of the job.
            by_uid[event.ref.uid] = replace(by_uid[event.ref.uid], nodes=_nodes(state, event.ref.uid))
    return by_uid | _of_pods(state, stored, now)


def _of_pods(state: ReadState, stored: Stored, now: int) -> dict[str, Facets]:
    """The facts about the jobs of troubled pods with an event in a commit, by the uid of the pod."""
    by_uid: dict[str, Facets] = {}
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
        attempt = state.queues.ledger.attempts.get(uid, 0)
        by_uid[event.pod.ref.uid] = replace(known, cause=cause, job=workload.ref, attempt=attempt)
        if worse(event.pod.trouble.code, cause):
            causes[uid] = event.pod.trouble.code
    return by_uid


# --- publication ------------------------------------------------------------------------------------------------------


def public_event(
    cell: str, generation: int, seq: int, index: int, at: int, event: Event, known: Mapping[str, Facets] | None = None
) -> public.PublicEvent | None:
    """The public event of an event of the log; None when the event is not public.

    ``at``: log time, ms; ``known``: facts about jobs before the commit, by uid.
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
            broken = [problems.line(violation) for violation in event.violations]
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
        """Fields that are not given come from the event, or else from the facts about the job."""
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
            words = reasons.refused(event.refusal, event.ref.kind, event.ref.key)
            return made(public.PublicWorkloadRefused, reason=event.refusal.reason, message=words)
        case facts.ObjectUnreadable() if is_job(event.ref.kind):
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
        case effects.EffectApplied(action="read_refusal", problem=FieldProblem() as refusal):
            if not worse("PodsRefused", known.cause):
                return None
            none: dict[str, Any] = {"cause": "PodsRefused", "pod": "", "node": ""}
            return made(public.PublicWorkloadHeldUp, message=problems.line(refusal), **none)
        case effects.EffectApplied() | effects.EffectFailed() if event.action not in ("resume", "suspend"):
            return None  # The write is to another object.
        case effects.EffectApplied(action="suspend"):
            return made(public.PublicWorkloadEvicted)
        case effects.EffectFailed(action="suspend"):
            return None
        case decisions.EvictionOrdered(path=""):
            return None  # It makes room on nodes, and takes back no quota.
        case decisions.EvictionOrdered():
            leaving: list[Victim | PartialVictim] = [*event.evicted, *event.partial]
            victims = [_named(victim.ref) for victim in leaving]
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
            numbers: dict[str, Any] = {"cause": trouble.code, "pod": pod.ref.name, "node": pod.node}
            return made(public.PublicWorkloadHeldUp, message=words, **numbers)
        case ClaimOpened(kind="age"):
            promised = rfc3339(event.promised) if event.promised else ""
            return made(public.PublicWorkloadClaimOpened, quota=event.top, promised_by=promised)
        case ClaimEnded():
            return made(public.PublicWorkloadClaimEnded, reason=event.outcome)
        case AlarmRaised():
            words, since = raywords.alarm_reason(event).text, rfc3339(event.since)
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
