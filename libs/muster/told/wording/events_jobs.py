"""Events about a job in words, and the changes of a job that only facts or other events record.

A sentence is made of the event. The numbers of the moment (position, usage, waiting time) follow where known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.core.objects.meta import rfc3339
from muster.core.workloads.registry import child_of, suspend_field
from muster.events import decisions as d
from muster.events import facts
from muster.events.charges import ChargeChanged
from muster.model.language import listed, say
from muster.model.quota import flavor_names
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, lower, span
from muster.model.workload import PodSet, Workload
from muster.told.codes.happenings import Happening, SetAsked, Used, Where
from muster.told.wording import explain, meanings, nodewords, problems, reasons
from muster.told.wording.pods import matter

SETS_SHOWN = 8

# --- phrases that others use too ----------------------------------------------------------------------------------


def usage(used: tuple[Used, ...]) -> str:
    """``cpu 12 of 14, memory 12G of 14Gi``: the usage and the limits of a node of the tree."""
    parts = []
    for use in used:
        most = say(" of {limit}", limit=format_quantity(use.limit, use.resource)) if use.limit >= 0 else ""
        parts.append(f"{use.resource} {format_quantity(use.used, use.resource)}{most}")
    return listed(parts) or say("nothing")


def place(where: Where) -> str:
    """The position of a job in the queue, and the jobs ahead."""
    if not where.position:
        return say("evaluated at once")
    return explain.place(where.position, where.length, where.ahead)


def asks(workload: Workload, profile: str = "ack") -> str:
    """The request of a workload, in all and per pod set."""
    need = workload.need.get(profile) or next(iter(workload.need.values()), {})
    more = max(0, len(workload.pod_sets) - SETS_SHOWN)
    return f"{format_vector(need)}{_sets(workload.pod_sets[:SETS_SHOWN], more)}"


def _asked(happening: Happening) -> str:
    return f"{format_vector(happening.request or {})}{_sets(happening.sets, happening.more)}"


def _sets(sets: tuple[SetAsked, ...] | tuple[PodSet, ...], more: int) -> str:
    if not sets:
        return ""
    shown = say("; ").join(f"{pods.name} {pods.count} × {format_vector(pods.request)}" for pods in sets)
    return say(" ({shown}{more})", shown=shown, more=say("; and {more} more", more=more) if more else "")


def _now_uses(queue: str, around: Happening) -> str:
    return say("; {queue} now uses {usage}", queue=queue, usage=usage(around.used)) if around.used else ""


def _position(around: Happening) -> str:
    return say("; {place}", place=place(around.where)) if around.where is not None else ""


# --- facts ------------------------------------------------------------------------------------------------------


def observed(event: facts.WorkloadObserved, _around: Happening) -> str:
    workload = event.workload
    suspended = say("suspended") if workload.suspended else say("not suspended")
    detail = say(" ({detail})", detail=workload.detail) if workload.detail else ""
    refused = (
        say("; cannot be queued: {refusal}", refusal=problems.line(workload.refusal))
        if workload.refusal is not None
        else ""
    )
    shown = "suspended" if workload.suspended else "not suspended"
    phase = say(", {phase}", phase=workload.phase) if workload.phase != shown else ""
    return say(
        "{suspended}{phase}{detail}; asks for {asks}{refused}",
        suspended=suspended,
        phase=phase,
        detail=detail,
        asks=asks(workload),
        refused=refused,
    )


def started(_event: facts.WorkloadStarted, around: Happening) -> str:
    return say(
        "it runs{since}", since=say(", {span} after its admission", span=span(around.span)) if around.span >= 0 else ""
    )


def finished(event: facts.WorkloadFinished, around: Happening) -> str:
    detail = say(" ({end})", end=explain.end_of(event.detail)) if event.detail else ""
    ran = say(" after {span}", span=span(around.span)) if around.span > 0 else ""
    child = child_of(event.ref.kind)
    kept = say(
        "; its quota stays charged until its {child}pods are gone",
        child=say("{child} and ", child=child) if child else "",
    )
    return f"{explain.outcome(event.outcome, say('finished'))}{detail}{ran}{kept if around.flag else ''}"


def gone(_event: facts.WorkloadGone, around: Happening) -> str:
    deleted = say("the object was deleted")
    return deleted + say("; its quota stays charged until its pods are gone") if around.flag else deleted


# --- queueing ---------------------------------------------------------------------------------------------------


def queued(event: d.WorkloadQueued, around: Happening) -> str:
    again = say(" again (attempt {attempt})", attempt=event.attempt) if event.attempt > 1 else ""
    text = say(
        "enters queue {queue}{again}, asks for {request}, priority {priority}",
        queue=event.queue,
        again=again,
        request=format_vector(event.request),
        priority=event.priority,
    )
    if event.flavors:
        flavors = say(" and ").join(flavor_names(event.flavors))
        text = say("{text}, on {flavors}", text=text, flavors=flavors)
    if event.flavor_until:
        text = say("{text} alone until {until}", text=text, until=rfc3339(event.flavor_until))
    if event.flavor_waited:
        text = say("{text} after {waited} for a better type", text=text, waited=span(event.flavor_waited))
    if around.flag:
        return say("{text}; it is evaluated once its present quota is released", text=text)
    return say("{text}: {place}", text=text, place=place(around.where)) if around.where is not None else text


def dequeued(event: d.WorkloadDequeued, _around: Happening) -> str:
    return say("leaves queue {queue}: {why}", queue=event.queue, why=say(reasons.DEQUEUED[event.reason]))


def refused(event: d.WorkloadRefused, _around: Happening) -> str:
    return say("it is not queued: {refused}", refused=reasons.refused(event.refusal, event.ref.kind, event.ref.key))


def denied(event: d.QuotaDenied, around: Happening) -> str:
    if event.short is None:
        return say("the proposal is stale: the job is evaluated again")
    return f"{explain.waiting_for_quota(event.short).text}{_position(around)}"


# --- quota ------------------------------------------------------------------------------------------------------


def reserved(event: d.QuotaReserved, around: Happening) -> str:
    beside = explain.admitted_beside(event.beside, event.run_ms, event.promised)
    return say(
        "{request} at {queue}{usage}{beside}",
        request=format_vector(event.request),
        queue=event.queue,
        usage=_now_uses(event.queue, around),
        beside=beside,
    )


def moved(event: d.QuotaMoved, around: Happening) -> str:
    now = say(
        "{request} is charged at {queue} from here on, before at {before}",
        request=format_vector(event.request),
        queue=event.queue,
        before=event.before,
    )
    return f"{now}{_now_uses(event.queue, around)}"


def adopted(event: d.WorkloadAdopted, around: Happening) -> str:
    text = say(
        "charged with {request} at {queue}: {why}",
        request=format_vector(event.request),
        queue=event.queue,
        why=say(reasons.ADOPTED[event.reason]),
    )
    return (
        say("{text}; {path} is over its limit now ({usage})", text=text, path=around.path, usage=usage(around.used))
        if around.path
        else text
    )


def recharged(event: ChargeChanged, around: Happening) -> str:
    why = say("{over} runs beyond its grant", over=format_vector(event.over)) if event.over else say("as granted")
    text = say(
        "charged with {request} at {queue} from here on, {why}",
        request=format_vector(event.request),
        queue=event.queue,
        why=why,
    )
    return f"{text}{_now_uses(event.queue, around)}"


def released(event: d.QuotaReleased, around: Happening) -> str:
    text = say(
        "releases {request} at {queue}: {why}",
        request=format_vector(event.request),
        queue=event.queue,
        why=say(reasons.RELEASED[event.reason]),
    )
    return f"{text}{_now_uses(event.queue, around)}"


# --- admission --------------------------------------------------------------------------------------------------


def admitted(event: d.GangAdmitted, around: Happening) -> str:
    amount = say("at {queue}", queue=event.queue)
    if around.request is not None:
        amount = say("{request} at {queue}", request=format_vector(around.request), queue=event.queue)
    again = say(", attempt {attempt}", attempt=event.attempt) if event.attempt > 1 else ""
    waited = say(", after waiting {span}", span=span(around.span)) if around.span >= 0 else ""
    return say(
        "{amount}{again}{waited}{places}",
        amount=amount,
        again=again,
        waited=waited,
        places=nodewords.admitted_on(event, around),
    )


# --- changes that no event of their own records -----------------------------------------------------------------


def _seen(event: Happening) -> str:
    suspended = (
        say("suspended") if event.flag else say("not suspended ({field} is false)", field=suspend_field(event.kind))
    )
    more = event.words if not event.flag or event.words != "suspended" else ""
    return say(
        "{suspended}{words}; asks for {asked}",
        suspended=suspended,
        words=say(", {words}", words=more) if more else "",
        asked=_asked(event),
    )


def _edited(happening: Happening) -> str:
    edit = say("its spec was edited (generation {number})", number=happening.number)
    return say(
        "{edit}: asks for {asked}, before {before}",
        edit=edit,
        asked=_asked(happening),
        before=format_vector(happening.before or {}),
    )


def _tried(happening: Happening) -> str:
    if not happening.flag:
        return say("it is evaluated now")
    cause = (
        say("{name} released {request}", name=happening.name, request=format_vector(happening.request or {}))
        if happening.name
        else say("the quota tree was changed")
    )
    return say("it is evaluated now because {cause}", cause=cause)


def _parked(happening: Happening) -> str:
    text = explain.waiting_for_quota(happening.refusal).text if happening.refusal is not None else ""
    return say("a job with the same request was refused: {text}{position}", text=text, position=_position(happening))


def _evicted(happening: Happening) -> str:
    assert happening.leaving is not None
    lost = meanings.work_lost(happening.span) if happening.span >= 0 else ""
    return f"{lower(meanings.leaving(happening.leaving).text)}{lost}"


def _pods_left(happening: Happening) -> str:
    pods = say("; {number} left", number=counted(happening.number, "pod")) if happening.number else ""
    return say("its {kind} {name} is gone{pods}", kind=happening.kind, name=happening.name, pods=pods)


def _held_up(happening: Happening) -> str:
    assert happening.pod is not None
    told = matter(happening.pod)
    if happening.name:
        return say("{code}: pod {name}: {matter}", code=happening.pod.code, name=happening.name, matter=told)
    return say("{code}: {matter}", code=happening.pod.code, matter=told)


CHANGES: Mapping[str, tuple[str, Callable[[Happening], str]]] = {
    "seen": ("seen", _seen),
    "edited": ("edited", _edited),
    "deleting": ("deleting", lambda _: say("it is being deleted")),
    "switched": (
        "observed",
        lambda happening: say(
            "{field} is {flag} now",
            field=suspend_field(happening.kind),
            flag=str(happening.flag).lower(),
        ),
    ),
    "said": ("observed", lambda happening: say("{kind} reports {words}", kind=happening.kind, words=happening.words)),
    "child_made": (
        "observed",
        lambda happening: say("its {kind} {name} exists", kind=happening.kind, name=happening.name),
    ),
    "child_gone": ("observed", _pods_left),
    "pods_held_up": ("pods", _held_up),
    "pods_gone": ("observed", lambda _: say("the last of its pods is gone")),
    "candidates_proposed": ("tried", _tried),
    "parked": ("waits", _parked),
    "evicted": ("evicted", _evicted),
}
"""Changes of a job by a fact about the job or by a decision about other jobs: {happening: (word, sentence)}."""
