"""Ray clusters in words: growth, alarms, and waiting demand.

The waiting demand of a Ray cluster: each piece, with the fate of the piece in each worker group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

from muster.core.objects.meta import rfc3339
from muster.events import alarms, elastic
from muster.events.raydemand import RayDemandObserved
from muster.model.closed import total
from muster.model.demand import Shortfall
from muster.model.elastic import PENDING
from muster.model.raydemand import RAY_UNIT, RayConstraint, RayShape
from muster.model.resources import format_vector
from muster.model.text import counted, moment
from muster.model.victims import PartialVictim
from muster.told.codes.codetable import Fate, GroupFate, RayPiece, RayWaits
from muster.told.codes.values import Scaling
from muster.told.wording import pods, reasons
from muster.told.wording.explain import Reason, amounts, terms

# --- events -----------------------------------------------------------------------------------------------------------


SHOWN = 3
"""Alternatives that the text of one denial names."""


def demand(event: RayDemandObserved) -> str:
    """``waiting: 3 x CPU 1; 1 placement group; 2 idle workers``."""
    asked = event.demand
    parts = [f"waiting: {listed_shapes(asked.pending)}"] if asked.pending else []
    parts += [counted(len(asked.placement_groups), "placement group")] if asked.placement_groups else []
    parts += [f"asked for explicitly: {listed_shapes(asked.explicit)}"] if asked.explicit else []
    parts += [f"can never be placed: {listed_shapes(asked.infeasible)}"] if asked.infeasible else []
    parts += [counted(len(asked.idle), "idle worker")] if asked.idle else []
    parts += [reasons.RAY_TROUBLE[asked.trouble]] if asked.trouble else []
    return "; ".join(parts) or "nothing waits"


def requested(event: elastic.GrowthRequested) -> str:
    """``RayCluster ns/c wants 3 more workers in small, beyond small 2``."""
    if not event.units:
        return f"{event.cluster} wants no more than it has"
    others = [unit for unit in event.units if PENDING not in unit.groups]
    new = f"{event.pending}, the new cluster of an upgrade" if event.pending is not None else ""
    if not others:
        return f"{event.ref} wants {new}, beside the serving one"
    wanted = ", ".join([unit_text(unit) for unit in others[:5]] + ([new] if new else []))
    return f"{event.cluster} wants {wanted} more; granted are {counts(event.granted)}"


def unit_text(unit: elastic.GrowthUnit) -> str:
    return option(elastic.GrowthOption(unit.groups, unit.times))


def option(unit: elastic.GrowthOption) -> str:
    """``3 x small 1``, or ``small 3 together``."""
    if unit.groups and max(unit.groups.values()) == 1 and len(unit.groups) == 1:
        return f"{unit.times} x {next(iter(unit.groups))}"
    together = f"{counts(unit.groups)} together"
    return together if unit.times == 1 else f"{unit.times} x ({together})"


def counts(counts_by_group: Mapping[str, int]) -> str:
    """``big 0, small 2``."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts_by_group.items())) or "none"


def granted(event: elastic.GrowthGranted) -> str:
    if event.pending is not None:
        beside = f"{event.pending}, the new cluster of an upgrade, starts beside the serving one"
        return f"{beside}; {format_vector(event.request)} at {event.queue} until the old cluster is gone"
    return (
        f"{event.cluster} may grow by {_of_groups(event.added)}, to {_of_groups(event.groups)}; "
        f"{format_vector(event.request)} at {event.queue}"
    )


def withdrawn(event: elastic.GrowthWithdrawn) -> str:
    why = f"for {event.claimant}" if event.claimant is not None else "they are unused"
    return (
        f"{event.cluster} shrinks by {_of_groups(event.removed)}, {why}, to {_of_groups(event.groups)}; "
        f"{format_vector(event.request)} at {event.queue}"
    )


def denied(event: elastic.GrowthDenied) -> str:
    never = "; that alone is over the limit" if event.reason == "exceeds_limit" else ""
    upgrade = next((refusal.short for refusal in event.refusals if PENDING in refusal.groups), None)
    if upgrade is not None and PENDING in event.groups:
        return f"its upgrade waits for {refused_by(upgrade)}{never}; the old cluster serves on"
    first = f"{counts(event.groups)} more for {event.cluster} do not fit: {refused_by(event.short)}{never}"
    rest = [other for other in event.others if PENDING not in other.groups]
    others = [f"nor do {counts(other.groups)}: {refused_by(other.short)}" for other in rest[:SHOWN]]
    others += [f"its upgrade waits for {refused_by(upgrade)}"] if upgrade is not None else []
    more = len(rest) - SHOWN
    return "; ".join([first, *others, *([f"and {more} more are refused"] if more > 0 else [])])


def refused_by(short: Shortfall) -> str:
    """``cpu in quota root/a: request 1, max 8, used 8``."""
    term = terms(short.path)
    limit = f"{term.least} for {term.firm} jobs" if short.of_min else "runtime" if short.of_runtime else term.most
    return f"{short.resource} in {term.where}: {amounts(short, limit)}"


def scaling(judged: Scaling, tried: str = "") -> str:
    """``Granted: small 2, of at most small 10; it asks for small 3 more: cpu in quota root/a: ...``.

    ``tried``: the attempt to make room for the asked replicas.
    """
    alone = bool(judged.asked) and not judged.granted
    if alone and judged.denied is not None:
        text = denied(judged.denied)
        return f"{text[:1].upper()}{text[1:]}"
    most = f", of at most {counts(judged.ceilings)}" if judged.ceilings else ""
    text = f"Granted: {counts(judged.granted)}{most}"
    asked = {name: count for name, count in judged.asked.items() if name != PENDING}
    if asked:
        why = f"; {denied(judged.denied)}{tried}" if judged.denied is not None else ""
        why += f". They are promised by {rfc3339(judged.promised)}" if judged.promised else ""
        text = f"{text}; it asks for {counts(asked)} more{why}"
    elif judged.denied is not None:
        text = f"{text}; {denied(judged.denied)}"
    return f"{text}. {alarm_reason(judged.alarm).text}" if judged.alarm is not None else text


def alarm_reason(event: alarms.AlarmRaised) -> Reason:
    """The trouble with a Ray cluster, and its consequence."""
    code, words = reasons.ALARMS[event.reason]
    text = words.format(
        ref=event.ref, cluster=event.cluster, groups=counts(event.groups), lacks=listed_shapes(event.lacks)
    )
    if event.reason == "not_growing":
        text = f"{text}. They are released, and tried again after {rfc3339(event.until)}"
    elif alarms.stops_grants(event.reason) and not event.fixed:
        text = f"{text}. Meanwhile it is granted no more, and its unused replicas are released"
    return Reason(code, f"alarm {event.reason} {counts(event.groups)}", text)


def alarm(event: alarms.AlarmRaised) -> str:
    return alarm_reason(event).text


def size_reason(
    event: elastic.GrowthDenied | elastic.GrowthGranted | elastic.GrowthWithdrawn | elastic.SurplusOrdered,
) -> Reason:
    """What was decided about the size of a running cluster, as an Event says it."""
    match event:
        case elastic.GrowthDenied():
            code = "UpgradeWaits" if PENDING in event.groups else "GrowthDenied"
            return Reason(code, code, denied(event))
        case elastic.GrowthGranted():
            return Reason("UpgradeStarts" if event.pending is not None else "GrowthGranted", "", granted(event))
        case elastic.GrowthWithdrawn():
            return Reason("WorkersReleased", "", withdrawn(event))
        case elastic.SurplusOrdered():
            return Reason("WorkersReleased", "", surplus(event))
    assert_never(event)


def gate(event: elastic.GateSet) -> str:
    if event.suspend is not None:
        return f"{event.ref} is to {'wait, suspended' if event.suspend else 'start'}"
    if event.stay:
        return f"the worker groups of {event.ref} are to keep {counts(event.stay)} pods: the rest is beyond the grant"
    shown = f"maxReplicas of {event.ref} is to be {counts(event.most)} (its owner set {counts(event.ceilings)})"
    gone = [pod.name for pods in event.workers.values() for pod in pods]
    if gone:
        shown = f"{shown}; {listed_workers(gone)} {'is' if len(gone) == 1 else 'are'} to be deleted"
    kept = f" once {event.claimant} has the rest" if event.claimant is not None else "; the rest is unused"
    return f"{shown}; {counts(event.granted)} stay granted{kept}" if event.granted else shown


def _of_groups(taken: Mapping[str, int]) -> str:
    return " and ".join(f"{count} of group {name}" for name, count in sorted(taken.items())) or "none"


def parts(partial: tuple[PartialVictim, ...]) -> str:
    """``2 of group small of a/c (cpu 2 at root/a)``."""
    reductions = [
        f"{_of_groups(victim.taken)} of {victim.ref.key} ({format_vector(victim.request)} at {victim.queue})"
        for victim in partial
    ]
    shown = ", ".join(reductions[:5])
    return f"{shown}, and of {len(partial) - 5} more" if len(partial) > 5 else shown


def chosen(event: elastic.WorkersChosen) -> str:
    """``worker auto-3 of RayCluster a/c is drained for b/job (idle)``."""
    idle = sum(worker.idle for worker in event.workers)
    busy = len(event.workers) - idle
    purpose = f" for {event.claimant}" if event.claimant is not None else ""
    names = listed_workers([worker.ref.name for worker in event.workers])
    how = f"{idle} idle, {busy} busy" if busy else "idle"
    return f"{names} of {event.ref} {'is' if len(event.workers) == 1 else 'are'} drained{purpose} ({how})"


def surplus(event: elastic.SurplusOrdered) -> str:
    return (
        f"releases workers: {format_vector(event.surplus)} runs beyond its grant and quota {event.queue} is above "
        "its max; the rest runs on"
    )


def kept(event: elastic.WorkersKept) -> str:
    return f"no workers are taken from it: {reasons.WORKERS_KEPT[event.reason]}"


def removed(event: elastic.WorkersRemoved) -> str:
    """``worker auto-3 of RayCluster a/c is still there though KubeRay was asked at ... to delete it``."""
    names = [pod.name for pods in event.workers.values() for pod in pods]
    one = len(names) == 1
    asked = f"KubeRay was asked at {moment(event.since)} to delete {'it' if one else 'them'}"
    workers = f"{listed_workers(names)} of {event.ref} {'is' if one else 'are'} still there though {asked}"
    return f"{workers}: Muster deletes {'its pod' if one else 'their pods'}; see whether KubeRay runs"


def listed_workers(names: list[str]) -> str:
    """The first few of many."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"worker{'s' if len(names) > 1 else ''} {', '.join(names[:5])}{more}"


def listed_shapes(shapes: Iterable[RayShape]) -> str:
    """``3 x CPU 1 + GPU 0.5, 1 x memory 1048576 where market is spot``."""
    return ", ".join(f"{shape.count} x {_shape(shape)}" for shape in shapes)


def _shape(shape: RayShape) -> str:
    """``CPU 1 where market is spot, else where zone is a or b and market is not spot``."""
    asked = " + ".join(f"{name} {amount(size)}" for name, size in sorted(shape.resources.items())) or "nothing"
    chosen = [" and ".join(_constraint(requirement) for requirement in selector) for selector in shape.selectors]
    return asked + (f" where {', else where '.join(chosen)}" if chosen else "")


def _constraint(rule: RayConstraint) -> str:
    return f"{rule.key} is {'not ' if rule.excluded else ''}{' or '.join(rule.values) or 'of no known kind'}"


def amount(number: int) -> str:
    """``0.5``, of ten-thousandths."""
    whole, part = divmod(number, RAY_UNIT)
    return f"{whole}.{part:04}".rstrip("0") if part else str(whole)


# --- what waits in a Ray cluster --------------------------------------------------------------------------------------


FILE = "libs/muster/told/wording/raywords.py"


def heading(waits: RayWaits) -> str:
    """``Waits in RayCluster a/one, as its head said at 12:00:05``."""
    old = f"; {reasons.RAY_TROUBLE[waits.trouble]} since" if waits.trouble else ""
    return f"Waits in {waits.cluster}, as its head said at {rfc3339(waits.read_at)}{old}"


def piece(waiting: RayPiece) -> str:
    """``3 x CPU 1``, ``placement group 4f2a (PACK): 2 x GPU 1``."""
    shapes = listed_shapes(waiting.shapes)
    if waiting.kind == "alone":
        return shapes
    if waiting.kind == "explicit":
        return f"asked for with request_resources: {shapes}"
    return f"placement group {waiting.name[:12]} ({waiting.strategy}): {shapes}".replace("  ", " ")


def fate(judged: GroupFate) -> str:
    """The fate of a piece in one worker group."""
    return f"{judged.group}: {_WORDS[judged.fate](judged)}"


def _too_small(fate: GroupFate) -> str:
    if not fate.resource:
        return "what one worker offers cannot be read: set num-cpus in its rayStartParams, or a cpu limit"
    asked, offers = amount(fate.asked), amount(fate.offers)
    return f"too small: {fate.resource} {asked} is asked for, and one worker offers {offers}"


def _no_nodes(fate: GroupFate) -> str:
    cause = pods.matter(fate.pod.trouble) if fate.pod is not None else ""
    name = fate.pod.name if fate.pod is not None else ""
    return f"{counted(fate.count, 'pod')} without a node: {name}: {cause}"


def _refused(fate: GroupFate) -> str:
    return f"refused: {refused_by(fate.short)}" if fate.short is not None else "refused"


_WORDS: dict[Fate, Callable[[GroupFate], str]] = {
    "too_small": _too_small,
    "other_labels": lambda _: "its nodes do not have these labels",
    "no_nodes": _no_nodes,
    "refused": _refused,
    "asked": lambda fate: f"{counted(fate.count, 'more replica')} asked for, not answered yet",
    "coming": lambda fate: f"{counted(fate.count, 'replica')} granted, of which {fate.joined} have joined",
    "at_most": lambda fate: f"its owner allows {counted(fate.count, 'replica')} (maxReplicas), and all are granted",
    "elsewhere": lambda _: "nothing is asked of it: other workers come first",
}

total(_WORDS, Fate, f"{FILE} (_WORDS)")
