"""Where a job stands now, in one sentence with numbers, and what that rests on.

A pure function of what a narrator has folded. Every situation has a code of its own, and reads differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field, structs

from muster.core import explain, explain_nodes
from muster.core.narrator import Entry, Narrator
from muster.core.objects.meta import rfc3339
from muster.core.presentation.desired import waiting_reason
from muster.core.queueing.book import Denial, as_of_now, clear
from muster.core.queueing.state import Job
from muster.core.quota.demand import Charge
from muster.core.quota.demand import counted as counted_in
from muster.core.quota.ledger import leaf_of
from muster.core.workloads.registry import child_of
from muster.model.keys import Ref, path_chain
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, span
from muster.model.workload import Workload

HOLDERS_SHOWN = 5


class Holder(Struct, frozen=True):
    """Somebody whose quota a job waits for."""

    job: str
    amount: str
    text: str


class Wanting(Struct, frozen=True):
    """What a waiting job waits for, in numbers of now: at which quota, and what must be released there."""

    quota: str
    resource: str
    request: str
    limit: str
    used: str
    free: str
    missing: str
    holders: list[Holder] = field(default_factory=list)
    """The largest first."""
    held_by: int = 0
    """How many hold some of it in all."""


class Standing(Struct, frozen=True):
    """Where a job stands. ``code`` is one word for programs, ``text`` one or more sentences for people."""

    code: str
    text: str
    queue: str = ""
    position: int = 0
    length: int = 0
    charged: str = ""
    wanting: Wanting | None = None


def stand(told: Narrator, ref: Ref, history: list[Entry], *, acting: bool = True) -> Standing:
    """Where a job stands after everything the narrator has heard; ``history`` is what it said of the job.

    ``acting``: false where nobody carries admissions out.
    """
    for look in _SITUATIONS:
        found = look(told, ref, history, acting)
        if found is not None:
            return found
    return Standing("Seen", "It was seen, and nothing has been decided about it yet")


def _over(told: Narrator, ref: Ref, history: list[Entry], _acting: bool) -> Standing | None:
    """The object is gone, or can no longer be read."""
    if ref.uid in told.state.workloads:
        return None
    charge = told.state.ledger.charges.get(ref.uid)
    trouble = told.state.troubles.get(ref.uid)
    if trouble is not None and trouble.code == "unreadable":
        kept = f" What runs of it stays charged with {format_vector(charge.request)}." if charge is not None else ""
        return Standing(
            "Unreadable", f"It cannot be read, so it is not queued: {trouble.text}.{kept} Mend it and it is queued"
        )
    if charge is not None:
        given = format_vector(charge.request)
        text = f"It was deleted, and is charged with {given} {_until(told, ref)}"
        return _charged("DeletedStillCharged", charge, text)
    last = next((entry for entry in reversed(history) if entry.weight == "turn"), None)
    ended = next((entry for entry in reversed(history) if entry.word == "finished"), None)
    if ended is not None:
        return Standing("Gone", f"It is over and deleted; it had finished: {ended.text.partition(';')[0]}")
    if last is not None and last.word == "left":
        left = last.text.replace("leaves", "left")
        return Standing("Gone", f"It was deleted, and had never been admitted: it {left}")
    if last is not None and last.word == "refused":
        return Standing("Gone", "It was deleted; it had never been queued, because it was refused")
    released = next((entry for entry in reversed(history) if entry.word == "released"), None)
    if released is not None:
        return Standing("Gone", f"It was deleted, and {released.text.partition(';')[0].replace('gives', 'gave')}")
    return Standing("Gone", "It was deleted, and holds no quota")


def _finished(told: Narrator, ref: Ref, _history: list[Entry], _acting: bool) -> Standing | None:
    workload = told.state.workloads[ref.uid]
    if workload.phase != "finished":
        return None
    detail = f" ({workload.detail})" if workload.detail else ""
    how = f"It has finished: {workload.outcome or 'over'}{detail}"
    charge = told.state.ledger.charges.get(ref.uid)
    if charge is None:
        return Standing("Finished", f"{how}. It holds no quota")
    given = format_vector(charge.request)
    text = f"{how}. It is charged with {given} {_until(told, ref)}"
    return _charged("FinishedStillCharged", charge, text)


def _holding(told: Narrator, ref: Ref, _history: list[Entry], acting: bool) -> Standing | None:
    """It has quota: suspended outside, running, starting, admitted or reserved."""
    state, uid = told.state, ref.uid
    charge = state.ledger.charges.get(uid)
    if charge is None:
        return None
    workload, given = state.workloads[uid], format_vector(charge.request)
    if uid in state.suspended_outside:
        text = f"{explain.SUSPENDED_OUTSIDE.text}. It is charged with {given} {_until(told, ref)}"
        return _charged("SuspendedOutside", charge, text)
    if uid in state.leaving:
        reason = state.leaving[uid].reason
        return _charged(reason.code, charge, f"{reason.text}. It is charged with {given} {_until(told, ref)}")
    if uid in told.adopted:
        runs = "It runs" if workload.phase == "running" else f"It is started ({workload.detail or workload.phase})"
        text = f"{runs} without having been admitted by Muster: {explain.ADOPTED[told.adopted[uid]]}. Charged: {given}"
        return _charged("Adopted", charge, text)
    since = told.admitted.get(uid)
    if not workload.suspended and workload.phase == "running":
        ran = f" for {span(told.present - told.running[uid])}" if uid in told.running else ""
        return _charged("Running", charge, f"It runs{ran}, charged with {given} at {charge.queue}")
    if uid in state.resumed or not workload.suspended:
        says = f"; {ref.kind} says {workload.detail}" if workload.detail else ""
        pods = told.presence.live_pods(uid)
        return _charged("Starting", charge, f"It is admitted, resumed and starting: {counted(pods, 'pod')}{says}")
    if since is None and uid in state.shortages:
        waits = explain_nodes.waiting_for_nodes(state.shortages[uid], state.pool_words.get(uid, ""))
        return _charged(waits.code, charge, f"{waits.text}. Charged: {given} at {charge.queue}")
    if since is None:
        return _charged("Reserved", charge, f"Its quota is reserved ({given} at {charge.queue}); next it is admitted")
    if not acting:
        why = "nothing is resumed, because this Muster only observes"
        return _charged("WouldBeAdmitted", charge, f"It would be admitted ({given} at {charge.queue}): {why}")
    ago = span(told.present - since)
    return _charged("Admitted", charge, f"It was admitted {ago} ago ({given} at {charge.queue}) and is being resumed")


def _charged(code: str, charge: Charge, text: str) -> Standing:
    return Standing(code, text, queue=charge.queue, charged=format_vector(charge.request))


def _kept_back(told: Narrator, ref: Ref, _history: list[Entry], _acting: bool) -> Standing | None:
    """It is not in a queue for a reason: resuming failed, or it is refused."""
    state, uid = told.state, ref.uid
    until = state.not_before.get(uid, 0)
    if until > state.now and uid in state.shortages:
        deferred = explain_nodes.deferred_for_nodes(state.shortages[uid], rfc3339(until), state.pool_words.get(uid, ""))
        return Standing(deferred.code, deferred.text)
    if until > state.now and uid in state.leaving:
        reason = state.leaving[uid].reason
        return Standing(reason.code, f"{reason.text}: after {rfc3339(until)}")
    if until > state.now:
        failed = explain.resume_failed(state.failure_messages.get(uid, ""), rfc3339(until))
        times = state.failures.get(uid, 1)
        again = f" (failed {times} times in a row)" if times > 1 else ""
        return Standing("ResumeFailed", failed.text + again)
    refusal = state.refusals.get(uid)
    if refusal is not None and uid not in state.jobs and state.workloads[uid].suspended:
        return Standing(explain.REFUSED.get(refusal.reason, "Refused"), f"It is not queued: {refusal.message}")
    return None


def _queued(told: Narrator, ref: Ref, history: list[Entry], _acting: bool) -> Standing | None:
    """It is in a queue."""
    state = told.state
    job = state.jobs.get(ref.uid)
    if job is None:
        return None
    if job.status == "proposed":
        return Standing("BeingTried", f"It is being tried in queue {job.queue} right now", queue=job.queue)
    waited = span(max(0, told.present - job.queued_at))
    waits = f"It has waited in queue {job.queue} for {waited}, {told.place(job)}"
    if ref.uid in state.leaving:
        waits += f". {state.leaving[ref.uid].reason.text}"
    reason = waiting_reason(state, job)
    if not state.synced:
        return _in_line(told, job, reason.code, f"{waits}. {reason.text}")
    if state.closing:
        closing = "The log is nearly full: nothing is admitted until its next generation is in force"
        return _in_line(told, job, "LogNearlyFull", f"{waits}. {closing}")
    if "admissions" in state.resting(job.queue):
        return _in_line(told, job, reason.code, f"{waits}. {reason.text}")
    shape = state.book.shapes.get(job.shape)
    if shape is None or shape.denial is None:
        return _in_line(told, job, "Queued", f"{waits}. It is about to be tried")
    denial = as_of_now(shape.denial, job.queue, state.ledger)
    if clear(shape, state.ledger):
        claim, short = state.ledger.claim, state.ledger.shortfall(job.queue, job.demand)
        if claim is not None and short is not None and short.held:
            now = structs.replace(
                denial,
                path=short.path,
                resource=short.resource,
                asked=short.asked,
                used=short.used,
                limit=short.limit,
                held=short.held,
            )
            reason = explain.waiting_for_quota(now, claim.ref.key)
            return _in_line(told, job, reason.code, f"{waits}. {reason.text}")
        what = f"What refused it ({denial.resource} in {denial.path}) has room now"
        return _in_line(told, job, "Queued", f"{waits}. {what}: it is about to be tried again")
    if reason.code != "InsufficientQuota":
        return _in_line(told, job, reason.code, f"{waits}. {reason.text}{_tried(history)}")
    wanting = _wanting(told, denial)
    text = (
        f"{waits}. It asks for {wanting.resource} {wanting.request}, and {wanting.quota} has {wanting.free} free of "
        f"{wanting.limit} ({wanting.used} in use): it is tried again once {wanting.missing} more are released there"
    )
    since = next((entry.seq for entry in reversed(history) if entry.word == "queued"), 0)
    more = told.takers.told(since, job, denial) + _tried(history)
    return _in_line(told, job, reason.code, f"{text}{more}", wanting)


def _tried(history: list[Entry]) -> str:
    """What was tried last to make room for it, and what became of that, since it was queued."""
    for entry in reversed(history):
        if entry.word == "queued":
            return ""
        if entry.word in ("deferred", "stale", "claim ends", "preemption") and entry.weight != "detail":
            return f". To make room for it: {entry.text}"
    return ""


def _in_line(told: Narrator, job: Job, code: str, text: str, wanting: Wanting | None = None) -> Standing:
    book = told.state.book
    position, length = book.position(job.queue, job.place), book.length(job.queue)
    return Standing(code, text, job.queue, position, length, wanting=wanting)


def _wanting(told: Narrator, denial: Denial) -> Wanting:
    name, room = denial.resource, denial.limit - denial.used
    holders = sorted(_holders(told, denial.path, name), key=lambda pair: (-pair[0], pair[1].job))
    return Wanting(
        quota=denial.path,
        resource=name,
        request=format_quantity(denial.asked, name),
        limit=format_quantity(denial.limit, name),
        used=format_quantity(denial.used, name),
        free=format_quantity(max(room, 0), name),
        missing=format_quantity(denial.asked - room, name),
        holders=[holder for _, holder in holders[:HOLDERS_SHOWN]],
        held_by=len(holders),
    )


def _holders(told: Narrator, path: str, name: str) -> Iterator[tuple[int, Holder]]:
    """Everybody who is charged at a node or below it for a resource."""
    state = told.state
    for uid, charge in state.ledger.charges.items():
        amount = counted_in(charge.demand).get(name, 0)
        if amount and path in path_chain(charge.queue):
            workload = state.workloads.get(uid)
            key = workload.ref.key if workload is not None else f"{charge.namespace}/(deleted)"
            yield amount, Holder(key, format_quantity(amount, name), _does(told, uid, workload))


def _does(told: Narrator, uid: str, workload: Workload | None) -> str:
    if workload is None:
        return "deleted, its pods are ending"
    if workload.phase == "finished":
        left = child_of(workload.ref.kind)
        return f"finished, its {left or 'pods'} still exist{'s' if left else ''}"
    if uid in told.running:
        return f"running for {span(told.present - told.running[uid])}"
    if uid in told.admitted:
        return f"admitted {span(told.present - told.admitted[uid])} ago"
    return workload.phase


def _outside(told: Narrator, ref: Ref, _history: list[Entry], _acting: bool) -> Standing | None:
    """It is in no queue and holds no quota."""
    state = told.state
    workload = state.workloads[ref.uid]
    if not state.synced:
        reason = explain.waiting_for_sync(sorted(state.unsynced))
        return Standing(reason.code, reason.text)
    if workload.suspended:
        return None
    if leaf_of(state.ledger, workload) is None:
        return Standing("Unmanaged", "It is not suspended and no quota claims its namespace: Muster leaves it alone")
    return Standing("NotSuspended", "It is not suspended, so it is not queued; it is charged as soon as it runs")


def _until(told: Narrator, ref: Ref) -> str:
    """Until when a charge lasts: what still exists of a job."""
    children = any(told.presence.children.get(ref.uid, {}).values())
    pods = told.presence.live_pods(ref.uid)
    left = [*([f"its {child_of(ref.kind) or 'driver'}"] if children else []), *([counted(pods, "pod")] if pods else [])]
    return f"as long as anything of it is left ({', '.join(left) or 'nothing was seen of it lately'})"


_SITUATIONS: tuple[Callable[[Narrator, Ref, list[Entry], bool], Standing | None], ...] = (
    _over,
    _finished,
    _holding,
    _kept_back,
    _queued,
    _outside,
)
"""In this order: the first that applies says where a job stands."""
