"""The status of a job in English: one short reason for objects of the API server, one longer text for people.

Both come from the same status and agree. Sentences are made of the values of a code. ``told.wording.meanings`` has the
sentences of codes without values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.core.objects.meta import rfc3339
from muster.core.workloads.registry import child_of
from muster.model.api import PODS
from muster.model.demand import Shortfall
from muster.model.placing import GPU
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, few, span
from muster.told.codes.values import (
    Adoption,
    HasQuota,
    Holder,
    Idles,
    NoPlace,
    NotQueued,
    Over,
    Pause,
    Plain,
    Pools,
    Remainder,
    Remains,
    ResumeRefused,
    Short,
    Start,
    Suspended,
    Unfit,
    Unlisted,
    Untried,
    Wanting,
)
from muster.told.status.jobstatus import JobStatus
from muster.told.wording import explain, nodewords, pods, raywords, reasons
from muster.told.wording.explain import Reason, beside, terms
from muster.told.wording.meanings import PLAIN, charged

# --- in a word and a sentence: QueueUnits, Events, conditions -----------------------------------------------------


def reason(status: JobStatus) -> Reason:  # noqa: C901 - a table of values
    """The reason that an object shows. The reason has no span of time: an object is not written again because time
    passes.
    """
    match status.values:
        case Plain():
            return PLAIN[status.code].reason
        case Untried():
            return explain.waiting_untried(max(status.line.position - 1, 0))
        case Unlisted(missing):
            return explain.waiting_for_sync(list(missing))
        case NotQueued(refusal):
            text = reasons.refused(refusal, status.kind, status.job)
            return Reason(status.code, f"{status.code}:{text}", text)
        case Pause(by, message):
            return explain.paused(status.queue, by, message)
        case Short() as short:
            return _short(status, short)
        case Unfit() as never:
            return nodewords.unfit(never)
        case ResumeRefused() as retry:
            return explain.resume_failed(retry.problem, rfc3339(retry.until))
        case NoPlace() as lacking if status.code == "AwaitingNodes":
            return nodewords.waiting_for_nodes(lacking.shortage, pools(lacking.pools))
        case NoPlace() as lacking:
            return nodewords.deferred_for_nodes(lacking.shortage, pools(lacking.pools))
        case HasQuota():
            return explain.ADMITTED
        case Suspended() as eviction:
            return explain.leaving(eviction.leaving)
        case Start() if status.pods is not None:
            return pods.reason(status.pods)
        case Start():
            return explain.ADMITTED
        case Adoption(by=by) as adoption:
            key = f"adopted:{adoption.reason}{f':{by}' if by else ''}"
            return Reason("Adopted", key, _adopted(status, adoption))
        case Remainder(by=by) if status.code == "SuspendedOutside":
            return explain.suspended_outside(by)
        case Remainder():
            return Reason("Deleted", "Deleted", "It was deleted; its quota is released once its pods are gone")
        case Over() if status.code == "Gone":
            return Reason("Gone", "Gone", "It was deleted, and holds no quota")
        case Over(outcome):
            word = "Succeed" if outcome == "succeeded" else "Failed"
            detail = status.detail or word
            if status.pods is None:
                return Reason(word, word, explain.end_of(detail))
            held = pods.reason(status.pods)
            return Reason(word, f"{word}:{held.key}", f"{detail}: {held.code}: {held.text}")


def with_size(shown: Reason, status: JobStatus) -> Reason:
    """The reason of a running job, with the denied growth of its Ray cluster."""
    scaling = status.charge.scaling if status.charge is not None else None
    if scaling is None or scaling.denied is None:
        return shown
    more = raywords.denied(scaling.denied)
    return Reason(shown.code, f"{shown.key}; {more}", f"{shown.text}; {more}")


def headline(status: JobStatus) -> str:
    """One short sentence, without a full stop: jobs that wait for the same amount of the same limit read alike."""
    if not isinstance(status.values, Short) or status.code != "InsufficientQuota":
        return reason(status).text.partition(". ")[0]
    wanting = Wanting(status.values.refusal)
    short, name = wanting.refusal, wanting.refusal.resource
    unit = "GPUs" if name == GPU else name
    where = f" of {terms(short.path).where}" if "/" in short.path else ""
    asked, limit, free = (format_quantity(amount, name) for amount in (short.asked, short.limit, wanting.free))
    if wanting.free or short.held or short.kept:
        return f"{free} of {limit} {unit}{where} are free; it needs {asked}"
    return f"All {limit} {unit}{where} are in use; it needs {asked}"


def _short(status: JobStatus, short: Short) -> Reason:
    if status.code == "WaitingForClaim":
        return explain.waiting_for_claim(short.refusal, short.promised)
    reason = explain.waiting_for_quota(short.refusal)
    more = explain.not_beside(short.declared, short.promised)
    return Reason(reason.code, f"{reason.key}{more}", f"{reason.text}{more}")


def pools(answers: Pools) -> str:
    """The nodes that pools could add, as the end of a sentence."""
    return nodewords.from_pools(answers.growth, answers.refusals)


# --- in full: why, position, ls, the levers, muster up ------------------------------------------------------------


def text(status: JobStatus, now: int, *, more: str = "") -> str:
    """The sentences for people. ``now``: ms since the epoch; ``more``: the end of a refusal."""
    words, charge = _text(status, now, more), status.charge
    if status.unknown_class and status.phase in ("waiting", "reserved"):
        words += (
            f". PriorityClass {status.unknown_class} does not exist, so its priority is {status.priority}: create the "
            "class, or correct the name"
        )
    if status.pods is not None:
        words += f". {pods.since(status.pods, now)}"
    if charge is None:
        return words
    words = f"{words}. {raywords.scaling(charge.scaling, more)}" if charge.scaling is not None else words
    if not charge.beyond:
        return words
    return f"{words}. {explain.beyond_grant(charge.beyond, charge.granted, status.queue, charge.back_at).text}"


def _text(status: JobStatus, now: int, more: str) -> str:  # noqa: C901 - a table of values
    match status.values:
        case Plain():
            words = PLAIN[status.code].text
            return words(status, now) if words is not None else f"{_waits(status, now)}. {reason(status).text}{more}"
        case Untried(cleared):
            return _untried(status, cleared, now)
        case Unlisted():
            told = reason(status).text
            return f"{_waits(status, now)}. {told}" if status.line.position else told
        case NotQueued() if status.code == "Unreadable":
            kept = (
                f" It stays charged with {charged(status)} for the pods that run." if status.charge is not None else ""
            )
            return f"It cannot be read, so it is not queued: {reason(status).text}.{kept} Correct it and it is queued"
        case NotQueued():
            return f"It is not queued: {reason(status).text}"
        case Short(refusal) as short if status.code == "InsufficientQuota":
            passing, others = explain.not_beside(short.declared, short.promised), explain.other_flavors(short.flavors)
            return f"{_waits(status, now)}. {_room(refusal)}{passing}{_owed_to_others(short)}{others}{more}"
        case Short(refusal, idles=Idles() as idles) as short:
            others = explain.other_flavors(short.flavors)
            idled = explain.idled(refusal.resource, idles)
            return f"{_waits(status, now)}. {reason(status).text}{idled}{others}{more}"
        case Unfit():
            return f"{reason(status).text}. {_waits(status, now)}"
        case Short() as short:
            others = explain.other_flavors(short.flavors)
            return f"{_waits(status, now)}. {reason(status).text}{others}{more}"
        case Pause():
            return f"{_waits(status, now)}. {reason(status).text}{more}"
        case ResumeRefused(failures=failures):
            again = f" (failed {failures} times in a row)" if failures > 1 else ""
            return reason(status).text + again
        case NoPlace() as lacking if status.code == "AwaitingNodes":
            return f"{reason(status).text}. Charged: {charged(status)}"
        case NoPlace() as lacking:
            return _unplaced(status, lacking, now)
        case HasQuota(leaves):
            follows = _leaving(leaves) if leaves else "next it is admitted"
            return f"Its quota is reserved ({charged(status)}); {follows}"
        case Suspended(remains=remains):
            return _ending(status, reason(status).text, remains)
        case Start() as start:
            return _starting(status, start)
        case Adoption() as adoption:
            return _adopted(status, adoption)
        case Remainder(remains, _) if status.code == "SuspendedOutside":
            return _ending(status, reason(status).text, remains)
        case Remainder(remains, _):
            return f"It was deleted, and is charged with {_amount(status)} {_until(status, remains)}"
        case Over() as over if status.code == "Gone":
            return _gone(status, over)
        case Over() as over:
            how = f"It {_ENDED.get(over.outcome, over.outcome)}{_more(status, over)}"
            return _ending(status, how, over.remains) if status.charge is not None else f"{how}. It holds no quota"


def place(status: JobStatus) -> str:
    """The position of the job in the queue, and the jobs ahead."""
    line = status.line
    if line.position <= 1:
        return f"position 1 of {line.length}, no job is ahead"
    ahead = line.position - 1
    more = f" and {ahead - len(line.ahead)} more" if ahead > len(line.ahead) else ""
    return f"position {line.position} of {line.length}, {ahead} ahead: {', '.join(line.ahead)}{more}"


def _waits(status: JobStatus, now: int) -> str:
    waited = span(max(0, now - status.since))
    waits = f"It has waited in queue {status.queue} for {waited}, {place(status)}"
    if status.line.leaving is not None:
        waits += f". {explain.leaving(status.line.leaving).text}"
    return waits


def _room(short: Shortfall) -> str:
    name, wanting, where = short.resource, Wanting(short), terms(short.path).where
    asked, limit, used = (format_quantity(amount, name) for amount in (short.asked, short.limit, short.used))
    free, missing = format_quantity(wanting.free, name), format_quantity(wanting.missing, name)
    return (
        f"It asks for {name} {asked}, and {where} has {free} free of {limit} ({used} in use{beside(short)}): it is "
        f"tried again once {missing} more {'is' if missing == '1' else 'are'} released there"
    )


def _owed_to_others(short: Short) -> str:
    """The sentence of a job that needs amounts guaranteed to and wanted by other queues; empty for other jobs."""
    if short.owed is None:
        return ""
    path, name, amount = short.owed
    return (
        f". It needs some of the {format_quantity(amount, name)} {name} of {terms(path).where} that other queues use "
        "or ask for within their guarantees: it starts once they ask for less"
    )


def _untried(status: JobStatus, cleared: Shortfall | None, now: int) -> str:
    if not status.queue:
        return "It was observed, and no decision about it exists yet"
    if cleared is None:
        return f"{_waits(status, now)}. It is next to be evaluated"
    limit = f"The limit that refused it ({cleared.resource} in {terms(cleared.path).where}) has room now"
    return f"{_waits(status, now)}. {limit}: it is next to be evaluated"


def _amount(status: JobStatus) -> str:
    return format_vector(status.charge.request if status.charge is not None else {})


def _until(status: JobStatus, remains: Remains) -> str:
    """How long a charge lasts: until the remaining child and pods are gone."""
    left = [
        *([f"its {child_of(status.kind) or 'driver'}"] if remains.children else []),
        *([counted(remains.pods, "pod")] if remains.pods else []),
    ]
    if not left and status.phase not in ("finished", ""):
        return "until its controller has said that it stopped; no pod of it is left"
    if not left:
        return "until its quota is released; no pod of it is left"
    return f"until {' and '.join(left)} {'are' if len(left) > 1 or remains.pods > 1 else 'is'} gone"


def _ending(status: JobStatus, words: str, remains: Remains) -> str:
    if status.charge is None:
        return f"{words}: after {rfc3339(status.until)}" if status.until else words
    return f"{words}. It is charged with {_amount(status)} {_until(status, remains)}"


_ENDED = {"": "ended", "invalid": "is invalid"}
"""The verb of an outcome that is not a verb."""


_SAME = {"failed": ("failed",), "succeeded": ("succeeded", "complete", "completed")}
"""The kind's own words, in small letters, that say no more than the outcome."""


def _more(status: JobStatus, over: Over) -> str:
    """The kind's own word for the end, where it says more than the outcome."""
    if not status.detail or status.detail.lower() in _SAME.get(over.outcome, ()):
        return ""
    return f" ({explain.end_of(status.detail)})"


def _gone(status: JobStatus, over: Over) -> str:
    match over.ended:
        case "finished":
            return f"It finished and was deleted: {over.outcome or 'over'}{_more(status, over)}"
        case "left":
            left = f"It was deleted, and had never been admitted: it left queue {status.queue}"
            return left + _why_before(over.reason, reasons.DEQUEUED)
        case "refused":
            return "It was deleted; it had never been queued, because it was refused"
        case "released":
            released = f"It was deleted, and released {format_vector(over.request)}"
            return released + _why_before(over.reason, reasons.RELEASED)
        case _:
            return "It was deleted, and holds no quota"


def _why_before(reason: str, words: Mapping[Any, str]) -> str:
    """Why a job left its queue or its quota, unless the job was deleted."""
    return "" if reason == "gone" else f": {words.get(reason, reason)}"


def _adopted(status: JobStatus, adoption: Adoption) -> str:
    why = reasons.ADOPTED[adoption.reason]
    if adoption.by:
        because = f" ({adoption.because})" if adoption.because else ""
        why = f"{adoption.by} started it by hand{because}; {reasons.BYPASSED}"
    if adoption.reason == "not_stopped":
        return f"Its pods run without an admission by Muster: {why}. Charged: {_amount(status)}"
    says = f" ({status.kind} says {status.detail})" if status.detail else ""
    runs = "It runs" if status.phase == "running" else f"It starts{says}"
    return f"{runs} without an admission by Muster: {why}. Charged: {_amount(status)}"


def _starting(status: JobStatus, start: Start) -> str:
    remains, verdict = start.remains, start.verdict
    if not remains.pods and not remains.children and not status.detail:
        made = child_of(status.kind) or "pods"
        return (
            f"It is admitted and resumed, and its controller has made no {made} yet: if that lasts, check whether the "
            f"operator of {status.kind} runs"
        )
    says = f"; {status.kind} says {status.detail}" if status.detail else ""
    judged = f"; kube-scheduler places it: {nodewords.judged(verdict)}" if verdict is not None else ""
    return f"It is admitted, resumed and starting: {counted(remains.pods, 'pod')}{says}{judged}"


def _unplaced(status: JobStatus, short: NoPlace, now: int) -> str:
    """Why the last evaluation found no places, and which free places are kept for others."""
    text = reason(status).text
    if short.tried:
        text += f". It was evaluated last {span(max(0, now - short.tried))} ago"
    if short.leaves:
        text += f". {_leaving(short.leaves)}"
    text += explain.other_flavors(short.flavors)
    mine = [kept for kept in short.kept if kept.uid and kept.gang == status.job]
    others = [kept for kept in short.kept if kept not in mine and kept.gang != short.shortage.kept_for]
    return text + "".join(f". {nodewords.kept_now(kept, own=kept in mine)}" for kept in (*mine, *others))


def _leaving(names: Sequence[str]) -> str:
    leave = "1 job leaves its nodes" if len(names) == 1 else f"{len(names)} jobs leave their nodes"
    return f"{leave} to make room for it: {few(names)}"


def holds(holder: Holder, now: int) -> str:
    """The state of a job that holds quota."""
    match holder.does:
        case "deleted":
            return "deleted, its pods are ending"
        case "finished":
            left = child_of(holder.kind)
            return f"finished, its {left or 'pods'} still exist{'s' if left else ''}"
        case "running" if holder.lost:
            return explain.on_lost_node(holder.lost)
        case "running":
            pod = "a pod of no job, " if holder.kind == PODS.kind else ""
            return f"{pod}running for {span(max(0, now - holder.since))}"
        case "admitted":
            return f"admitted {span(max(0, now - holder.since))} ago"
        case _:
            return holder.phase


def line(status: JobStatus) -> str:
    """One line, for the confirmation of a lever."""
    line = status.line
    if status.code == "Gone":
        return "it is gone"
    if status.phase == "finished":
        return "it has finished"
    if status.charge is not None:
        return f"it has its quota in {status.queue} already"
    if line.position:
        return f"position {line.position} of {line.length} in queue {status.queue}; {reason(status).text}"
    if status.code == "BeingTried":
        return f"it is being tried in queue {status.queue} right now"
    if status.code == "NotSuspended":
        return "it is not suspended, so it is not queued"
    if status.code == "Seen":
        return "it is not queued yet"
    return f"it is not queued: {reason(status).text}"
