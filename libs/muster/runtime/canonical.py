"""The canonical schedule of a log: what the stages decide when each of them decides at once, after every input.

In a live system decisions race, and two logs of the same inputs need not hold the same commits. On the canonical
schedule they do: only what came from outside is taken from the log, and everything is decided again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.deciders import DECIDERS
from muster.core.seat import AnySeat, Seat
from muster.events.base import Event
from muster.events.envelope import Commit, CommitKind, Stored
from muster.events.system import LeaderStarted

PASSING = frozenset({"cause", "uid", "rv", "queued_at", "until", "generation", "supply"})
"""Fields that differ between two clusters, or two days, though the decision is the same."""

MAX_ROUNDS = 10_000


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
    seats: dict[str, AnySeat] = {name: Seat(make()) for name, make in DECIDERS.items()}
    seq = 0

    def fold(stage: str, kind: CommitKind, at: int, events: Iterable[Event]) -> None:
        nonlocal seq
        seq += 1
        commit = Commit(
            commit_id=f"canonical-{seq}",
            stage=stage,
            shard="0",
            kind=kind,
            at=at,
            in_seq=seq - 1,
            events=tuple(events),  # type: ignore[arg-type]
        )
        for seat in seats.values():
            seat.fold(Stored(seq, commit))

    for stored in commits:
        commit = stored.commit
        foreign = [event for event in commit.events if not isinstance(event, LeaderStarted)]
        if commit.kind == "decision" or not foreign:
            continue
        fold(commit.stage, "input", commit.at, foreign)
        for _ in range(MAX_ROUNDS):
            quiet = True
            for name, seat in seats.items():
                due = seat.decisions()
                if due:
                    quiet = False
                    fold(name, "decision", commit.at, due)
                    yield from (Decided(name, stored.seq, commit.at, lasting(event)) for event in due)
            if quiet:
                break
        else:
            raise AssertionError(f"after {MAX_ROUNDS} rounds at sequence {stored.seq} the stages still decide")


def lasting(event: Event) -> dict[str, Any]:
    """A decision without what differs from cluster to cluster."""
    found: dict[str, Any] = _without(msgspec.to_builtins(event))
    return found


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in PASSING}
    return [_without(each) for each in value] if isinstance(value, list | tuple) else value


def difference(
    one: Iterable[Stored], other: Iterable[Stored], *, but: Collection[str] = ()
) -> tuple[FirstDifference | None, int]:
    """The first decision that differs, and how many are the same before it (or in all).

    ``but``: types of decisions that are not compared.
    """
    index = 0
    sides = [(each for each in canonical(log) if each.event["type"] not in but) for log in (one, other)]
    for left, right in zip_longest(*sides):
        if left is None or right is None or (left.stage, left.event) != (right.stage, right.event):
            return FirstDifference(index, left, right), index
        index += 1
    return None, index
