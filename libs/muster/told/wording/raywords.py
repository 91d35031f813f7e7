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
from muster.model.language import listed, say, say_many
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
    parts = [say("waiting: {shapes}", shapes=listed_shapes(asked.pending))] if asked.pending else []
    parts += [counted(len(asked.placement_groups), "placement group")] if asked.placement_groups else []
    parts += [say("asked for explicitly: {shapes}", shapes=listed_shapes(asked.explicit))] if asked.explicit else []
    parts += [say("can never be placed: {shapes}", shapes=listed_shapes(asked.infeasible))] if asked.infeasible else []
    parts += [counted(len(asked.idle), "idle worker")] if asked.idle else []
    parts += [say(reasons.RAY_TROUBLE[asked.trouble])] if asked.trouble else []
    return say("; ").join(parts) or say("nothing waits")


def requested(event: elastic.GrowthRequested) -> str:
    """``RayCluster ns/c wants 3 more workers in small, beyond small 2``."""
    if not event.units:
        return say("{cluster} wants no more than it has", cluster=event.cluster)
    others = [unit for unit in event.units if PENDING not in unit.groups]
    new = say("{pending}, the new cluster of an upgrade", pending=event.pending) if event.pending is not None else ""
    if not others:
        return say("{ref} wants {new}, beside the serving one", ref=event.ref, new=new)
    wanted = listed([unit_text(unit) for unit in others[:5]] + ([new] if new else []))
    return say(
        "{cluster} wants {wanted} more; granted are {counts}",
        cluster=event.cluster,
        wanted=wanted,
        counts=counts(event.granted),
    )


def unit_text(unit: elastic.GrowthUnit) -> str:
    return option(elastic.GrowthOption(unit.groups, unit.times))


def option(unit: elastic.GrowthOption) -> str:
    """``3 x small 1``, or ``small 3 together``."""
    if unit.groups and max(unit.groups.values()) == 1 and len(unit.groups) == 1:
        return say("{times} x {group}", times=unit.times, group=next(iter(unit.groups)))
    together = say("{counts} together", counts=counts(unit.groups))
    return together if unit.times == 1 else say("{times} x ({together})", times=unit.times, together=together)


def counts(counts_by_group: Mapping[str, int]) -> str:
    """``big 0, small 2``."""
    return listed(f"{name} {count}" for name, count in sorted(counts_by_group.items())) or say("none")


def granted(event: elastic.GrowthGranted) -> str:
    if event.pending is not None:
        beside = say("{pending}, the new cluster of an upgrade, starts beside the serving one", pending=event.pending)
        return say(
            "{beside}; {request} at {queue} until the old cluster is gone",
            beside=beside,
            request=format_vector(event.request),
            queue=event.queue,
        )
    return say(
        "{cluster} may grow by {groups}, to {all}; {request} at {queue}",
        cluster=event.cluster,
        groups=_of_groups(event.added),
        all=_of_groups(event.groups),
        request=format_vector(event.request),
        queue=event.queue,
    )


def withdrawn(event: elastic.GrowthWithdrawn) -> str:
    why = say("for {claimant}", claimant=event.claimant) if event.claimant is not None else say("they are unused")
    return say(
        "{cluster} shrinks by {groups}, {why}, to {all}; {request} at {queue}",
        cluster=event.cluster,
        groups=_of_groups(event.removed),
        why=why,
        all=_of_groups(event.groups),
        request=format_vector(event.request),
        queue=event.queue,
    )


def denied(event: elastic.GrowthDenied) -> str:
    never = say("; that alone is over the limit") if event.reason == "exceeds_limit" else ""
    upgrade = next((refusal.short for refusal in event.refusals if PENDING in refusal.groups), None)
    if upgrade is not None and PENDING in event.groups:
        return say(
            "its upgrade waits for {refusal}{never}; the old cluster serves on",
            refusal=refused_by(upgrade),
            never=never,
        )
    first = say(
        "{cluster} cannot grow by {groups}: {refusal}{never}",
        groups=_of_groups(event.groups),
        cluster=event.cluster,
        refusal=refused_by(event.short),
        never=never,
    )
    rest = [other for other in event.others if PENDING not in other.groups]
    others = [
        say("nor by {groups}: {refusal}", groups=_of_groups(other.groups), refusal=refused_by(other.short))
        for other in rest[:SHOWN]
    ]
    others += [say("its upgrade waits for {refusal}", refusal=refused_by(upgrade))] if upgrade is not None else []
    more = len(rest) - SHOWN
    return say("; ").join([first, *others, *([say("and {more} more are refused", more=more)] if more > 0 else [])])


def refused_by(short: Shortfall) -> str:
    """``cpu in quota root/a: request 1, max 8, used 8``."""
    term = terms(short.path)
    limit = (
        say("{least} for non-preemptible jobs", least=term.least)
        if short.of_min
        else say("runtime")
        if short.of_runtime
        else term.most
    )
    return say(
        "{resource} in {where}: {amounts}", resource=short.resource, where=term.where, amounts=amounts(short, limit)
    )


def scaling(judged: Scaling, tried: str = "") -> str:
    """``Granted: small 2, of at most small 10; it asks for small 3 more: cpu in quota root/a: ...``.

    ``tried``: the attempt to make room for the asked replicas.
    """
    alone = bool(judged.asked) and not judged.granted
    if alone and judged.denied is not None:
        text = denied(judged.denied)
        return f"{text[:1].upper()}{text[1:]}"
    most = say(", of at most {counts}", counts=counts(judged.ceilings)) if judged.ceilings else ""
    text = say("Granted: {counts}{most}", counts=counts(judged.granted), most=most)
    asked = {name: count for name, count in judged.asked.items() if name != PENDING}
    if asked:
        why = say("; {denied}{tried}", denied=denied(judged.denied), tried=tried) if judged.denied is not None else ""
        why += say(". They are promised by {promised}", promised=rfc3339(judged.promised)) if judged.promised else ""
        text = say("{text}; it asks for {counts} more{why}", text=text, counts=counts(asked), why=why)
    elif judged.denied is not None:
        text = say("{text}; {denied}", text=text, denied=denied(judged.denied))
    return (
        say("{text}. {alarm}", text=text, alarm=alarm_reason(judged.alarm).text) if judged.alarm is not None else text
    )


def alarm_reason(event: alarms.AlarmRaised) -> Reason:
    """The trouble with a Ray cluster, and its consequence."""
    code, words = reasons.ALARMS[event.reason]
    text = say(
        words, ref=event.ref, cluster=event.cluster, groups=counts(event.groups), lacks=listed_shapes(event.lacks)
    )
    if event.reason == "not_growing":
        text = say("{text}. They are released, and tried again after {until}", text=text, until=rfc3339(event.until))
    elif alarms.stops_grants(event.reason) and not event.fixed:
        text = say("{text}. Meanwhile it is granted no more, and its unused replicas are released", text=text)
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
        return say("{ref} is to wait, suspended" if event.suspend else "{ref} is to start", ref=event.ref)
    if event.stay:
        return say(
            "the worker groups of {ref} are to keep {counts} pods: the rest is beyond the grant",
            ref=event.ref,
            counts=counts(event.stay),
        )
    shown = say(
        "maxReplicas of {ref} is to be {counts} (its owner set {ceilings})",
        ref=event.ref,
        counts=counts(event.most),
        ceilings=counts(event.ceilings),
    )
    gone = [pod.name for pods in event.workers.values() for pod in pods]
    if gone:
        workers = listed_workers(gone)
        shown = say_many(
            len(gone),
            "{shown}; {workers} is to be deleted",
            "{shown}; {workers} are to be deleted",
            shown=shown,
            workers=workers,
        )
    kept = (
        say(" once {claimant} has the rest", claimant=event.claimant)
        if event.claimant is not None
        else say("; the rest is unused")
    )
    return (
        say("{shown}; {counts} stay granted{kept}", shown=shown, counts=counts(event.granted), kept=kept)
        if event.granted
        else shown
    )


def _of_groups(taken: Mapping[str, int]) -> str:
    return say(" and ").join(
        say("{count} of group {name}", count=count, name=name) for name, count in sorted(taken.items())
    ) or say("none")


def parts(partial: tuple[PartialVictim, ...]) -> str:
    """``2 of group small of a/c (cpu 2 at root/a)``."""
    reductions = [
        say(
            "{groups} of {key} ({request} at {queue})",
            groups=_of_groups(victim.taken),
            key=victim.ref.key,
            request=format_vector(victim.request),
            queue=victim.queue,
        )
        for victim in partial
    ]
    shown = listed(reductions[:5])
    return say("{shown}, and of {hidden} more", shown=shown, hidden=len(partial) - 5) if len(partial) > 5 else shown


def chosen(event: elastic.WorkersChosen) -> str:
    """``worker auto-3 of RayCluster a/c is drained for b/job (idle)``."""
    idle = sum(worker.idle for worker in event.workers)
    busy = len(event.workers) - idle
    purpose = say(" for {claimant}", claimant=event.claimant) if event.claimant is not None else ""
    names = listed_workers([worker.ref.name for worker in event.workers])
    how = say("{idle} idle, {busy} busy", idle=idle, busy=busy) if busy else say("idle")
    return say_many(
        len(event.workers),
        "{names} of {ref} is drained{purpose} ({how})",
        "{names} of {ref} are drained{purpose} ({how})",
        names=names,
        ref=event.ref,
        purpose=purpose,
        how=how,
    )


def surplus(event: elastic.SurplusOrdered) -> str:
    return say(
        "releases workers: {surplus} runs beyond its grant and quota {queue} is above its max; the rest runs on",
        surplus=format_vector(event.surplus),
        queue=event.queue,
    )


def kept(event: elastic.WorkersKept) -> str:
    return say("no workers are taken from it: {why}", why=say(reasons.WORKERS_KEPT[event.reason]))


def removed(event: elastic.WorkersRemoved) -> str:
    """``worker auto-3 of RayCluster a/c is still there though KubeRay was asked at ... to delete it``."""
    names = [pod.name for pods in event.workers.values() for pod in pods]
    return say_many(
        len(names),
        "{workers} of {ref} is still there though KubeRay was asked at {since} to delete it: Muster deletes its pod; "
        "see whether KubeRay runs",
        "{workers} of {ref} are still there though KubeRay was asked at {since} to delete them: Muster deletes their "
        "pods; see whether KubeRay runs",
        workers=listed_workers(names),
        ref=event.ref,
        since=moment(event.since),
    )


def listed_workers(names: list[str]) -> str:
    """The first few of many."""
    more = say(" and {hidden} more", hidden=len(names) - 5) if len(names) > 5 else ""
    return say_many(len(names), "worker {names}{more}", "workers {names}{more}", names=listed(names[:5]), more=more)


def listed_shapes(shapes: Iterable[RayShape]) -> str:
    """``3 x CPU 1 + GPU 0.5, 1 x memory 1048576 where market is spot``."""
    return listed(f"{shape.count} x {_shape(shape)}" for shape in shapes)


def _shape(shape: RayShape) -> str:
    """``CPU 1 where market is spot, else where zone is a or b and market is not spot``."""
    asked = " + ".join(f"{name} {amount(size)}" for name, size in sorted(shape.resources.items())) or say("nothing")
    chosen = [say(" and ").join(_constraint(requirement) for requirement in selector) for selector in shape.selectors]
    return asked + (say(" where {chosen}", chosen=say(", else where ").join(chosen)) if chosen else "")


def _constraint(rule: RayConstraint) -> str:
    return say(
        "{key} is not {values}" if rule.excluded else "{key} is {values}",
        key=rule.key,
        values=say(" or ").join(rule.values) or say("of no known kind"),
    )


def amount(number: int) -> str:
    """``0.5``, of ten-thousandths."""
    whole, part = divmod(number, RAY_UNIT)
    return f"{whole}.{part:04}".rstrip("0") if part else str(whole)


# --- what waits in a Ray cluster --------------------------------------------------------------------------------------


FILE = "libs/muster/told/wording/raywords.py"


def heading(waits: RayWaits) -> str:
    """``Waits in RayCluster a/one, as its head said at 12:00:05``."""
    old = say("; {trouble} since", trouble=say(reasons.RAY_TROUBLE[waits.trouble])) if waits.trouble else ""
    return say(
        "Waits in {cluster}, as its head said at {read_at}{old}",
        cluster=waits.cluster,
        read_at=rfc3339(waits.read_at),
        old=old,
    )


def piece(waiting: RayPiece) -> str:
    """``3 x CPU 1``, ``placement group 4f2a (PACK): 2 x GPU 1``."""
    shapes = listed_shapes(waiting.shapes)
    if waiting.kind == "alone":
        return shapes
    if waiting.kind == "explicit":
        return say("asked for with request_resources: {shapes}", shapes=shapes)
    return say(
        "placement group {name} ({strategy}): {shapes}",
        name=waiting.name[:12],
        strategy=waiting.strategy,
        shapes=shapes,
    ).replace("  ", " ")


def fate(judged: GroupFate) -> str:
    """The fate of a piece in one worker group."""
    return say("{group}: {value}", group=judged.group, value=_WORDS[judged.fate](judged))


def _too_small(fate: GroupFate) -> str:
    if not fate.resource:
        return say("what one worker offers cannot be read: set num-cpus in its rayStartParams, or a cpu limit")
    asked, offers = amount(fate.asked), amount(fate.offers)
    return say(
        "too small: {resource} {asked} is asked for, and one worker offers {offers}",
        resource=fate.resource,
        asked=asked,
        offers=offers,
    )


def _no_nodes(fate: GroupFate) -> str:
    cause = pods.matter(fate.pod.trouble) if fate.pod is not None else ""
    name = fate.pod.name if fate.pod is not None else ""
    return say("{count} without a node: {name}: {cause}", count=counted(fate.count, "pod"), name=name, cause=cause)


def _refused(fate: GroupFate) -> str:
    return say("refused: {refusal}", refusal=refused_by(fate.short)) if fate.short is not None else say("refused")


_WORDS: dict[Fate, Callable[[GroupFate], str]] = {
    "too_small": _too_small,
    "other_labels": lambda _: say("its nodes do not have these labels"),
    "no_nodes": _no_nodes,
    "refused": _refused,
    "asked": lambda fate: say("{count} asked for, not answered yet", count=counted(fate.count, "more replica")),
    "coming": lambda fate: say(
        "{count} granted, of which {joined} have joined", count=counted(fate.count, "replica"), joined=fate.joined
    ),
    "at_most": lambda fate: say(
        "its owner allows {count} (maxReplicas), and all are granted", count=counted(fate.count, "replica")
    ),
    "elsewhere": lambda _: say("nothing is asked of it: other workers come first"),
}

total(_WORDS, Fate, f"{FILE} (_WORDS)")
