"""The canonical schedule of a log: the decisions of the stages when every stage decides at once, after every input.

In a live system decisions race, and two logs of the same inputs need not hold the same commits. On the canonical
schedule they do: only inputs from outside are taken from the log, and everything is decided again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, InMemoryCell, Seat
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.system import LeaderStarted

PASSING = frozenset({"cause", "uid", "rv", "queued_at", "until", "generation", "supply"})
"""Fields that differ between two clusters, or two days, though the decision is the same."""


class Decided(Struct, frozen=True):
    """One decision on the canonical schedule. ``after``: sequence of the input it follows; ``at``: log time, ms."""

    stage: str
    after: int
    at: int
    event: dict[str, Any]
    """What was decided, without what passes."""


class FirstDifference(Struct, frozen=True):
    """The first decision that two logs do not share: ``index`` decisions before it are the same."""

    index: int
    one: Decided | None
    other: Decided | None


def canonical(commits: Iterable[Stored]) -> Iterator[Decided]:
    """Every decision, in order."""
    decisions: list[Decided] = []
    after = 0

    def decided(stored: Stored) -> None:
        commit = stored.commit
        if commit.kind == "decision":
            decisions.extend(Decided(commit.stage, after, commit.at, lasting(event)) for event in commit.events)

    cell: InMemoryCell[AnySeat] = InMemoryCell({name: Seat(make()) for name, make in DECIDERS.items()}, decided)
    for stored in commits:
        commit = stored.commit
        foreign = [event for event in commit.events if not isinstance(event, LeaderStarted)]
        if commit.kind == "decision" or not foreign:
            continue
        cell.now, after = commit.at, stored.seq
        cell.append(commit.stage, "input", foreign)
        cell.settle()
        yield from decisions
        decisions.clear()


def lasting(event: Event) -> dict[str, Any]:
    """A decision without what differs from cluster to cluster."""
    fields: dict[str, Any] = _without(msgspec.to_builtins(event))
    return fields


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(part) for name, part in value.items() if name not in PASSING}
    return [_without(part) for part in value] if isinstance(value, list | tuple) else value


def difference(
    one: Iterable[Stored], other: Iterable[Stored], *, but: Collection[str] = ()
) -> tuple[FirstDifference | None, int]:
    """The first decision that differs, and the number of equal decisions before (or in all).

    ``but``: types of decisions that are not compared.
    """
    index = 0
    sides = [(decided for decided in canonical(log) if decided.event["type"] not in but) for log in (one, other)]
    for left, right in zip_longest(*sides):
        if left is None or right is None or (left.stage, left.event) != (right.stage, right.event):
            return FirstDifference(index, left, right), index
        index += 1
    return None, index
