"""What happened, in English: one line per happening, of a word and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from muster.core.codes.happenings import Happening, SetAsked, Used, Where
from muster.core.wording import explain, explain_claims, problems, refusals, telling, telling_nodes
from muster.core.workloads.registry import child_of, suspend_field
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, span


class HappeningLine(NamedTuple):
    """A happening in words."""

    word: str
    text: str


def line(happening: Happening) -> HappeningLine:
    """Any happening in words."""
    word, say = _LINES.get(happening.what, ("", None))
    if say is not None:
        return HappeningLine(word, say(happening))
    assert happening.event is not None, happening
    told = telling.tell(happening.event)
    return HappeningLine(told.word, told.text)


def usage(used: tuple[Used, ...]) -> str:
    """``cpu 12 of 14, memory 12G of 14Gi``: what a node uses of what it may."""
    parts = []
    for each in used:
        most = f" of {format_quantity(each.limit, each.resource)}" if each.limit >= 0 else ""
        parts.append(f"{each.resource} {format_quantity(each.used, each.resource)}{most}")
    return ", ".join(parts) or "nothing"


def place(where: Where) -> str:
    """Where a job stands in its queue, and the jobs before it."""
    if not where.position:
        return "tried at once"
    if where.position == 1:
        return f"position 1 of {where.length}, nobody is ahead"
    ahead = where.position - 1
    more = f" and {ahead - len(where.ahead)} more" if ahead > len(where.ahead) else ""
    return f"position {where.position} of {where.length}, {ahead} ahead: {', '.join(where.ahead)}{more}"


def _asks(each: Happening) -> str:
    return f"{format_vector(each.request or {})}{_sets(each.sets, each.more)}"


def _sets(sets: tuple[SetAsked, ...], more: int) -> str:
    if not sets:
        return ""
    shown = "; ".join(f"{pods.name} {pods.count} × {format_vector(pods.request)}" for pods in sets)
    return f" ({shown}{f'; and {more} more' if more else ''})"


def _seen(each: Happening) -> str:
    stands = "suspended" if each.flag else f"not suspended ({suspend_field(each.kind)} is false)"
    return f"{stands}{f', {each.words}' if each.words else ''}; asks for {_asks(each)}"


def _edited(each: Happening) -> str:
    edit = f"its spec was edited (generation {each.number})"
    return f"{edit}: asks for {_asks(each)}, before {format_vector(each.before or {})}"


def _finished(each: Happening) -> str:
    detail = f" ({each.words})" if each.words else ""
    ran = f" after {span(each.span)}" if each.span > 0 else ""
    child = child_of(each.kind)
    kept = f"; its quota stays charged until its {f'{child} and ' if child else ''}pods are gone" if each.flag else ""
    return f"{each.reason or 'over'}{detail}{ran}{kept}"


def _queued(each: Happening) -> str:
    again = f" again (attempt {each.attempt})" if each.attempt > 1 else ""
    text = f"enters queue {each.queue}{again}, asks for {format_vector(each.request or {})}, priority {each.number}"
    if each.flag:
        return f"{text}; it is tried once its present quota is given back"
    return f"{text}: {place(each.where)}" if each.where is not None else text


def _broken(each: Happening) -> str:
    return problems.line(each.problem) if each.problem is not None else ""


def _refused(each: Happening) -> str:
    assert each.refused is not None
    return f"it is not queued: {refusals.refused(each.refused, each.kind, each.name)}"


def _tried(each: Happening) -> str:
    if not each.flag:
        return "it is tried now"
    cause = f"{each.name} gave back {format_vector(each.request or {})}" if each.name else "the quota tree was changed"
    return f"it is tried now because {cause}"


def _denied(each: Happening) -> str:
    if each.refusal is None:
        return "what was proposed is no longer so: it is looked at again"
    where = f"; {place(each.where)}" if each.where is not None else ""
    return f"{explain.waiting_for_quota(each.refusal).text}{where}"


def _adopted(each: Happening) -> str:
    text = f"charged with {format_vector(each.request or {})} at {each.queue}: {_of(explain.ADOPTED, each.reason)}"
    return f"{text}; {each.path} is over its limit by that ({usage(each.used)})" if each.path else text


def _recharged(each: Happening) -> str:
    text = f"charged with {format_vector(each.request or {})} at {each.queue} from here on"
    why = f"{format_vector(each.before)} runs beyond what was granted" if each.before else "as granted"
    return f"{text}, {why}; {each.queue} now uses {usage(each.used)}"


def _released(each: Happening) -> str:
    why = _of(explain.RELEASED, each.reason)
    return f"gives back {format_vector(each.request or {})}: {why}; {each.queue} now uses {usage(each.used)}"


def _admitted(each: Happening) -> str:
    waited = f", after waiting {span(each.span)}" if each.span >= 0 else ""
    what = format_vector(each.request) if each.request is not None else "it"
    return f"{what} at {each.queue}{waited}{telling_nodes.on_nodes(each.nodes, each.more)}{_laid_out(each)}"


def _laid_out(each: Happening) -> str:
    """By which rule the nodes were chosen."""
    if not each.words:
        return ""
    return f", by the rule {each.words} of {f'queue {each.queue}' if each.flag else 'the configuration'}"


def _evicted(each: Happening) -> str:
    assert each.leaving is not None
    lost = explain.work_lost(each.span) if each.span >= 0 else ""
    return f"{lower(explain.leaving(each.leaving).text)}{lost}"


def _pods_left(each: Happening) -> str:
    pods = f"; {counted(each.number, 'pod')} left" if each.number else ""
    return f"its {each.kind} {each.name} is gone{pods}"


def _lacks_nodes(each: Happening) -> str:
    assert each.event is not None
    return f"its quota is reserved, and it waits for nodes: {telling.tell(each.event).text}"


def _pods_placed(each: Happening) -> str:
    whose = f" of {each.name}" if each.name else ""
    return f"{counted(each.number, 'pod')}{whose} placed on {telling_nodes.listed(each.nodes, each.more)}"


def _taken(each: Happening) -> str:
    assert each.event is not None
    more = f", and {each.more} more" if each.more else ""
    return f"{telling.tell(each.event).text}{more}"


def lower(text: str) -> str:
    """With a small first letter, inside a line."""
    return text[:1].lower() + text[1:]


def _of(words: Mapping[Any, str], reason: str) -> str:
    return {str(each): text for each, text in words.items()}.get(reason, reason)


_LINES: Mapping[str, tuple[str, Callable[[Happening], str]]] = {
    "seen": ("seen", _seen),
    "edited": ("edited", _edited),
    "deleting": ("deleting", lambda _: "it is being deleted"),
    "switched": ("observed", lambda each: f"{suspend_field(each.kind)} is {str(each.flag).lower()} now"),
    "said": ("observed", lambda each: f"{each.kind} says {each.words}"),
    "child_made": ("observed", lambda each: f"its {each.kind} {each.name} exists"),
    "child_gone": ("observed", _pods_left),
    "pods_gone": ("observed", lambda _: "the last of its pods is gone"),
    "workload_started": (
        "running",
        lambda each: f"it runs{f', {span(each.span)} after its admission' if each.span >= 0 else ''}",
    ),
    "workload_finished": ("finished", _finished),
    "workload_gone": (
        "gone",
        lambda each: (
            f"the object was deleted{'; what is left of it stays charged until it is gone' if each.flag else ''}"
        ),
    ),
    "object_unreadable": ("unreadable", lambda each: f"it cannot be read: {_broken(each)}"),
    "workload_queued": ("queued", _queued),
    "workload_dequeued": ("left", lambda each: f"leaves queue {each.queue}: {_of(explain.DEQUEUED, each.reason)}"),
    "workload_refused": ("refused", _refused),
    "candidates_proposed": ("tried", _tried),
    "quota_reserved": (
        "reserved",
        lambda each: (
            f"{format_vector(each.request or {})} reserved; {each.queue} now uses {usage(each.used)}"
            f"{explain_claims.beside(each.name, each.span, each.number)}"
        ),
    ),
    "quota_moved": (
        "moved",
        lambda each: (
            f"charged at {each.queue} from here on, before at {each.path}; {each.queue} now uses {usage(each.used)}"
        ),
    ),
    "quota_denied": ("waits", _denied),
    "stale": ("stale", _denied),
    "parked": ("waits", lambda each: f"a job of the same size was refused: {_denied(each)}"),
    "charge_changed": ("charged", _recharged),
    "workload_adopted": ("adopted", _adopted),
    "suspension_recorded": ("suspended", lambda _: lower(explain.SUSPENDED_OUTSIDE.text)),
    "quota_released": ("released", _released),
    "gang_admitted": ("admitted", _admitted),
    "eviction_ordered": ("reclaims", _taken),
    "evicted": ("evicted", _evicted),
    "pods_placed": ("placed", _pods_placed),
    "pods_released": ("pods free", _taken),
    "pod_group_observed": ("observed", lambda each: f"a gang of {each.number}"),
    "gang_awaiting_nodes": ("lacks nodes", _lacks_nodes),
}
"""The others say all there is in their event: ``telling`` words them."""
