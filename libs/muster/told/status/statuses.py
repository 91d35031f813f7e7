"""The status of a job, the status of a gang, and the promised start of a job: one pure function for each.

The status of a job is a function of the read model and a uid. All readers ask this function: QueueUnits and Events,
``muster why``, ``position`` and ``ls``, the levers, ``muster up``.

The status of a gang of pods is a function of the gang's record. A pod in no gang is a gang of its own.

The promised start of a waiting job is a function of the read model, a uid and a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec.structs import replace

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.promising.projection import Projected, Projection
from muster.core.promising.promises import Class, Scale
from muster.core.queueing.book import Place
from muster.core.queueing.queues import Job, WaitsForNodes
from muster.core.quota.claims import Claim
from muster.core.quota.demand import Charge, alternatives, counted, demand_of, misfits
from muster.core.quota.ledger.idling import budget
from muster.core.quota.ledger.quotaledger import Owing, leaf_of
from muster.events.gangs import GangHeldBack, HeldAs, held_as
from muster.events.refusals import Refusal
from muster.model.demand import Demand, Shortfall
from muster.model.gang import Verdict
from muster.model.keys import path_chain
from muster.model.quota import Flavors, flavor_names, flavors_text
from muster.model.resources import Vector
from muster.model.workload import NO_WISHES, Workload
from muster.told.codes.codetable import CODES, JobCode
from muster.told.codes.values import (
    STOPPED,
    Adoption,
    Counted,
    GangCode,
    GangStatus,
    HasQuota,
    Holder,
    Idles,
    InLine,
    NoPlace,
    NoPromise,
    NotQueued,
    OtherFlavor,
    Over,
    Pause,
    Plain,
    Pools,
    Promise,
    Remainder,
    Remains,
    ResumeRefused,
    Short,
    Start,
    Suspended,
    Unlisted,
    Untried,
    Values,
    Wanting,
)
from muster.told.readmodel.gangsshown import GangShown
from muster.told.readmodel.jobfolds import phase_of, running
from muster.told.readmodel.readstate import ReadState, Record, refused_by, waits_since
from muster.told.status.jobstatus import Charged, JobStatus, refusal_code, refused_code
from muster.told.status.unfit import unfit

# --- job --------------------------------------------------------------------------------------------------------------


HOLDERS_SHOWN = 5
AHEAD_SHOWN = 3


def job_status(state: ReadState, uid: str, *, acting: bool = True) -> JobStatus:
    """The status of a job as of the state's position. ``acting``: false where admissions are not carried out."""
    for look in _SITUATIONS:
        status = look(state, uid, acting)
        if status is not None:
            return status
    return _status(state, uid, "Seen", Untried())


def _status(state: ReadState, uid: str, code: JobCode, values: Values, **common: Any) -> JobStatus:
    """A status with the common fields; ``common``: the fields that differ."""
    workload, charge = state.queues.workloads.get(uid), state.queues.ledger.charges.get(uid)
    record = state.records.get(uid)
    ref = record.ref if record is not None else workload.ref if workload is not None else None
    facets: dict[str, Any] = {
        "kind": ref.kind if ref is not None else "",
        "job": ref.key if ref is not None else "",
        "attempt": state.queues.ledger.attempts.get(uid, 0),
        "detail": workload.detail if workload is not None else "",
    }
    if workload is not None and state.synced:
        unknown = state.queues.unknown_class(workload)
        facets |= {"unknown_class": unknown, "priority": state.queues.priority_of(workload)} if unknown else {}
    if charge is not None:
        scaling = None
        if record is not None and (record.growth.granted or record.growth.alarm or record.growth.denied):
            claim = state.queues.ledger.claims.by_uid.get(uid) if record.growth.denied is not None else None
            promised = claim.promised_now(state.now) if claim is not None else 0
            scaling = replace(record.growth, promised=promised)
        back_at = _back_at(state, record, charge) if charge.over else 0
        charged = Charged(charge.request, charge.over, charge.granted, scaling, back_at)
        facets |= {"queue": charge.queue, "charge": charged}
    if CODES[code].started:
        facets["pods"] = state.pods.of(uid, state.presence)
    elif (
        isinstance(values, Over)
        and values.outcome == "failed"
        and record is not None
        and not _stopped(record, workload)
    ):
        facets["pods"] = state.pods.ended(uid, record, state.presence)
    return JobStatus(code=code, phase=phase_of(state, uid), values=values, **{**facets, **common})


def _back_at(state: ReadState, record: Record | None, charge: Charge) -> int:
    """When the excess is taken back; the new cluster of an upgrade waits instead."""
    limit = state.queues.ledger.rules_of(charge.queue).overuse_ms
    workload = state.queues.workloads.get(record.ref.uid) if record is not None else None
    if record is None or workload is None or workload.outgoing or not (limit and record.over_since):
        return 0
    return record.over_since + limit


def _stopped(record: Record, workload: Workload | None) -> bool:
    """Whether the job's controller stopped it."""
    return (workload.detail if workload is not None else record.detail) in STOPPED


# --- over ---------------------------------------------------------------------------------------------------------


def _over(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """The object is gone or going, or can no longer be read."""
    workload = state.queues.workloads.get(uid)
    if workload is not None and (not workload.deleting or workload.phase == "finished"):
        return None
    trouble = state.troubles.get(uid)
    if trouble is not None and trouble.code == "unreadable":
        return _status(state, uid, "Unreadable", NotQueued(Refusal("unreadable", problem=trouble.first)))
    if uid in state.queues.ledger.charges:
        return _status(state, uid, "DeletedStillCharged", Remainder(_remains(state, uid)))
    record = state.records.get(uid)
    if record is None:
        return _status(state, uid, "Gone", Over())
    over = Over(record.outcome, ended=record.ended, reason=record.reason, request=record.request or {})
    return _status(state, uid, "Gone", over, queue=record.queue, detail=record.detail)


def _finished(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    workload = state.queues.workloads[uid]
    if workload.phase != "finished":
        return None
    if uid not in state.queues.ledger.charges:
        return _status(state, uid, "Finished", Over(workload.outcome))
    return _status(state, uid, "FinishedStillCharged", Over(workload.outcome, _remains(state, uid)))


def _remains(state: ReadState, uid: str) -> Remains:
    return Remains(any(state.presence.children.get(uid, {}).values()), state.presence.live_pods(uid))


# --- charged ------------------------------------------------------------------------------------------------------


def _holding(state: ReadState, uid: str, acting: bool) -> JobStatus | None:
    """The job has quota: suspended outside, leaving, running, starting, admitted or reserved."""
    if uid not in state.queues.ledger.charges:
        return None
    workload, record = state.queues.workloads[uid], state.records.get(uid)
    admitted = record.admitted_at if record is not None else 0
    if uid in state.suspended_outside:
        return _status(state, uid, "SuspendedOutside", Remainder(_remains(state, uid), state.suspended_outside[uid]))
    if uid in state.leaving:
        leaving = state.leaving[uid]
        return _status(state, uid, leaving.code, Suspended(leaving, _remains(state, uid)))
    if record is not None and record.adoption is not None:
        hand = workload.wishes if record.adoption == "bypassed" else NO_WISHES
        adoption = Adoption(record.adoption, hand.by, hand.reason)
        return _status(state, uid, "Adopted", adoption, since=record.running_at)
    if not workload.suspended and workload.phase == "running":
        since, lost = record.running_at if record is not None else 0, _lost(state, uid)
        return _status(state, uid, "Running", Plain(), since=since, lost=lost)
    if uid in state.queues.resumed or not workload.suspended:
        return _status(state, uid, "Starting", Start(_remains(state, uid), _verdict(state, uid)), since=admitted)
    if not admitted:
        if uid in state.shortages:
            return _status(state, uid, "AwaitingNodes", _no_place(state, uid))
        return _status(state, uid, "Reserved", HasQuota(_leaves_for(state, uid)))
    return _status(state, uid, "Admitted" if acting else "WouldBeAdmitted", Plain(), since=admitted)


def _verdict(state: ReadState, uid: str) -> Verdict | None:
    """kube-scheduler's verdict on the gang of a job, in the present attempt of the job."""
    ref, attempt = state.queues.workloads[uid].ref, state.queues.ledger.attempts.get(uid, 0)
    gang = state.gangs.gangs.get(f"{ref.namespace}/{pod_group_name(ref)}")
    groups = gang.pod_groups.values() if gang is not None else ()
    return next((group.verdict for group in groups if group.owner_uid == uid and group.attempt == attempt > 0), None)


def _no_place(state: ReadState, uid: str) -> NoPlace:
    return NoPlace(state.shortages[uid], state.pools.get(uid, Pools()))


# --- not in a queue -----------------------------------------------------------------------------------------------


def _kept_back(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """The job is in no queue for a reason: the job waits for the next try or for room on the nodes, or is refused."""
    until = state.queues.not_before.get(uid, 0)
    if until > state.now and uid in state.leaving:
        leaving = state.leaving[uid]
        return _status(state, uid, leaving.code, Suspended(leaving, until=until))
    if until > state.now:
        why, times = state.write_failures.get(uid), state.queues.failures.get(uid, 1)
        return _status(state, uid, "ResumeFailed", ResumeRefused(until, times, why))
    refusal = state.queues.refusals.get(uid)
    if refusal is not None and uid not in state.queues.jobs and state.queues.workloads[uid].suspended:
        return _status(state, uid, refused_code(refusal.reason), NotQueued(refusal))
    if uid in state.queues.unplaced and uid in state.shortages:
        return _unplaced(state, uid, state.queues.unplaced[uid])
    return None


def _unplaced(state: ReadState, uid: str, waits: WaitsForNodes) -> JobStatus:
    """The job has found no place on the nodes; a limit may have fallen below the request since."""
    line = replace(_line(state, uid, waits.queue, waits.place), length=state.queues.book.length(waits.queue) + 1)
    facets: dict[str, Any] = {"queue": waits.queue, "since": waits.queued_at, "line": line}
    final = _final(state, waits.queue, state.queues.demand_of(state.queues.workloads[uid]))
    never = unfit(state.nodes, state.queues.workloads[uid])
    if never is not None:
        return _status(state, uid, "FitsNoNode", replace(never, short=final), **facets)
    if final is not None:
        return _status(state, uid, refusal_code(final), Short(final), **facets)
    kept, tried = tuple(state.nodes_kept.values()), state.tried.get(uid, 0)
    others = _other_flavors(state, uid, waits.queue, waits.priority, waits.flavors)
    none = replace(_no_place(state, uid), tried=tried, kept=kept, leaves=_leaves_for(state, uid), flavors=others)
    return _status(state, uid, "GangUnschedulable", none)


def _leaves_for(state: ReadState, uid: str) -> tuple[str, ...]:
    """namespace/name of the jobs that are still charged and leave, or move, for a job."""
    name, charges = state.queues.workloads[uid].ref.key, state.queues.ledger.charges
    going = (victim for victim, why in state.leaving.items() if why.claimant == name and victim in charges)
    return tuple(sorted(state.queues.workloads[victim].ref.key for victim in going if victim in state.queues.workloads))


def _outside(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """The job is in no queue and holds no quota."""
    workload = state.queues.workloads[uid]
    if not state.synced:
        return _status(state, uid, "NotSynced", _unlisted(state))
    if workload.suspended:
        return None
    code: JobCode = "Unmanaged" if leaf_of(state.queues.ledger, workload) is None else "NotSuspended"
    return _status(state, uid, code, Plain())


def _unlisted(state: ReadState) -> Unlisted:
    return Unlisted(tuple(sorted(state.unsynced)))


# --- in a queue ---------------------------------------------------------------------------------------------------


def _queued(state: ReadState, uid: str, _acting: bool) -> JobStatus | None:
    """The job is in a queue. First pods that no node can run and a request that can never fit, then the waits of the
    whole queue, then the job's refusal.
    """
    job = state.queues.jobs.get(uid)
    if job is None:
        return None
    if job.status == "proposed":
        return _status(state, uid, "BeingTried", Plain(), queue=job.queue, since=job.queued_at)
    status = _in_line(state, job)
    final = _final(state, job.queue, job.demand)
    never = unfit(state.nodes, state.queues.workloads[uid]) if state.synced else None
    if never is not None:
        return _status(state, uid, "FitsNoNode", replace(never, short=final), **status)
    if final is not None:
        shape = state.queues.book.shapes.get(job.shape)
        cause = shape.denial.cause if shape is not None and shape.denial is not None else None
        return _status(state, uid, refusal_code(final), Short(final, cause, flavors=_beside(state, job)), **status)
    if not state.synced:
        return _status(state, uid, "NotSynced", _unlisted(state), **status)
    if state.closing:
        return _status(state, uid, "LogNearlyFull", Plain(), **status)
    if "admissions" in state.queues.resting(job.queue):
        return _status(state, uid, "Paused", Pause(*pause_of(state, job.queue)), **status)
    if state.queues.is_blocking(job.queue) and uid not in state.queues.ledger.claims.by_uid:
        status["line"] = _on_nodes(state, job, status["line"])
        if status["line"].position > 1:
            return _status(state, uid, "BehindHead", Plain(), **status)
    return _unserved(state, job, status)


def _final(state: ReadState, queue: str, demand: Demand) -> Shortfall | None:
    """The limit that a demand exceeds even if all quota is released; None if no limit does."""
    short = state.queues.ledger.shortfall(queue, demand, now=state.now)
    return short if short is not None and short.hopeless else None


def _unserved(state: ReadState, job: Job, facets: dict[str, Any]) -> JobStatus:
    """The limit that refuses the job; ``found``: the place of the job."""
    uid = job.ref.uid
    shape = state.queues.book.shapes.get(job.shape)
    if shape is None:
        return _status(state, uid, "Queued", Untried(), **facets)
    refusal = refused_by(state, job, shape, shape.denial) if shape.denial is not None else None
    if shape.denial is None:
        return _status(state, uid, "Queued", Untried(), **facets)
    if refusal is None:
        cleared = state.queues.ledger.short_now(shape.denial.short, job.queue, job.demand, state.now)
        return _status(state, uid, "Queued", Untried(cleared), **facets)
    claims, others = state.queues.ledger.claims, _beside(state, job)
    short = Short(refusal, shape.denial.cause, flavors=others)
    own = claims.served_by(uid, job.queue, job.demand)
    if own is not None:
        short = replace(short, promised=own.promised_now(state.now), idles=_idles(state, own, refusal.resource))
        return _status(state, uid, "WaitingForClaim", short, **facets)
    if (owed := Owing(state.queues.ledger).beside(job.queue, job.demand)) is not None:
        short = replace(short, owed=owed)
    claim = next(claims.holding_at(refusal.path, refusal.resource), None) if refusal.held else None
    if claim is not None and not claim.firm:
        short = replace(short, declared=job.demand.run_ms, promised=claim.promised_now(state.now))
    return _status(state, uid, refusal_code(refusal), short, **facets)


MOST_OTHERS = 8
"""The most alternatives that a refusal lists."""


def _beside(state: ReadState, job: Job) -> tuple[OtherFlavor, ...]:
    return _other_flavors(state, job.ref.uid, job.queue, job.priority, job.demand.flavors)


def _other_flavors(state: ReadState, uid: str, queue: str, priority: int, mine: Flavors) -> tuple[OtherFlavor, ...]:
    """The alternatives to the flavors that a job waits for, each with its present refusal: a limit, or the nodes at
    the last try.
    """
    ledger, workload = state.queues.ledger, state.queues.workloads.get(uid)
    tree, passed = ledger.tree_of(queue), state.queues.passed.get(uid, {})
    if not mine or tree is None or workload is None:
        return ()
    others: list[OtherFlavor] = []
    for flavors in alternatives(tree, queue, workload)[: MOST_OTHERS + 1]:
        if flavors != mine:
            demand = demand_of(tree, workload, priority, queue=queue, flavors=flavors)
            short = ledger.shortfall(queue, demand, now=state.now, uid=uid)
            names = flavor_names(flavors)
            if until := state.queues.flavor_waits.get(uid, 0):
                others.append(OtherFlavor(names, kind="later", until=until))
                continue
            kind = "nodes" if short is None and flavors_text(flavors) in passed else ""
            others.append(OtherFlavor(names, short, kind))
    unfit_on = misfits(tree, workload).items()
    return (*others, *(OtherFlavor((name,), kind=why.kind, key=why.key) for name, why in unfit_on))


def _idles(state: ReadState, claim: Claim, resource: str) -> Idles | None:
    if claim.firm:
        return None
    most = budget(claim, resource)
    return Idles(claim.opened, claim.idle.get(resource, 0), most)


def _in_line(state: ReadState, job: Job) -> dict[str, Any]:
    line = _line(state, job.ref.uid, job.queue, job.place)
    return {"queue": job.queue, "since": waits_since(state, job), "line": line}


def _line(state: ReadState, uid: str, queue: str, place: Place) -> InLine:
    book = state.queues.book
    position = book.position(queue, place)
    ahead = book.ahead(queue, min(AHEAD_SHOWN, position - 1))
    return InLine(position, book.length(queue), ahead, state.leaving.get(uid))


def _on_nodes(state: ReadState, job: Job, line: InLine) -> InLine:
    """The place in a queue in which no job passes the head, with the jobs that lack a place on the nodes."""
    before = [place.key for place in state.queues.before_on_nodes(job.queue, job.place)]
    ahead = (*before, *line.ahead)[:AHEAD_SHOWN]
    return replace(line, position=line.position + len(before), length=line.length + len(before), ahead=ahead)


def pause_of(state: ReadState, queue: str) -> tuple[str, str]:
    """The user that paused the admissions of a queue, and the reason, as far as known."""
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
"""In this order: the first function that returns a status decides the status of a job."""


# --- what holds it up ---------------------------------------------------------------------------------------------


def wanting(state: ReadState, status: JobStatus) -> Wanting | None:
    """The limit that a refused job, or refused growth, waits for, and the charges at that limit, largest first.
    O(charges).
    """
    row, short = CODES[status.code], status.short
    denied = status.charge.scaling.denied if status.charge is not None and status.charge.scaling is not None else None
    if denied is not None:
        charge = state.queues.ledger.charges[denied.ref.uid]
        refusal = state.queues.ledger.short_now(denied.short, charge.queue, charge.demand, state.now)
        firm = refusal.of_min
    elif short is None or row.holders == "none":
        return None
    else:
        refusal, firm = short.refusal, row.holders == "firm"
    found_holders = _holders(state, refusal.path, refusal.resource, firm=firm)
    holders = sorted(found_holders, key=lambda holder: (-holder.amount, holder.job))
    return Wanting(refusal, tuple(holders[:HOLDERS_SHOWN]), len(holders))


def _holders(state: ReadState, path: str, name: str, *, firm: bool) -> Iterator[Holder]:
    """Every charge at a node or below for a resource; ``firm``: of jobs that are not preemptible."""
    for uid, charge in state.queues.ledger.charges.items():
        amount = counted(charge.demand).get(name, 0)
        if amount and path in path_chain(charge.queue) and not (firm and charge.preemptible):
            yield _holder(state, uid, amount, charge.namespace)


def _lost(state: ReadState, uid: str) -> str:
    return state.nodes.lost(state.presence.pods_of(uid))


def _holder(state: ReadState, uid: str, amount: int, namespace: str) -> Holder:
    workload, record = state.queues.workloads.get(uid), state.records.get(uid)
    if uid in state.lone:
        pod = state.lone[uid]
        return Holder(pod.ref.key, amount, "running", pod.ref.kind, pod.since)
    if workload is None:
        key = record.ref.key if record is not None else f"{namespace}/(deleted)"
        return Holder(key, amount, "deleted")
    key, kind = workload.ref.key, workload.ref.kind
    if workload.phase == "finished":
        return Holder(key, amount, "finished", kind)
    if record is not None and record.running_at:
        return Holder(key, amount, "running", kind, record.running_at, lost=_lost(state, uid))
    if record is not None and record.admitted_at:
        return Holder(key, amount, "admitted", kind, record.admitted_at)
    return Holder(key, amount, "other", kind, phase=cast(str, workload.phase))


# --- gang -------------------------------------------------------------------------------------------------------------


_ALONE: dict[HeldAs, GangCode] = {"GangWaits": "Waits", "GangBindRefused": "BindRefused"}


def held_back_code(event: GangHeldBack) -> GangCode:
    """The code of a gang from the event with the reason to wait. A pod in no gang has a code of its own."""
    code = held_as(event.reason)
    return code if event.gang else _ALONE.get(code, "FailedScheduling")


def gang_status(gang: GangShown | None) -> GangStatus:
    """The status of a gang; ``None``: a gang that is not known any more."""
    if gang is None or not gang.pods:
        return GangStatus("Gone")
    pods, held = gang.counted(), gang.held.event if gang.held is not None else None
    group = gang.pod_group
    verdict = group.verdict if group is not None else None
    return GangStatus(_code(gang, pods, held), pods, gang.minimum, held, verdict)


def _code(gang: GangShown, pods: Counted, held: GangHeldBack | None) -> GangCode:
    if held is not None:
        return held_back_code(held)
    if not gang.ours:
        return "KubeScheduler" if gang.native and gang.by_default else "OtherScheduler"
    if gang.ended:
        return "Finished" if gang.ended == "Finished" else "Failed"
    if pods.pods and pods.bound == pods.pods:
        return "Running" if pods.running else "Bound"
    return "Starting" if pods.bound else "Waiting"


# --- promise ----------------------------------------------------------------------------------------------------------


def promise_of(state: ReadState, uid: str, now: int) -> Promise:
    """The promise to a job. O(waiting + charges)."""
    promises = promises_of(state, (uid,), now)
    return promises[uid]


def promises_of(
    state: ReadState, uids: Iterable[str], now: int, *, foreseen: Mapping[str, Projected] | None = None
) -> dict[str, Promise]:
    """The promises to several jobs at once, for hardly more than the cost of one; ``now``: ms since the epoch.

    ``foreseen``: the queues played forward already.
    """
    now = max(now, state.now)
    without = {uid: _without(state, uid, now) for uid in uids}
    wanted = [uid for uid, promise in without.items() if not promise.why]
    if not wanted:
        return without
    promises = state.promises
    if foreseen is None:
        projection = Projection(state.queues, running(state), promises.durations, now)
        projection.run(until=wanted[0] if len(wanted) == 1 else "")
        foreseen = projection.found
    scales: dict[int, Scale] = {}
    for uid in wanted:
        projected = foreseen.get(uid)
        if projected is None:
            without[uid] = Promise(why="endless")
            continue
        known = promises.of(uid, state.queues.jobs[uid].demand.request, now)
        if id(known) not in scales:
            scales[id(known)] = promises.scale(known, now)
        without[uid] = replace(_promised(known, scales[id(known)], projected.wait, now), first=promises.first(uid))
    return without


def promised(state: ReadState, wait: int, request: Vector, now: int) -> Promise:
    """The promise for a projected wait (ms), for a job that is not in the queues."""
    known = state.promises.of("", request, now)
    why = _unknown(state, known)
    return Promise(why=why) if why else _promised(known, state.promises.scale(known, now), wait, now)


def _promised(known: Class, scale: Scale, wait: int, now: int) -> Promise:
    calibration = known.calibration
    start, latest = now + scale.middle(wait), now + scale.bound(wait)
    return Promise(start, latest, calibration.kept + calibration.broken, calibration.kept)


def _unknown(state: ReadState, known: Class) -> NoPromise | Literal[""]:
    """Why no projection is worth anything yet; empty once projections are."""
    if not state.promises.durations.known():
        return "few_runs"
    return "" if known.calibration.ready else "few_waits"


def _without(state: ReadState, uid: str, now: int) -> Promise:
    """Why nothing can be promised to the job, before any projection."""
    job = state.queues.jobs.get(uid)
    if job is None or job.status == "charged":
        return Promise(why="not_waiting")
    if not CODES[job_status(state, uid).code].turn:
        return Promise(why="standing")
    return Promise(why=_unknown(state, state.promises.of(uid, job.demand.request, now)))
