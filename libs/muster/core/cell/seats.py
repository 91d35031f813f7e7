"""The seat of a stage, and a cell in memory that is made of seats.

A seat: one stage at work. Every runner drives its stages through it: live, replay, simulation and tests alike.

It folds commits into the stage's state and says what the stage would append next. It appends nothing itself: where a
commit goes, and what may come between a decision and its storing, is the runner's affair.

A cell in memory: a log that only grows, and seats that fold each commit as soon as it is stored.

Simulations, the canonical schedule and tests run the stages in it. What is beside the stages (a cluster, an actuator,
chance) and what time it is are the caller's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from muster.core.stage import Folder, Stage, StageState, next_commit
from muster.events.base import Event
from muster.events.envelope import MAX_EVENTS, Commit, CommitKind, Stored
from muster.events.system import Genesis, LeaderStarted, TimeReached

# --- seat -------------------------------------------------------------------------------------------------------------


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


# --- inmemory ---------------------------------------------------------------------------------------------------------


T = TypeVar("T", bound=Seat[Any])

MAX_ROUNDS = 100_000
"""Rounds of decisions at one moment; more means that stages undo each other's work without end."""


class RestlessError(AssertionError):
    """The stages go on deciding though nothing changes."""


class InMemoryCell(Generic[T]):
    """``now``: the moment of the next commit, ms since ``origin``, which is ms since the epoch."""

    max_rounds = MAX_ROUNDS

    def __init__(
        self,
        seats: Mapping[str, T],
        sink: Callable[[Stored], Any],
        *,
        turns: Iterable[str] | None = None,
        origin: int = 0,
    ) -> None:
        """``seats``: {stage, or stage/shard: its seat}. ``sink`` gets every commit once it is folded.

        ``turns``: the seats that decide, all of them unless said.
        """
        self.seats: dict[str, T] = {**seats}
        self.seq = 0
        self.now = 0
        self.origin = origin
        self.epochs: dict[str, int] = {}
        """{seat: sequence at which its leader began}"""
        self._turns = list(self.seats if turns is None else turns)
        self._sink = sink

    def begin(self, log_id: str, process: str, leaders: Iterable[str]) -> None:
        """The first commits of a log: its genesis, and its leaders."""
        self.append("genesis", "input", [Genesis(log_id=log_id, generation=1)])
        for key in leaders:
            self.lead(key, process)

    def lead(self, key: str, process: str) -> None:
        """A new leader of a seat begins."""
        self.epochs[key] = 0
        self.epochs[key] = self.append(key, "input", [LeaderStarted(process=process)])

    def append(self, key: str, kind: CommitKind, events: Iterable[Event], in_seq: int | None = None) -> int:
        """Store one commit and let every seat fold it; returns its sequence.

        ``in_seq``: the last sequence it was decided on, where that is not the last of all.
        """
        stage, _, shard = key.partition("/")
        commit = Commit(
            commit_id=f"{key}-{self.seq + 1}",
            stage=stage,
            shard=shard or "0",
            kind=kind,
            at=self.origin + self.now,
            epoch=self.epochs.get(key, 0),
            in_seq=self.seq if in_seq is None else in_seq,
            events=tuple(events),  # type: ignore[arg-type]
        )
        self.seq += 1
        stored = Stored(self.seq, self.kept(commit))
        self.fold(stored)
        self._sink(stored)
        return stored.seq

    def report(self, key: str, events: list[Event]) -> None:
        """Facts or effects, in as many commits as they take."""
        for start in range(0, len(events), MAX_EVENTS):
            self.append(key, "input", events[start : start + MAX_EVENTS])

    def kept(self, commit: Commit) -> Commit:
        """What the log holds of a commit."""
        return commit

    def fold(self, stored: Stored) -> None:
        """Let every seat fold a commit."""
        for seat in self.seats.values():
            seat.fold(stored)

    def turns(self) -> list[str]:
        """The seats that decide, in the order of one round."""
        return self._turns

    def step(self, key: str) -> list[Event]:
        """Let one stage decide and commit; returns what it decided."""
        due = self.seats[key].decisions()
        if due:
            self.append(key, "decision", due)
        return due

    def settle(self, act: Callable[[], bool] = lambda: False) -> list[Event]:
        """Let the stages decide until nothing is due at this moment; returns everything decided, in order.

        ``act``: called after every round; says whether it did anything. Raises RestlessError.
        """
        decided: list[Event] = []
        for _ in range(self.max_rounds):
            found = [event for key in self.turns() for event in self.step(key)]
            if not act() and not found:
                return decided
            decided += found
        last = "; ".join(_shown(event) for event in decided[-6:])
        raise RestlessError(
            f"after {self.max_rounds} rounds at {self.now} ms the stages still decide: {last}; each of these makes the "
            "next one due: two rules contradict each other"
        )

    def next_deadline(self) -> tuple[int, str] | None:
        """(ms since ``origin``, seat): the first that may have more to say though nothing happens, and when."""
        times = ((self.seats[key].deadline(), key) for key in self._turns)
        return min(((at - self.origin, key) for at, key in times if at is not None), default=None)


def _shown(event: Event) -> str:
    """``WorkloadDequeued video/one held``."""
    said = (getattr(getattr(event, "ref", None), "key", ""), str(getattr(event, "reason", "")))
    return " ".join((type(event).__name__, *(each for each in said if each)))
