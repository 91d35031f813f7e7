"""What is known of a job beyond an event about it: optional fields of public events. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.codes.pods import worse
from muster.core.objects.meta import rfc3339
from muster.core.quota.demand import Charge
from muster.core.readmodel.state import ReadState, waits_since
from muster.events import facts
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.model.podtrouble import PodCode
from muster.model.resources import texts

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
    """What keeps pods of it from running, or made them fail."""
    job: Ref | None = None
    """Of a pod: its job, where that is admitted."""
    attempt: int = 0
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    borrowed: dict[str, str] = field(default_factory=dict)
    promised_by: str = ""


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
    workload, promise = state.queues.workloads.get(uid), state.promises.open.get(uid)
    if workload is not None:
        found |= {"owner": workload.origin.owner, "labels": workload.labels}
    if charge is not None:
        found["borrowed"] = _borrowed(state, charge)
    if promise is not None and promise.latest:
        found["promised_by"] = rfc3339(promise.latest)
    leaving = state.leaving.get(uid)
    if leaving is not None:
        found |= {"reason": "moved" if leaving.before else _snake(leaving.code), "claimant": leaving.claimant}
    if record is not None:
        held = state.pods.of(uid, state.presence) or state.pods.ended(uid, record, state.presence)
        found["cause"] = held.code if held is not None else None
    return Facets(**found)


def _nodes(state: ReadState, uid: str) -> tuple[str, ...]:
    """Nodes on which it has pods."""
    family = (uid, *state.presence.children.get(uid, ()))
    pods = [state.nodes.pods.get(pod) for owner in family for pod in state.presence.pods.get(owner, ())]
    return tuple(sorted({pod.node for pod in pods if pod is not None})[:NODES])


def _borrowed(state: ReadState, charge: Charge) -> dict[str, str]:
    """What of a charge its queue uses beyond its guarantee."""
    ledger = state.queues.ledger
    node, used = ledger.nodes.get(charge.queue), ledger.used.get(charge.queue, {})
    least = node.guaranteed if node is not None else {}
    found = {name: min(amount, used.get(name, 0) - least.get(name, 0)) for name, amount in charge.request.items()}
    return texts({name: amount for name, amount in found.items() if amount > 0})


def facets_in(state: ReadState, stored: Stored) -> dict[str, Facets]:
    """The same of every job that a commit has an event about; ``state``: as of the commit before."""
    now = max(state.now, stored.commit.at)
    refs = (getattr(event, "ref", None) for event in stored.commit.events)
    found = {ref.uid: facets_of(state, ref.uid, now) for ref in refs if isinstance(ref, Ref) and ref.kind != "Pod"}
    for event in stored.commit.events:
        if isinstance(event, facts.WorkloadStarted):  # A look at all of its pods, once.
            found[event.ref.uid] = replace(found[event.ref.uid], nodes=_nodes(state, event.ref.uid))
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
        attempt = state.queues.ledger.attempts.get(uid, 0)
        found[event.pod.ref.uid] = replace(known, cause=cause, job=workload.ref, attempt=attempt)
        if worse(event.pod.trouble.code, cause):
            causes[uid] = event.pod.trouble.code
    return found


def _snake(code: str) -> str:
    """``RunningTimeout`` as ``running_timeout``."""
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in code).removeprefix("_")
