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
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, lower, span
from muster.model.workload import PodSet, Workload
from muster.told.codes.happenings import Happening, SetAsked, Used, Where
from muster.told.wording import explain, nodewords, problems, reasons
from muster.told.wording.pods import matter

SETS_SHOWN = 8

# --- phrases that others use too ----------------------------------------------------------------------------------


def usage(used: tuple[Used, ...]) -> str:
    """``cpu 12 of 14, memory 12G of 14Gi``: the usage and the limits of a node of the tree."""
    parts = []
    for use in used:
        most = f" of {format_quantity(use.limit, use.resource)}" if use.limit >= 0 else ""
        parts.append(f"{use.resource} {format_quantity(use.used, use.resource)}{most}")
    return ", ".join(parts) or "nothing"


def place(where: Where) -> str:
    """The position of a job in the queue, and the jobs ahead."""
    if not where.position:
        return "evaluated at once"
    if where.position == 1:
        return f"position 1 of {where.length}, no job is ahead"
    ahead = where.position - 1
    more = f" and {ahead - len(where.ahead)} more" if ahead > len(where.ahead) else ""
    return f"position {where.position} of {where.length}, {ahead} ahead: {', '.join(where.ahead)}{more}"


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
    shown = "; ".join(f"{pods.name} {pods.count} × {format_vector(pods.request)}" for pods in sets)
    return f" ({shown}{f'; and {more} more' if more else ''})"


def _now_uses(queue: str, around: Happening) -> str:
    return f"; {queue} now uses {usage(around.used)}" if around.used else ""


def _position(around: Happening) -> str:
    return f"; {place(around.where)}" if around.where is not None else ""


# --- facts ------------------------------------------------------------------------------------------------------


def observed(event: facts.WorkloadObserved, _around: Happening) -> str:
    workload = event.workload
    suspended = "suspended" if workload.suspended else "not suspended"
    detail = f" ({workload.detail})" if workload.detail else ""
    refused = f"; cannot be queued: {problems.line(workload.refusal)}" if workload.refusal is not None else ""
    phase = f", {workload.phase}" if workload.phase != suspended else ""
    return f"{suspended}{phase}{detail}; asks for {asks(workload)}{refused}"


def started(_event: facts.WorkloadStarted, around: Happening) -> str:
    return f"it runs{f', {span(around.span)} after its admission' if around.span >= 0 else ''}"


def finished(event: facts.WorkloadFinished, around: Happening) -> str:
    detail = f" ({explain.end_of(event.detail)})" if event.detail else ""
    ran = f" after {span(around.span)}" if around.span > 0 else ""
    child = child_of(event.ref.kind)
    kept = f"; its quota stays charged until its {f'{child} and ' if child else ''}pods are gone"
    return f"{event.outcome or 'finished'}{detail}{ran}{kept if around.flag else ''}"


def gone(_event: facts.WorkloadGone, around: Happening) -> str:
    return f"the object was deleted{'; its quota stays charged until its pods are gone' if around.flag else ''}"


# --- queueing ---------------------------------------------------------------------------------------------------


def queued(event: d.WorkloadQueued, around: Happening) -> str:
    again = f" again (attempt {event.attempt})" if event.attempt > 1 else ""
    text = f"enters queue {event.queue}{again}, asks for {format_vector(event.request)}, priority {event.priority}"
    if event.flavors:
        text += f", on {' and '.join(dict.fromkeys(name for names in event.flavors.values() for name in names))}"
    if event.flavor_until:
        text += f" alone until {rfc3339(event.flavor_until)}"
    if event.flavor_waited:
        text += f" after {span(event.flavor_waited)} for a better type"
    if around.flag:
        return f"{text}; it is evaluated once its present quota is released"
    return f"{text}: {place(around.where)}" if around.where is not None else text


def dequeued(event: d.WorkloadDequeued, _around: Happening) -> str:
    return f"leaves queue {event.queue}: {reasons.DEQUEUED[event.reason]}"


def refused(event: d.WorkloadRefused, _around: Happening) -> str:
    return f"it is not queued: {reasons.refused(event.refusal, event.ref.kind, event.ref.key)}"


def denied(event: d.QuotaDenied, around: Happening) -> str:
    if event.short is None:
        return "the proposal is stale: the job is evaluated again"
    return f"{explain.waiting_for_quota(event.short).text}{_position(around)}"


# --- quota ------------------------------------------------------------------------------------------------------


def reserved(event: d.QuotaReserved, around: Happening) -> str:
    beside = explain.admitted_beside(event.beside, event.run_ms, event.promised)
    return f"{format_vector(event.request)} at {event.queue}{_now_uses(event.queue, around)}{beside}"


def moved(event: d.QuotaMoved, around: Happening) -> str:
    now = f"{format_vector(event.request)} is charged at {event.queue} from here on, before at {event.before}"
    return f"{now}{_now_uses(event.queue, around)}"


def adopted(event: d.WorkloadAdopted, around: Happening) -> str:
    text = f"charged with {format_vector(event.request)} at {event.queue}: {reasons.ADOPTED[event.reason]}"
    return f"{text}; {around.path} is over its limit now ({usage(around.used)})" if around.path else text


def recharged(event: ChargeChanged, around: Happening) -> str:
    why = f"{format_vector(event.over)} runs beyond its grant" if event.over else "as granted"
    text = f"charged with {format_vector(event.request)} at {event.queue} from here on, {why}"
    return f"{text}{_now_uses(event.queue, around)}"


def released(event: d.QuotaReleased, around: Happening) -> str:
    text = f"releases {format_vector(event.request)} at {event.queue}: {reasons.RELEASED[event.reason]}"
    return f"{text}{_now_uses(event.queue, around)}"


# --- admission --------------------------------------------------------------------------------------------------


def admitted(event: d.GangAdmitted, around: Happening) -> str:
    amount = f"{format_vector(around.request)} " if around.request is not None else ""
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    waited = f", after waiting {span(around.span)}" if around.span >= 0 else ""
    return f"{amount}at {event.queue}{again}{waited}{nodewords.admitted_on(event, around)}"


# --- changes that no event of their own records -----------------------------------------------------------------


def _seen(event: Happening) -> str:
    suspended = "suspended" if event.flag else f"not suspended ({suspend_field(event.kind)} is false)"
    return f"{suspended}{f', {event.words}' if event.words not in ('', suspended) else ''}; asks for {_asked(event)}"


def _edited(happening: Happening) -> str:
    edit = f"its spec was edited (generation {happening.number})"
    return f"{edit}: asks for {_asked(happening)}, before {format_vector(happening.before or {})}"


def _tried(happening: Happening) -> str:
    if not happening.flag:
        return "it is evaluated now"
    cause = (
        f"{happening.name} released {format_vector(happening.request or {})}"
        if happening.name
        else "the quota tree was changed"
    )
    return f"it is evaluated now because {cause}"


def _parked(happening: Happening) -> str:
    text = explain.waiting_for_quota(happening.refusal).text if happening.refusal is not None else ""
    return f"a job with the same request was refused: {text}{_position(happening)}"


def _evicted(happening: Happening) -> str:
    assert happening.leaving is not None
    lost = explain.work_lost(happening.span) if happening.span >= 0 else ""
    return f"{lower(explain.leaving(happening.leaving).text)}{lost}"


def _pods_left(happening: Happening) -> str:
    pods = f"; {counted(happening.number, 'pod')} left" if happening.number else ""
    return f"its {happening.kind} {happening.name} is gone{pods}"


def _held_up(happening: Happening) -> str:
    assert happening.pod is not None
    return f"{happening.pod.code}: pod {happening.name}: {matter(happening.pod)}"


CHANGES: Mapping[str, tuple[str, Callable[[Happening], str]]] = {
    "seen": ("seen", _seen),
    "edited": ("edited", _edited),
    "deleting": ("deleting", lambda _: "it is being deleted"),
    "switched": ("observed", lambda happening: f"{suspend_field(happening.kind)} is {str(happening.flag).lower()} now"),
    "said": ("observed", lambda happening: f"{happening.kind} reports {happening.words}"),
    "child_made": ("observed", lambda happening: f"its {happening.kind} {happening.name} exists"),
    "child_gone": ("observed", _pods_left),
    "pods_held_up": ("pods", _held_up),
    "pods_gone": ("observed", lambda _: "the last of its pods is gone"),
    "candidates_proposed": ("tried", _tried),
    "parked": ("waits", _parked),
    "evicted": ("evicted", _evicted),
}
"""Changes of a job by a fact about the job or by a decision about other jobs: {happening: (word, sentence)}."""
