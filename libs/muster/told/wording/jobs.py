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
from muster.model.language import first_sentence, say, say_many
from muster.model.placing import GPU
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, few, span
from muster.told.codes.values import (
    Adoption,
    HasQuota,
    Holder,
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
from muster.told.wording import explain, meanings, nodewords, pods, raywords, reasons
from muster.told.wording.explain import Reason, beside, terms
from muster.told.wording.meanings import PLAIN, charged

# --- in a word and a sentence: QueueUnits, Events, conditions -----------------------------------------------------


def reason(status: JobStatus) -> Reason:  # noqa: C901 - a table of values
    """The reason that an object shows. The reason has no span of time: an object is not written again because time
    passes.
    """
    match status.values:
        case Plain():
            return PLAIN[status.code].reason()
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
            return explain.being_started()
        case Suspended() as eviction:
            return meanings.leaving(eviction.leaving)
        case Start() if status.pods is not None:
            return pods.reason(status.pods)
        case Start():
            return explain.being_started()
        case Adoption(by=by) as adoption:
            key = f"adopted:{adoption.reason}{f':{by}' if by else ''}"
            return Reason("Adopted", key, _adopted(status, adoption))
        case Remainder(by=by) if status.code == "SuspendedOutside":
            return meanings.suspended_outside(by)
        case Remainder():
            return Reason("Deleted", "Deleted", say("It was deleted; its quota is released once its pods are gone"))
        case Over() if status.code == "Gone":
            return Reason("Gone", "Gone", say("It was deleted, and holds no quota"))
        case Over(outcome):
            word = "Succeed" if outcome == "succeeded" else "Failed"
            detail = status.detail or word
            if status.pods is None:
                return Reason(word, word, explain.end_of(detail))
            held = pods.reason(status.pods)
            return Reason(
                word,
                f"{word}:{held.key}",
                say("{detail}: {code}: {text}", detail=detail, code=held.code, text=held.text),
            )


def with_the_rest(shown: Reason, status: JobStatus) -> Reason:
    """The reason of a running job, with its refused pods and the denied growth of its Ray cluster."""
    if status.code == "Running" and status.pods is not None and status.pods.code == "PodsRefused":
        more = pods.reason(status.pods).text
        shown = Reason(shown.code, f"{shown.key}; {more}", f"{shown.text}. {more}")
    scaling = status.charge.scaling if status.charge is not None else None
    if scaling is None or scaling.denied is None:
        return shown
    more = raywords.denied(scaling.denied)
    return Reason(shown.code, f"{shown.key}; {more}", say("{text}; {more}", text=shown.text, more=more))


def headline(status: JobStatus) -> str:
    """One short sentence, without a full stop: jobs that wait for the same amount of the same limit read alike."""
    if status.code == "Reserved":
        return say("Its quota is reserved; next it is admitted")
    if not isinstance(status.values, Short) or status.code != "InsufficientQuota":
        return first_sentence(reason(status).text)
    wanting = Wanting(status.values.refusal)
    short, name = wanting.refusal, wanting.refusal.resource
    unit = say("GPUs") if name == GPU else name
    where = say(" of {where}", where=terms(short.path).where) if "/" in short.path else ""
    asked, limit, free = (format_quantity(amount, name) for amount in (short.asked, short.limit, wanting.free))
    if wanting.free or short.held or short.kept:
        return say(
            "{free} of {limit} {unit}{where} are free; it needs {asked}",
            free=free,
            limit=limit,
            unit=unit,
            where=where,
            asked=asked,
        )
    return say(
        "All {limit} {unit}{where} are in use; it needs {asked}", limit=limit, unit=unit, where=where, asked=asked
    )


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
        words += say(
            ". PriorityClass {unknown_class} does not exist, so its priority is {priority}: create the class, or "
            "correct the name",
            unknown_class=status.unknown_class,
            priority=status.priority,
        )
    if status.pods is not None:
        words += say(". {since}", since=pods.since(status.pods, now))
    if charge is None:
        return words
    words = (
        say("{words}. {scaling}", words=words, scaling=raywords.scaling(charge.scaling, more))
        if charge.scaling is not None
        else words
    )
    if not charge.beyond:
        return words
    return say(
        "{words}. {text}",
        words=words,
        text=explain.beyond_grant(charge.beyond, charge.granted, status.queue, charge.back_at).text,
    )


def _text(status: JobStatus, now: int, more: str) -> str:  # noqa: C901 - a table of values
    match status.values:
        case Plain():
            words = PLAIN[status.code].text
            return (
                words(status, now)
                if words is not None
                else say("{waits}. {text}{more}", waits=_waits(status, now), text=reason(status).text, more=more)
            )
        case Untried(cleared):
            return _untried(status, cleared, now)
        case Unlisted():
            told = reason(status).text
            return say("{waits}. {told}", waits=_waits(status, now), told=told) if status.line.position else told
        case NotQueued() if status.code == "Unreadable":
            kept = (
                say(" It stays charged with {charged} for the pods that run.", charged=charged(status))
                if status.charge is not None
                else ""
            )
            return say(
                "It cannot be read, so it is not queued: {text}.{kept} Correct it and it is queued",
                text=reason(status).text,
                kept=kept,
            )
        case NotQueued():
            return say("It is not queued: {text}", text=reason(status).text)
        case Short(refusal) as short if status.code == "InsufficientQuota":
            passing, others = explain.not_beside(short.declared, short.promised), explain.other_flavors(short.flavors)
            return say(
                "{waits}. {room}{passing}{owed}{others}{more}",
                waits=_waits(status, now),
                room=_room(refusal),
                passing=passing,
                owed=_owed_to_others(short),
                others=others,
                more=more,
            )
        case Unfit():
            return say("{text}. {waits}", text=reason(status).text, waits=_waits(status, now))
        case Short(refusal) as short:
            idled = explain.idled(refusal.resource, short.idles) if short.idles is not None else ""
            return say(
                "{waits}. {text}{idled}{others}{more}",
                waits=_waits(status, now),
                text=reason(status).text,
                idled=idled,
                others=explain.other_flavors(short.flavors),
                more=more,
            )
        case Pause():
            return say("{waits}. {text}{more}", waits=_waits(status, now), text=reason(status).text, more=more)
        case ResumeRefused(failures=failures):
            again = say(" (failed {failures} times in a row)", failures=failures) if failures > 1 else ""
            return reason(status).text + again
        case NoPlace() as lacking if status.code == "AwaitingNodes":
            return say("{text}. Charged: {charged}", text=reason(status).text, charged=charged(status))
        case NoPlace() as lacking:
            return _unplaced(status, lacking, now)
        case HasQuota(leaves):
            follows = _leaving(leaves) if leaves else say("next it is admitted")
            return say("Its quota is reserved ({charged}); {follows}", charged=charged(status), follows=follows)
        case Suspended(remains=remains):
            return _ending(status, reason(status).text, remains)
        case Start() as start:
            return _starting(status, start)
        case Adoption() as adoption:
            return _adopted(status, adoption)
        case Remainder(remains, _) if status.code == "SuspendedOutside":
            return _ending(status, reason(status).text, remains)
        case Remainder(remains, _):
            return say(
                "It was deleted, and is charged with {amount} {until}",
                amount=_amount(status),
                until=_until(status, remains),
            )
        case Over() as over if status.code == "Gone":
            return _gone(status, over)
        case Over() as over:
            how = say(ENDED.get(over.outcome, "It {outcome}{more}"), outcome=over.outcome, more=_more(status, over))
            return (
                _ending(status, how, over.remains)
                if status.charge is not None
                else say("{how}. It holds no quota", how=how)
            )


def place(status: JobStatus) -> str:
    """The position of the job in the queue, and the jobs ahead."""
    line = status.line
    return explain.place(line.position, line.length, line.ahead)


def _waits(status: JobStatus, now: int) -> str:
    waited = span(max(0, now - status.since))
    waits = say(
        "It has waited in queue {queue} for {waited}, {place}", queue=status.queue, waited=waited, place=place(status)
    )
    if status.line.leaving is not None:
        waits += say(". {text}", text=meanings.leaving(status.line.leaving).text)
    return waits


def _room(short: Shortfall) -> str:
    name, wanting, where = short.resource, Wanting(short), terms(short.path).where
    asked, limit, used = (format_quantity(amount, name) for amount in (short.asked, short.limit, short.used))
    free, missing = format_quantity(wanting.free, name), format_quantity(wanting.missing, name)
    return say_many(
        1 if missing == "1" else 2,
        "It asks for {name} {asked}, and {where} has {free} free of {limit} ({used} in use{beside}): it is tried "
        "again once {missing} more is released there",
        "It asks for {name} {asked}, and {where} has {free} free of {limit} ({used} in use{beside}): it is tried "
        "again once {missing} more are released there",
        name=name,
        asked=asked,
        where=where,
        free=free,
        limit=limit,
        used=used,
        beside=beside(short),
        missing=missing,
    )


def _owed_to_others(short: Short) -> str:
    """The sentence of a job that needs amounts guaranteed to and wanted by other queues; empty for other jobs."""
    if short.owed is None:
        return ""
    path, name, amount = short.owed
    return say(
        ". It needs some of the {amount} {name} of {where} that other queues use or ask for within their "
        "guarantees: it starts once they ask for less",
        amount=format_quantity(amount, name),
        name=name,
        where=terms(path).where,
    )


def _untried(status: JobStatus, cleared: Shortfall | None, now: int) -> str:
    if not status.queue:
        return say("It was observed, and no decision about it exists yet")
    if cleared is None:
        return say("{waits}. It is next to be evaluated", waits=_waits(status, now))
    limit = say(
        "The limit that refused it ({resource} in {where}) has room now",
        resource=cleared.resource,
        where=terms(cleared.path).where,
    )
    return say("{waits}. {limit}: it is next to be evaluated", waits=_waits(status, now), limit=limit)


def _amount(status: JobStatus) -> str:
    return format_vector(status.charge.request if status.charge is not None else {})


def _until(status: JobStatus, remains: Remains) -> str:
    """How long a charge lasts: until the remaining child and pods are gone."""
    left = [
        *([say("its {child}", child=child_of(status.kind) or say("driver"))] if remains.children else []),
        *([counted(remains.pods, "pod")] if remains.pods else []),
    ]
    if not left and status.phase not in ("finished", ""):
        return say("until its controller has said that it stopped; no pod of it is left")
    if not left:
        return say("until its quota is released; no pod of it is left")
    number = len(left) if len(left) > 1 else max(1, remains.pods)
    return say_many(number, "until {left} is gone", "until {left} are gone", left=say(" and ").join(left))


def _ending(status: JobStatus, words: str, remains: Remains) -> str:
    if status.charge is None:
        return say("{words}: after {until}", words=words, until=rfc3339(status.until)) if status.until else words
    return say(
        "{words}. It is charged with {amount} {until}",
        words=words,
        amount=_amount(status),
        until=_until(status, remains),
    )


ENDED = {
    "": "It ended{more}",
    "invalid": "It is invalid{more}",
    "succeeded": "It succeeded{more}",
    "failed": "It failed{more}",
}
"""{outcome: the message of the end}"""


_SAME = {"failed": ("failed",), "succeeded": ("succeeded", "complete", "completed")}
"""The kind's own words, in small letters, that say no more than the outcome."""


def _more(status: JobStatus, over: Over) -> str:
    """The kind's own word for the end, where it says more than the outcome."""
    if not status.detail or status.detail.lower() in _SAME.get(over.outcome, ()):
        return ""
    return say(" ({end})", end=explain.end_of(status.detail))


def _gone(status: JobStatus, over: Over) -> str:
    match over.ended:
        case "finished":
            return say(
                "It finished and was deleted: {outcome}{more}",
                outcome=explain.outcome(over.outcome, say("over")),
                more=_more(status, over),
            )
        case "left":
            left = say("It was deleted, and had never been admitted: it left queue {queue}", queue=status.queue)
            return left + _why_before(over.reason, reasons.DEQUEUED)
        case "refused":
            return say("It was deleted; it had never been queued, because it was refused")
        case "released":
            released = say("It was deleted, and released {request}", request=format_vector(over.request))
            return released + _why_before(over.reason, reasons.RELEASED)
        case _:
            return say("It was deleted, and holds no quota")


def _why_before(reason: str, words: Mapping[Any, str]) -> str:
    """Why a job left its queue or its quota, unless the job was deleted."""
    return "" if reason == "gone" else say(": {words}", words=say(words.get(reason, reason)))


def _adopted(status: JobStatus, adoption: Adoption) -> str:
    why = say(reasons.ADOPTED[adoption.reason])
    if adoption.by:
        because = say(" ({because})", because=adoption.because) if adoption.because else ""
        why = say(
            "{by} started it by hand{because}; {charged}",
            by=adoption.by,
            because=because,
            charged=say(reasons.BYPASSED),
        )
    if adoption.reason == "not_stopped":
        return say(
            "Its pods run without an admission by Muster: {why}. Charged: {amount}", why=why, amount=_amount(status)
        )
    says = say(" ({kind} says {detail})", kind=status.kind, detail=status.detail) if status.detail else ""
    runs = say("It runs") if status.phase == "running" else say("It starts{says}", says=says)
    return say(
        "{runs} without an admission by Muster: {why}. Charged: {amount}", runs=runs, why=why, amount=_amount(status)
    )


def _starting(status: JobStatus, start: Start) -> str:
    remains, verdict = start.remains, start.verdict
    if not remains.pods and not remains.children and not status.detail:
        made = child_of(status.kind) or say("pods")
        return say(
            "It is admitted and resumed, and its controller has made no {made} yet: if that lasts, check whether "
            "the operator of {kind} runs",
            made=made,
            kind=status.kind,
        )
    says = say("; {kind} says {detail}", kind=status.kind, detail=status.detail) if status.detail else ""
    judged = (
        say("; kube-scheduler places it: {judged}", judged=nodewords.judged(verdict)) if verdict is not None else ""
    )
    return say(
        "It is admitted, resumed and starting: {pods}{says}{judged}",
        pods=counted(remains.pods, "pod"),
        says=says,
        judged=judged,
    )


def _unplaced(status: JobStatus, short: NoPlace, now: int) -> str:
    """Why the last evaluation found no places, and which free places are kept for others."""
    text = reason(status).text
    if short.tried:
        text += say(". It was evaluated last {ago} ago", ago=span(max(0, now - short.tried)))
    if short.leaves:
        text += say(". {leaving}", leaving=_leaving(short.leaves))
    text += explain.other_flavors(short.flavors)
    mine = [kept for kept in short.kept if kept.uid and kept.gang == status.job]
    others = [kept for kept in short.kept if kept not in mine and kept.gang != short.shortage.kept_for]
    return text + "".join(say(". {kept}", kept=nodewords.kept_now(kept, own=kept in mine)) for kept in (*mine, *others))


def _leaving(names: Sequence[str]) -> str:
    leave = counted(len(names), "job leaves its nodes", "jobs leave their nodes")
    return say("{leave} to make room for it: {names}", leave=leave, names=few(names))


def holds(holder: Holder, now: int) -> str:
    """The state of a job that holds quota."""
    match holder.does:
        case "deleted":
            return say("deleted, its pods are ending")
        case "finished":
            left = child_of(holder.kind)
            return (
                say("finished, its {left} still exists", left=left) if left else say("finished, its pods still exist")
            )
        case "running" if holder.lost:
            return explain.on_lost_node(holder.lost)
        case "running":
            pod = say("a pod of no job, ") if holder.kind == PODS.kind else ""
            return say("{pod}running for {ran}", pod=pod, ran=span(max(0, now - holder.since)))
        case "admitted":
            return say("admitted {ago} ago", ago=span(max(0, now - holder.since)))
        case _:
            return holder.phase


def line(status: JobStatus) -> str:
    """One line, for the confirmation of a lever."""
    line = status.line
    if status.code == "Gone":
        return say("it is gone")
    if status.phase == "finished":
        return say("it has finished")
    if status.charge is not None:
        return say("it has its quota in {queue} already", queue=status.queue)
    if line.position:
        return say(
            "position {position} of {length} in queue {queue}; {text}",
            position=line.position,
            length=line.length,
            queue=status.queue,
            text=reason(status).text,
        )
    if status.code == "BeingTried":
        return say("it is being tried in queue {queue} right now", queue=status.queue)
    if status.code == "NotSuspended":
        return say("it is not suspended, so it is not queued")
    if status.code == "Seen":
        return say("it is not queued yet")
    return say("it is not queued: {text}", text=reason(status).text)
