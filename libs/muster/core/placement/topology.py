"""Topology: all pods of a gang, or of a worker group, within one domain of a level (one rack, one zone).

A level is a label of nodes; nodes with equal values are one domain. The required level must hold; the preferred one is
tried first. Of several domains with room the one with least room left over is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from muster.core.placement.choices import choices
from muster.core.placement.view import Ask, View
from muster.model.places import Shortage
from muster.model.placing import NodeTerm, PodRules, Requirement, Topology
from muster.model.problem import problem

MAX_DOMAINS = 64
"""Domains that are tried at most, the tightest first."""

Where = tuple[tuple[str, str], ...]
"""Labels and their values: the domains within which pods are to be."""


def within(
    view: View, asks: Sequence[Ask], topology: Topology, attempt: Callable[[Sequence[Ask]], Shortage | None]
) -> Shortage | None:
    """Places for all of the asks within one domain of each level; ``attempt`` takes places for asks, or for none."""
    if not topology.required and not topology.preferred:
        return attempt(asks)
    short: Shortage | None = None
    required = [topology.required] if topology.required else []
    both = [*required, topology.preferred] if topology.preferred else required
    for levels in dict.fromkeys((tuple(both), tuple(required))):
        for where in _domains(view, asks, levels) if levels else ((),):
            mark = view.mark()
            found = attempt([_inside(ask, where) for ask in asks])
            if found is None:
                return None
            view.undo(mark)
            short = short or found
    if not required:
        return short
    return _told(view, asks, topology.required, short)


def _domains(view: View, asks: Sequence[Ask], levels: tuple[str, ...]) -> Iterator[Where]:
    """Domains with room for every ask alone, the tightest first."""
    rooms = [_rooms(view, ask, levels) for ask in asks]
    fitting = [
        (sum(room[where] for room in rooms), where)
        for where in rooms[0]
        if all(room.get(where, 0) >= ask.count for room, ask in zip(rooms, asks, strict=True))
    ]
    yield from (where for _, where in sorted(fitting)[:MAX_DOMAINS])


def _rooms(view: View, ask: Ask, levels: tuple[str, ...]) -> dict[Where, int]:
    """{domain: how many pods of an ask would find a place there}"""
    found: dict[Where, int] = {}
    for choice in choices(view, ask):
        for name in choice.names:
            labels = view.ledger.nodes[name].labels
            if all(level in labels for level in levels):
                where = tuple((level, labels[level]) for level in levels)
                found[where] = found.get(where, 0) + choice.fit
    return found


def _inside(ask: Ask, where: Where) -> Ask:
    """The ask, within these domains alone."""
    if not where:
        return ask
    here = tuple(Requirement(level, "In", (value,)) for level, value in where)
    rules: PodRules = ask.rules
    nodes = tuple(replace(term, labels=(*term.labels, *here)) for term in rules.nodes or (NodeTerm(),))
    return replace(ask, rules=replace(rules, nodes=nodes, topology=Topology()))


def _told(view: View, asks: Sequence[Ask], level: str, short: Shortage | None) -> Shortage:
    """The first ask that no domain has room for, and how far the best of them goes: ``rack r2 has 6 of 8``."""
    for ask in asks:
        rooms = _rooms(view, ask, (level,))
        best = max(rooms, key=lambda where: (rooms[where], where), default=None)
        count = rooms[best] if best is not None else 0
        if count < ask.count or short is None:
            name = level.rpartition("/")[2]
            none = problem("", "domain_none", level=name)
            within = (
                none
                if best is None
                else problem("", "domain_short", level=name, domain=best[0][1], has=count, wants=ask.count)
            )
            return Shortage(ask.name, min(count, ask.count), ask.count, view.ledger.count, within=within)
    name = level.rpartition("/")[2]
    assert short is not None
    return replace(short, within=problem("", "domain_not_for_all", level=name))
