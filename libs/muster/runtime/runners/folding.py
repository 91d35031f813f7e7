"""A judge for all stages of a process: each commit is judged once, and folded by the stages concerned.

The joined states are always at the same commit, and share a docket: the judge's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from muster.core.docket import Judge
from muster.core.stage import StageState
from muster.events.base import Event
from muster.events.envelope import Stored

ROUTES = 4_096
"""Kinds of commits for which the members that they concern are remembered."""


class Member(Protocol):
    """What folds a stage."""

    def concerned(self, stage: str, shard: str, kinds: frozenset[type[Event]]) -> bool:
        """Whether a commit with such events must be folded."""
        ...

    def take(self, stored: Stored, before: int) -> None:
        """Fold a commit as it counts; ``before``: log time (ms) of the commits before this one. Raises nothing."""
        ...

    def turn(self, seq: int, now: int) -> None:
        """All is read and folded up to there, at log time ``now`` (ms). Raises nothing."""
        ...

    def reached(self) -> None:
        """The end that the log had when the process began to read has been folded."""
        ...


class Folding:
    """The states of a process, and the judge that they share."""

    def __init__(self) -> None:
        self._judge: Judge | None = None
        self._now = 0
        self._members: dict[Member, None] = {}
        self._routes: dict[tuple[str, str, frozenset[type[Event]]], tuple[Member, ...]] = {}

    def join(self, member: Member, state: StageState) -> None:
        """A state at the commit that was read last: later commits are judged and folded for this state."""
        if self._judge is None:
            self._judge, self._now = Judge(state.docket, state.log_id, state.generation), state.now
        state.docket = self._judge.docket
        self._members[member] = None
        self._routes.clear()

    def leave(self, member: Member) -> None:
        """It folds no more."""
        self._members.pop(member, None)
        self._routes.clear()

    def reached(self) -> None:
        """The end that the log had when the process began to read has been folded."""
        for member in self._members:
            member.reached()

    def fold(self, batch: Sequence[Stored]) -> None:
        """Judge the commit, and fold it in the stages concerned. Raises UnknownEventError."""
        if self._judge is None:
            return  # No state has joined: those that do begin later.
        seq = 0
        try:
            for stored in batch:
                heard = self._judge.hear(stored)
                seq, before = heard.seq, self._now
                self._now = max(before, heard.commit.at)
                for member in self._concerned(heard):
                    member.take(heard, before)
        finally:
            for member in tuple(self._members) if seq else ():
                member.turn(seq, self._now)

    def _concerned(self, stored: Stored) -> tuple[Member, ...]:
        if stored.void is not None:
            return tuple(self._members)
        commit = stored.commit
        route = commit.stage, commit.shard, frozenset(map(type, commit.events))
        known = self._routes.get(route)
        if known is None:
            if len(self._routes) >= ROUTES:
                self._routes.clear()
            known = self._routes[route] = tuple(member for member in self._members if member.concerned(*route))
        return known
