"""Events about Ray's autoscaling in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.core.status.values import Scaling
from muster.events import effects, elastic
from muster.events.decisions import PartialVictim
from muster.events.raydemand import RayDemandObserved
from muster.model.raydemand import RAY_UNIT, RayShape
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted

TROUBLE = {
    "unreachable": "its head does not answer",
    "unauthorized": "its head wants a token that Muster does not have",
    "unreadable": "its head answers with something that cannot be read",
    "stalled": "its autoscaler has said nothing new for three ticks",
}


def demand(event: RayDemandObserved) -> str:
    """``waiting: 3 x CPU 1; 1 placement group; 2 idle workers``."""
    said = event.demand
    parts = [f"waiting: {shapes(said.pending)}"] if said.pending else []
    parts += [counted(len(said.placement_groups), "placement group")] if said.placement_groups else []
    parts += [f"asked for explicitly: {shapes(said.explicit)}"] if said.explicit else []
    parts += [f"can never be placed: {shapes(said.infeasible)}"] if said.infeasible else []
    parts += [counted(len(said.idle), "idle worker")] if said.idle else []
    parts += [TROUBLE[said.trouble]] if said.trouble else []
    return "; ".join(parts) or "nothing waits"


def requested(event: elastic.GrowthRequested) -> str:
    """``RayCluster ns/c wants 3 more workers in small, beyond small 2``."""
    if not event.units:
        return f"{event.cluster} wants no more than it has"
    wanted = ", ".join(unit_text(unit) for unit in event.units[:5])
    return f"{event.cluster} wants {wanted} more; granted are {counts(event.granted)}"


def unit_text(unit: elastic.GrowthUnit) -> str:
    """``3 x small 1``, or ``small 3 together``."""
    if unit.groups and max(unit.groups.values()) == 1 and len(unit.groups) == 1:
        return f"{unit.times} x {next(iter(unit.groups))}"
    together = f"{counts(unit.groups)} together"
    return together if unit.times == 1 else f"{unit.times} x ({together})"


def counts(found: Mapping[str, int]) -> str:
    """``big 0, small 2``."""
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"


def granted(event: elastic.GrowthGranted) -> str:
    return (
        f"{counts(event.added)} more granted to {event.cluster}: {counts(event.groups)} in all; "
        f"{format_vector(event.request)} at {event.queue}"
    )


def withdrawn(event: elastic.GrowthWithdrawn) -> str:
    why = f"to {event.claimant}" if event.claimant is not None else "nobody uses it"
    return (
        f"{counts(event.removed)} of {event.cluster} given back, {why}: {counts(event.groups)} stay granted; "
        f"{format_vector(event.request)} at {event.queue}"
    )


def denied(event: elastic.GrowthDenied) -> str:
    short = event.short
    limit = "min for what is not preemptible" if short.of_min else "share of the moment" if short.of_runtime else "max"
    held = f", {format_quantity(short.held, short.resource)} of it held for others" if short.held else ""
    never = "; that alone is over the limit" if event.reason == "exceeds_limit" else ""
    return (
        f"{counts(event.groups)} more for {event.cluster} do not fit: {short.resource} in quota {short.path}: "
        f"request {format_quantity(short.asked, short.resource)}, "
        f"{limit} {format_quantity(short.limit, short.resource)}, "
        f"used {format_quantity(short.used, short.resource)}{held}{never}"
    )


def scaling(found: Scaling) -> str:
    """``Granted are small 2, of at most small 10; it asks for small 3 more: cpu in quota root/a: ...``."""
    most = f", of at most {counts(found.ceilings)}" if found.ceilings else ""
    said = f"Granted are {counts(found.granted)}{most}"
    if not found.asked:
        return said
    why = f"; {denied(found.denied)}" if found.denied is not None else ""
    return f"{said}; it asks for {counts(found.asked)} more{why}"


def gate(event: elastic.GateSet) -> str:
    shown = f"maxReplicas of {event.ref} should say {counts(event.most)}, of the {counts(event.ceilings)} its owner set"
    gone = [pod.name for pods in event.workers.values() for pod in pods]
    if gone:
        shown = f"{shown}; {listed(gone)} {'is' if len(gone) == 1 else 'are'} to be deleted"
    whose = f"when {event.claimant} has got the rest" if event.claimant is not None else "of what is not used"
    return f"{shown}; {counts(event.granted)} stay {whose}" if event.granted else shown


def parts(partial: tuple[PartialVictim, ...]) -> str:
    """``small 2 of a/c (cpu 2 at root/a)``."""
    said = [
        f"{counts(each.taken)} of {each.ref.key} ({format_vector(each.request)} at {each.queue})" for each in partial
    ]
    shown = ", ".join(said[:5])
    return f"{shown}, and of {len(partial) - 5} more" if len(partial) > 5 else shown


def chosen(event: elastic.WorkersChosen) -> str:
    """``worker auto-3 of RayCluster a/c goes, so that b/job gets its guarantee; it is idle``."""
    idle = sum(each.idle for each in event.workers)
    busy = len(event.workers) - idle
    purpose = f" for {event.claimant}" if event.claimant is not None else ""
    what = listed([each.ref.name for each in event.workers])
    how = f"{idle} idle, {busy} not" if busy else "idle"
    return (
        f"{what} of {event.ref} {'goes' if len(event.workers) == 1 else 'go'}{purpose} ({how}): they take no new work"
    )


def kept(event: elastic.WorkersKept) -> str:
    why = {
        "at_minimum": "its worker groups are at their minReplicas",
        "no_cluster": "it has no Ray cluster that scales itself",
        "not_written": "nothing came of it for two minutes; see whether its cluster can be written and its pods end",
    }
    return f"no workers are taken from it: {why[event.reason]}"


def listed(names: list[str]) -> str:
    """The first few of many."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"worker{'s' if len(names) > 1 else ''} {', '.join(names[:5])}{more}"


def not_written(event: effects.EffectFailed) -> str:
    why = {
        "gone": "the cluster is gone",
        "spec_changed": "it has changed meanwhile; it is decided afresh",
        "superseded": "a newer decision has been carried out on it",
        "refused": "the API server refused to write maxReplicas",
    }[event.reason]
    return why + (f": {event.message}" if event.message else "")


def shapes(found: Iterable[RayShape]) -> str:
    """``3 x CPU 1 + GPU 0.5, 1 x memory 1048576``."""
    return ", ".join(f"{each.count} x {_shape(each)}" for each in found)


def _shape(shape: RayShape) -> str:
    return " + ".join(f"{name} {_amount(amount)}" for name, amount in sorted(shape.resources.items())) or "nothing"


def _amount(amount: int) -> str:
    whole, part = divmod(amount, RAY_UNIT)
    return f"{whole}.{part:04}".rstrip("0") if part else str(whole)
