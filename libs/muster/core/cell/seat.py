"""A seat: one stage at work. Every runner drives its stages through it: live, replay, simulation and tests alike.

It folds commits into the stage's state and says what the stage would append next. It appends nothing itself: where a
commit goes, and what may come between a decision and its storing, is the runner's affair.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

from muster.core.stage import Folder, Stage, StageState, next_commit
from muster.events.base import Event
from muster.events.envelope import CommitKind, Stored
from muster.events.system import TimeReached

S = TypeVar("S", bound=StageState)


class Seat(Generic[S]):
    """``state``: where the stage goes on from; its initial state where there is none."""

    def __init__(self, stage: Stage[S], state: S | None = None) -> None:
        self.stage = stage
        self.state: S = state if state is not None else stage.initial()
        self._folder = Folder(stage)

    def fold(self, stored: Stored) -> Stored:
        """Judge one commit and fold it; returns it as it counts. Its sequence must be the one after the state's."""
        return self._folder.fold(self.state, stored)

    def hear(self, found: Stored) -> None:
        """Fold a commit as it counts: another judged it, and the docket of the state has gone on to it."""
        self._folder.hear(self.state, found)

    def hears(self, kinds: Collection[type[Event]]) -> bool:
        """Whether a commit with such events means more to the stage than its sequence and its time."""
        return self._folder.hears(kinds)

    def move_on(self, stored: Stored) -> None:
        """Pass a commit whose events mean nothing to the stage."""
        self._folder.move_on(self.state, stored)

    def decisions(self) -> list[Event]:
        """The decisions of the next commit; empty when none is due."""
        return next_commit(self.stage, self.state)

    def deadline(self) -> int | None:
        """Log time (ms) ahead at which the stage may decide more though nothing happens."""
        found = self.stage.next_deadline(self.state)
        return found if found is not None and found > self.state.now else None

    def commit_due(self, now: int) -> tuple[CommitKind, list[Event]] | None:
        """What to append at log time ``now`` (ms): decisions, else that a deadline was reached, else nothing."""
        decisions = self.decisions()
        if decisions:
            return "decision", decisions
        deadline = self.deadline()
        return ("input", [TimeReached(at=now)]) if deadline is not None and deadline <= now else None


AnySeat = Seat[Any]
