"""Where a job stands: a pure function of the read model and a uid.

Every reader asks this one: QueueUnits and Events, ``muster why``, ``position`` and ``ls``, the levers, ``muster up``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, cast

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.queueing.book import Denial, Shape, as_of_now, clear
from muster.core.queueing.lending import Reserve
from muster.core.queueing.queues import Job
from muster.core.quota.demand import counted
from muster.core.quota.ledger import leaf_of
from muster.core.readmodel.phases import phase_of
from muster.core.readmodel.state import ReadState
from muster.core.status.codes import refusal_code, refused_code
from muster.core.status.values import Holder, JobCode, JobStatus, Remains, Scaling, Wanting
from muster.events.refusals import Refusal
from muster.model.demand import Shortfall
from muster.model.gang import Verdict
from muster.model.keys import path_chain

HOLDERS_SHOWN = 5
AHEAD_SHOWN = 3


def job_status(state: ReadState, uid: str, *, acting: bool = True) -> JobStatus:
    """Where a job stands as of the state's position. ``acting``: false where nobody carries admissions out."""
    for look in _SITUATIONS:
        found = look(state, uid, acting)
        if found is not None:
            return found
    return _status(state, uid, "Seen")


def _status(state: ReadState, uid: str, code: JobCode, **details: Any) -> JobStatus:
    """A status with what every one has."""
    workload, charge = state.queues.workloads.get(uid), state.queues.ledger.charges.get(uid)
    record = state.records.get(uid)
    ref = record.ref if record is not None else workload.ref if workload is not None else None
    common: dict[str, Any] = {
        "kind": ref.kind if ref is not None else "",
        "job": ref.key if ref is not None else "",
        "attempt": state.queues.attempts.get(uid, 0),
        "detail": workload.detail if workload is not None else "",
    }
    if charge is not None:
        common |= {"queue": charge.queue, "charged": charge.request, "beyond": charge.over, "granted": charge.granted}
        if record is not None and (record.growth.granted or record.growth.alarm is not None):
            growth = record.growth
            common["scaling"] = Scaling(growth.granted, growth.ceilings, growth.asked, growth.denied, growth.alarm)
    return JobStatus(code=code, phase=phase_of(state, uid), **{**common, **details})


# --- over ---------------------------------------------------------------------------------------------------------


def _over(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """The object is gone, or can no longer be read."""
    if uid in state.queues.workloads:
        return None
    trouble = state.troubles.get(uid)
    if trouble is not None and trouble.code == "unreadable":
        return _status(state, uid, "Unreadable", refused=Refusal("unreadable", text=trouble.text))
    if uid in state.queues.ledger.charges:
        return _status(state, uid, "DeletedStillCharged", remains=_remains(state, uid))
    record = state.records.get(uid)
    if record is None:
        return _status(state, uid, "Gone")
    return _status(
        state,
        uid,
        "Gone",
        queue=record.queue,
        outcome=record.outcome,
        detail=record.detail,
        ended=record.ended,
        reason=record.reason,
        request=record.request or {},
    )


def _finished(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    workload = state.queues.workloads[uid]
    if workload.phase != "finished":
        return None
    if uid not in state.queues.ledger.charges:
        return _status(state, uid, "Finished", outcome=workload.outcome)
    return _status(state, uid, "FinishedStillCharged", outcome=workload.outcome, remains=_remains(state, uid))


def _remains(state: ReadState, uid: str) -> Remains:
    return Remains(any(state.presence.children.get(uid, {}).values()), state.presence.live_pods(uid))


# --- charged ------------------------------------------------------------------------------------------------------


def _holding(state: ReadState, uid: str, acting: bool) -> JobStatus | None:
    """It has quota: suspended outside, leaving, running, starting, admitted or reserved."""
    if uid not in state.queues.ledger.charges:
        return None
    workload, record = state.queues.workloads[uid], state.records.get(uid)
    admitted = record.admitted_at if record is not None else 0
    if uid in state.suspended_outside:
        return _status(state, uid, "SuspendedOutside", remains=_remains(state, uid))
    if uid in state.leaving:
        leaving = state.leaving[uid]
        return _status(state, uid, leaving.code, leaving=leaving, remains=_remains(state, uid))
    if record is not None and record.adoption is not None:
        return _status(state, uid, "Adopted", adoption=record.adoption, since=record.running_at)
    if not workload.suspended and workload.phase == "running":
        return _status(state, uid, "Running", since=record.running_at if record is not None else 0)
    if uid in state.queues.resumed or not workload.suspended:
        return _status(
            state, uid, "Starting", since=admitted, remains=_remains(state, uid), verdict=_verdict(state, uid)
        )
    if not admitted:
        if uid in state.shortages:
            return _status(state, uid, "AwaitingNodes", **_nodes(state, uid))
        return _status(state, uid, "Reserved")
    return _status(state, uid, "Admitted" if acting else "WouldBeAdmitted", since=admitted)


def _verdict(state: ReadState, uid: str) -> Verdict | None:
    """What kube-scheduler says of the gang of a job, in this attempt of it."""
    ref, attempt = state.queues.workloads[uid].ref, state.queues.attempts.get(uid, 0)
    gang = state.gangs.gangs.get(f"{ref.namespace}/{pod_group_name(ref)}")
    found = gang.pod_groups.values() if gang is not None else ()
    return next((each.verdict for each in found if each.owner_uid == uid and each.attempt == attempt > 0), None)


def _nodes(state: ReadState, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = {"shortage": state.shortages[uid]}
    if uid in state.pools:
        found["pools"] = state.pools[uid]
    return found


# --- not in a queue -----------------------------------------------------------------------------------------------


def _kept_back(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """It is not in a queue for a reason: it waits for its next try or for room on the nodes, or it is refused."""
    until = state.queues.not_before.get(uid, 0)
    if until > state.now and uid in state.leaving:
        leaving = state.leaving[uid]
        return _status(state, uid, leaving.code, until=until, leaving=leaving)
    if until > state.now:
        message, times = state.failure_messages.get(uid, ""), state.queues.failures.get(uid, 1)
        return _status(state, uid, "ResumeFailed", until=until, message=message, failures=times)
    refusal = state.queues.refusals.get(uid)
    if refusal is not None and uid not in state.queues.jobs and state.queues.workloads[uid].suspended:
        return _status(state, uid, refused_code(refusal.reason), refused=refusal)
    if uid in state.queues.unplaced and uid in state.shortages:
        kept, tried = tuple(state.nodes_kept.values()), state.tried.get(uid, 0)
        return _status(state, uid, "GangUnschedulable", kept=kept, tried=tried, **_nodes(state, uid))
    return None


def _outside(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """It is in no queue and holds no quota."""
    workload = state.queues.workloads[uid]
    if not state.synced:
        return _status(state, uid, "NotSynced", missing=tuple(sorted(state.unsynced)))
    if workload.suspended:
        return None
    return _status(state, uid, "Unmanaged" if leaf_of(state.queues.ledger, workload) is None else "NotSuspended")


# --- in a queue ---------------------------------------------------------------------------------------------------


def _queued(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """It is in a queue: what keeps everybody there, then what refuses it."""
    job = state.queues.jobs.get(uid)
    if job is None:
        return None
    if job.status == "proposed":
        return _status(state, uid, "BeingTried", queue=job.queue, since=job.queued_at)
    found = _in_line(state, job)
    if not state.synced:
        return _status(state, uid, "NotSynced", missing=tuple(sorted(state.unsynced)), **found)
    if state.closing:
        return _status(state, uid, "LogNearlyFull", **found)
    if "admissions" in state.queues.resting(job.queue):
        by, why = pause_of(state, job.queue)
        return _status(state, uid, "Paused", by=by, message=why, **found)
    if state.queues.is_blocking(job.queue) and uid not in state.queues.ledger.claims.by_uid:
        found |= _on_nodes(state, job, found)
        if found["position"] > 1:
            return _status(state, uid, "BehindHead", **found)
    return _unserved(state, job, found)


def _unserved(state: ReadState, job: Job, found: dict[str, Any]) -> JobStatus:
    """What refuses it, or that what is free is kept for others; ``found``: where it stands."""
    uid = job.ref.uid
    shape = state.queues.book.shapes.get(job.shape)
    if shape is None:
        return _status(state, uid, "Queued", **found)
    refusal = refused_by(state, job, shape, shape.denial) if shape.denial is not None else None
    kept = Reserve(state.queues, state.now).keeps(job) if refusal is None else None
    if kept is not None:
        return _status(state, uid, "QuotaKept", refusal=kept, **found)
    if shape.denial is None:
        return _status(state, uid, "Queued", **found)
    if refusal is None:
        return _status(
            state, uid, "Queued", cleared=as_of_now(shape.denial.short, job.queue, state.queues.ledger), **found
        )
    claims = state.queues.ledger.claims
    found |= {"refusal": refusal, "cause": shape.denial.cause}
    own = claims.served_by(uid, job.queue, job.demand)
    if own is not None:
        return _status(state, uid, "WaitingForClaim", promised=own.promised_now(state.now), **found)
    claim = claims.at(refusal.path, refusal.resource)[1] if refusal.held else None
    if claim is not None and not claim.firm:
        found |= {"declared": job.demand.run_ms, "promised": claim.promised_now(state.now)}
    holder = claim.ref.key if claim is not None else ""
    return _status(state, uid, refusal_code(refusal, holder=holder), holder=holder, **found)


def _in_line(state: ReadState, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {"queue": job.queue, "since": job.queued_at}
    book = state.queues.book
    shapes = [book.shapes[key].waiting for key in book.queues.get(job.queue, ())]
    position = 1 + sum(bisect_left(waiting, job.place) for waiting in shapes)
    found |= {"position": position, "length": sum(len(waiting) for waiting in shapes)}
    if position > 1:
        heads = sorted(place for waiting in shapes for place in waiting[:AHEAD_SHOWN])
        found["ahead"] = tuple(place.key for place in heads[: min(AHEAD_SHOWN, position - 1)])
    if job.ref.uid in state.leaving:
        found["leaving"] = state.leaving[job.ref.uid]
    return found


def _on_nodes(state: ReadState, job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """Its place in a queue in which nobody passes the head, with those who lack a place on the nodes."""
    before = [place.key for place in state.queues.before_on_nodes(job.queue, job.place)]
    ahead = (*before, *found.get("ahead", ()))[:AHEAD_SHOWN]
    return {"position": found["position"] + len(before), "length": found["length"] + len(before), "ahead": ahead}


def refused_by(state: ReadState, job: Job, shape: Shape, denial: Denial) -> Shortfall | None:
    """The limit that refuses a denied job now: the one it is parked on, else the first on its path that has no room.

    What refused it first may have room again while an ancestor has none: then that one is what it waits for.
    """
    if not clear(shape, state.queues.ledger):
        return as_of_now(denial.short, job.queue, state.queues.ledger)
    return state.queues.ledger.shortfall(job.queue, job.demand, now=state.now)


def pause_of(state: ReadState, queue: str) -> tuple[str, str]:
    """Who paused the admissions of a queue, and why, as far as they said."""
    rules = state.queues.ledger.rules_of(queue)
    if "admissions" in rules.paused:
        return rules.paused_by, rules.paused_reason
    return state.queues.pauses.get(queue, ("", ""))


_SITUATIONS: tuple[Callable[[ReadState, str, bool], JobStatus | None], ...] = (
    _over,
    _finished,
    _holding,
    _kept_back,
    _queued,
    _outside,
)
"""In this order: the first that applies says where a job stands."""


# --- what holds it up ---------------------------------------------------------------------------------------------


def wanting(state: ReadState, refusal: Shortfall) -> Wanting:
    """Who is charged with what a refused job waits for, the largest first. O(charges)."""
    holders = sorted(_holders(state, refusal.path, refusal.resource), key=lambda each: (-each.amount, each.job))
    return Wanting(refusal, tuple(holders[:HOLDERS_SHOWN]), len(holders))


def _holders(state: ReadState, path: str, name: str) -> Iterator[Holder]:
    """Everybody who is charged at a node or below it for a resource."""
    for uid, charge in state.queues.ledger.charges.items():
        amount = counted(charge.demand).get(name, 0)
        if amount and path in path_chain(charge.queue):
            yield _holder(state, uid, amount, charge.namespace)


def _holder(state: ReadState, uid: str, amount: int, namespace: str) -> Holder:
    workload, record = state.queues.workloads.get(uid), state.records.get(uid)
    if workload is None:
        key = record.ref.key if record is not None else f"{namespace}/(deleted)"
        return Holder(key, amount, "deleted")
    key, kind = workload.ref.key, workload.ref.kind
    if workload.phase == "finished":
        return Holder(key, amount, "finished", kind)
    if record is not None and record.running_at:
        return Holder(key, amount, "running", kind, record.running_at)
    if record is not None and record.admitted_at:
        return Holder(key, amount, "admitted", kind, record.admitted_at)
    return Holder(key, amount, "other", kind, phase=cast(str, workload.phase))
