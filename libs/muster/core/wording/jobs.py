"""Where a job stands, in English: one short reason for objects of the API server, one longer text for people.

Both are made of the same status, so that they cannot differ in what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from muster.core.objects.meta import rfc3339
from muster.core.status.values import Holder, JobCode, JobStatus, Pools, Wanting
from muster.core.wording import explain, explain_claims, explain_nodes, refusals, telling_ray
from muster.core.wording.explain import Reason
from muster.core.workloads.registry import child_of
from muster.model.demand import Shortfall
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, span

# --- in a word and a sentence: QueueUnits, Events, conditions -----------------------------------------------------


def reason(status: JobStatus) -> Reason:
    """The reason an object shows. It has no span of time in it: an object is not written again because time passes."""
    return _REASONS[status.code](status)


def _finished(status: JobStatus) -> Reason:
    word = {"succeeded": "Succeed"}.get(status.outcome, "Failed")
    return Reason(word, word, status.detail or word)


def _refused(status: JobStatus) -> Reason:
    assert status.refused is not None
    text = refusals.refused(status.refused, status.kind, status.job)
    return Reason(status.code, f"{status.code}:{text}", text)


def _short(status: JobStatus) -> Reason:
    assert status.refusal is not None
    if status.code == "WaitingForClaim":
        return explain_claims.waiting_for_claim(status.refusal, status.promised)
    found = explain.waiting_for_quota(status.refusal, status.holder)
    return explain_claims.not_beside(found, status.declared, status.promised)


def _kept(status: JobStatus) -> Reason:
    assert status.refusal is not None
    return explain.kept_for_owners(status.refusal)


def _left(status: JobStatus) -> Reason:
    assert status.leaving is not None
    return explain.leaving(status.leaving)


def _awaits_nodes(status: JobStatus) -> Reason:
    assert status.shortage is not None
    return explain_nodes.waiting_for_nodes(status.shortage, pools(status.pools))


def _plain(code: str, text: str) -> Callable[[JobStatus], Reason]:
    return lambda _: Reason(code, code, text)


_REASONS: dict[JobCode, Callable[[JobStatus], Reason]] = {
    "Seen": lambda _: explain.waiting_untried(0),
    "NotSynced": lambda status: explain.waiting_for_sync(list(status.missing)),
    "NoQuotaTree": _refused,
    "TwoQuotas": _refused,
    "QueueLabelMissing": _refused,
    "QueueDoesNotExist": _refused,
    "NoQuota": _refused,
    "CannotSuspend": _refused,
    "Held": _refused,
    "Unreadable": _refused,
    "Unmanaged": _plain("Unmanaged", "It is not suspended and no quota claims its namespace: Muster leaves it alone"),
    "NotSuspended": _plain(
        "NotSuspended", "It is not suspended, so it is not queued; it is charged as soon as it runs"
    ),
    "Queued": lambda status: explain.waiting_untried(max(status.position - 1, 0)),
    "BeingTried": lambda _: explain.waiting_untried(0),
    "LogNearlyFull": lambda _: explain.LOG_NEARLY_FULL,
    "Paused": lambda status: explain.paused(status.queue, status.by, status.message),
    "BehindHead": lambda _: explain.BEHIND_HEAD,
    "InsufficientQuota": _short,
    "InsufficientMinQuota": _short,
    "InsufficientRuntimeQuota": _short,
    "ExceedsMaxQuota": _short,
    "ExceedsMinQuota": _short,
    "QuotaHeld": _short,
    "QuotaKept": _kept,
    "WaitingForClaim": _short,
    "ResumeFailed": lambda status: explain.resume_failed(status.message, rfc3339(status.until)),
    "GangUnschedulable": lambda status: explain_nodes.deferred_for_nodes(status.shortage, pools(status.pools)),
    "RunningTimeout": _left,
    "StaleGang": _left,
    "Reclaimed": _left,
    "Preempted": _left,
    "Reserved": lambda _: explain.ADMITTED,
    "AwaitingNodes": _awaits_nodes,
    "WouldBeAdmitted": lambda _: explain.ADMITTED,
    "Admitted": lambda _: explain.ADMITTED,
    "Starting": lambda _: explain.ADMITTED,
    "Running": lambda _: explain.RUNNING,
    "Adopted": lambda status: Reason("Adopted", f"adopted:{status.adoption}", _adopted(status)),
    "SuspendedOutside": lambda _: explain.SUSPENDED_OUTSIDE,
    "Finished": _finished,
    "FinishedStillCharged": _finished,
    "DeletedStillCharged": _plain("Deleted", "It was deleted; its quota is given back once nothing of it is left"),
    "Gone": _plain("Gone", "It was deleted, and holds no quota"),
}


def pools(found: Pools) -> str:
    """What node pools could give, as the end of a sentence."""
    return explain_nodes.from_pools(found.growth, found.refusals)


# --- in full: why, position, ls, the levers, muster up ------------------------------------------------------------


def text(status: JobStatus, now: int, *, more: str = "") -> str:
    """The sentences for people. ``now``: ms since the epoch; ``more``: what follows on the refusal."""
    say = _TEXTS.get(status.code)
    said = say(status, now, more) if say is not None else f"{_waits(status, now)}. {reason(status).text}{more}"
    said = f"{said}. {telling_ray.scaling(status.scaling)}" if status.scaling is not None else said
    return f"{said}. {explain.beyond_grant(status.beyond, status.granted).text}" if status.beyond else said


def place(status: JobStatus) -> str:
    """Its position in its queue, and the jobs before it."""
    if status.position <= 1:
        return f"position 1 of {status.length}, nobody is ahead"
    ahead = status.position - 1
    more = f" and {ahead - len(status.ahead)} more" if ahead > len(status.ahead) else ""
    return f"position {status.position} of {status.length}, {ahead} ahead: {', '.join(status.ahead)}{more}"


def _waits(status: JobStatus, now: int) -> str:
    waited = span(max(0, now - status.since))
    waits = f"It has waited in queue {status.queue} for {waited}, {place(status)}"
    if status.leaving is not None:
        waits += f". {explain.leaving(status.leaving).text}"
    return waits


def _quota(status: JobStatus, now: int, more: str) -> str:
    short = cast(Shortfall, status.refusal)
    found = Wanting(short)
    name = short.resource
    asked, limit, used = (format_quantity(amount, name) for amount in (short.asked, short.limit, short.used))
    free, missing = format_quantity(found.free, name), format_quantity(found.missing, name)
    return (
        f"{_waits(status, now)}. It asks for {name} {asked}, and {short.path} has {free} free of {limit} ({used} in "
        f"use): it is tried again once {missing} more are released there{more}"
    )


def _queued(status: JobStatus, now: int, _more: str) -> str:
    if not status.queue:
        return "It was seen, and nothing has been decided about it yet"
    if status.cleared is None:
        return f"{_waits(status, now)}. It is about to be tried"
    what = f"What refused it ({status.cleared.resource} in {status.cleared.path}) has room now"
    return f"{_waits(status, now)}. {what}: it is about to be tried again"


def _given(status: JobStatus) -> str:
    return format_vector(status.charged or {})


def _until(status: JobStatus) -> str:
    """Until when a charge lasts: what still exists of a job."""
    children, pods = status.remains.children, status.remains.pods
    left = [
        *([f"its {child_of(status.kind) or 'driver'}"] if children else []),
        *([counted(pods, "pod")] if pods else []),
    ]
    return f"as long as anything of it is left ({', '.join(left) or 'nothing was seen of it lately'})"


def _ending(status: JobStatus, words: str) -> str:
    if status.charged is None:
        return f"{words}: after {rfc3339(status.until)}" if status.until else words
    return f"{words}. It is charged with {_given(status)} {_until(status)}"


def _unreadable(status: JobStatus, _now: int, _more: str) -> str:
    kept = f" What runs of it stays charged with {_given(status)}." if status.charged is not None else ""
    return f"It cannot be read, so it is not queued: {reason(status).text}.{kept} Correct it and it is queued"


def _outcome(status: JobStatus) -> str:
    return (status.outcome or "over") + (f" ({status.detail})" if status.detail else "")


def _gone(status: JobStatus, _now: int, _more: str) -> str:
    match status.ended:
        case "finished":
            return f"It is over and deleted; it had finished: {_outcome(status)}"
        case "left":
            why = {str(each): words for each, words in explain.DEQUEUED.items()}.get(status.reason, status.reason)
            return f"It was deleted, and had never been admitted: it left queue {status.queue}: {why}"
        case "refused":
            return "It was deleted; it had never been queued, because it was refused"
        case "released":
            why = {str(each): words for each, words in explain.RELEASED.items()}.get(status.reason, status.reason)
            return f"It was deleted, and gave back {format_vector(status.request)}: {why}"
        case _:
            return "It was deleted, and holds no quota"


def _over(status: JobStatus, _now: int, _more: str) -> str:
    how = f"It has finished: {_outcome(status)}"
    if status.charged is None:
        return f"{how}. It holds no quota"
    return _ending(status, how)


def _adopted(status: JobStatus) -> str:
    runs = "It runs" if status.phase == "running" else f"It is started ({status.detail or status.phase})"
    words = explain.ADOPTED[status.adoption] if status.adoption is not None else ""
    return f"{runs} without having been admitted by Muster: {words}. Charged: {_given(status)}"


def _starting(status: JobStatus, _now: int, _more: str) -> str:
    if not status.remains.pods and not status.remains.children and not status.detail:
        made = child_of(status.kind) or "pods"
        return (
            f"It is admitted and resumed, and its controller has made no {made} yet: if it stays so, look whether the "
            f"operator of {status.kind} runs"
        )
    says = f"; {status.kind} says {status.detail}" if status.detail else ""
    judged = f"; kube-scheduler places it: {explain_nodes.judged(status.verdict)}" if status.verdict is not None else ""
    return f"It is admitted, resumed and starting: {counted(status.remains.pods, 'pod')}{says}{judged}"


def _running(status: JobStatus, now: int, _more: str) -> str:
    ran = f" for {span(max(0, now - status.since))}" if status.since else ""
    return f"It runs{ran}, charged with {_given(status)} at {status.queue}"


def _admitted(status: JobStatus, now: int, _more: str) -> str:
    ago = span(max(0, now - status.since))
    return f"It was admitted {ago} ago ({_given(status)} at {status.queue}) and is being resumed"


def _unplaced(status: JobStatus, now: int, _more: str) -> str:
    """Why it found no place when it was tried last, and what it does not get of what became free since."""
    said = reason(status).text
    if status.tried:
        said += f". It was tried last {span(max(0, now - status.tried))} ago"
    named = status.shortage.kept_for if status.shortage is not None else ""
    mine = [each for each in status.kept if each.uid and each.gang == status.job]
    others = [each for each in status.kept if each not in mine and each.gang != named]
    return said + "".join(f". {explain_nodes.kept_now(each, own=each in mine)}" for each in (*mine, *others))


def _resume_failed(status: JobStatus, _now: int, _more: str) -> str:
    again = f" (failed {status.failures} times in a row)" if status.failures > 1 else ""
    return reason(status).text + again


_TEXTS: dict[JobCode, Callable[[JobStatus, int, str], str]] = {
    "Seen": _queued,
    "NotSynced": lambda status, now, _: (
        f"{_waits(status, now)}. {reason(status).text}" if status.position else reason(status).text
    ),
    "NoQuotaTree": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "TwoQuotas": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "QueueLabelMissing": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "QueueDoesNotExist": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "NoQuota": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "CannotSuspend": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "Held": lambda status, _now, _more: f"It is not queued: {reason(status).text}",
    "Unreadable": _unreadable,
    "Unmanaged": lambda status, _now, _more: reason(status).text,
    "NotSuspended": lambda status, _now, _more: reason(status).text,
    "Queued": _queued,
    "BeingTried": lambda status, _now, _more: f"It is being tried in queue {status.queue} right now",
    "InsufficientQuota": _quota,
    "ResumeFailed": _resume_failed,
    "GangUnschedulable": _unplaced,
    "RunningTimeout": lambda status, _now, _more: _ending(status, reason(status).text),
    "StaleGang": lambda status, _now, _more: _ending(status, reason(status).text),
    "Reclaimed": lambda status, _now, _more: _ending(status, reason(status).text),
    "Preempted": lambda status, _now, _more: _ending(status, reason(status).text),
    "Reserved": lambda status, _now, _more: (
        f"Its quota is reserved ({_given(status)} at {status.queue}); next it is admitted"
    ),
    "AwaitingNodes": lambda status, _now, _more: f"{reason(status).text}. Charged: {_given(status)} at {status.queue}",
    "WouldBeAdmitted": lambda status, _now, _more: (
        f"It would be admitted ({_given(status)} at {status.queue}): nothing is resumed, because this Muster only "
        "observes"
    ),
    "Admitted": _admitted,
    "Starting": _starting,
    "Running": _running,
    "Adopted": lambda status, _now, _more: _adopted(status),
    "SuspendedOutside": lambda status, _now, _more: _ending(status, reason(status).text),
    "Finished": _over,
    "FinishedStillCharged": _over,
    "DeletedStillCharged": lambda status, _now, _more: (
        f"It was deleted, and is charged with {_given(status)} {_until(status)}"
    ),
    "Gone": _gone,
}
"""The others wait in a queue: for how long and where, then the reason."""


def holds(holder: Holder, now: int) -> str:
    """What a job does that holds quota."""
    match holder.does:
        case "deleted":
            return "deleted, its pods are ending"
        case "finished":
            left = child_of(holder.kind)
            return f"finished, its {left or 'pods'} still exist{'s' if left else ''}"
        case "running":
            return f"running for {span(max(0, now - holder.since))}"
        case "admitted":
            return f"admitted {span(max(0, now - holder.since))} ago"
        case _:
            return holder.phase


def line(status: JobStatus) -> str:
    """One line, for the confirmation of a lever."""
    if status.code == "Gone":
        return "it is gone"
    if status.phase == "finished":
        return "it has finished"
    if status.charged is not None:
        return f"it has its quota in {status.queue} already"
    if status.position:
        return f"position {status.position} of {status.length} in queue {status.queue}; {reason(status).text}"
    if status.code == "BeingTried":
        return f"it is being tried in queue {status.queue} right now"
    if status.code == "NotSuspended":
        return "it is not suspended, so it is not queued"
    if status.code == "Seen":
        return "it is not queued yet"
    return f"it is not queued: {reason(status).text}"
