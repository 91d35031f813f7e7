"""The seat of a stage, and a cell in memory made of seats.

A seat is one stage at work. Every runner drives its stages through seats: live, replay, simulation and tests alike. A
seat folds commits into the stage's state and returns the stage's next commit. A seat appends nothing: the runner
decides where a commit goes, and which commits may come between a decision and its storing.

A cell in memory is a growing log, and seats that fold each commit as soon as the commit is stored. Simulations, the
canonical schedule and tests run the stages in such a cell. The caller supplies the time and the world beside the stages
(a cluster, an actuator, chance).
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
    """``state``: the starting state of the stage; the initial state by default."""

    def __init__(self, stage: Stage[S], state: S | None = None) -> None:
        self.stage = stage
        self.state: S = state if state is not None else stage.initial()
        self._folder = Folder(stage)

    def fold(self, stored: Stored) -> Stored:
        """Judge one commit and fold the commit; returns the commit as counted.

        The sequence of the commit must follow the state's sequence.
        """
        return self._folder.fold(self.state, stored)

    def hear(self, stored: Stored) -> None:
        """Fold a counted commit: another reader judged the commit, and the docket of the state includes the commit."""
        self._folder.hear(self.state, stored)

    def hears(self, kinds: Collection[type[Event]]) -> bool:
        """Whether a commit with such events changes more in the stage than sequence and time."""
        return self._folder.hears(kinds)

    def move_on(self, stored: Stored) -> None:
        """Pass a commit whose events mean nothing to the stage."""
        self._folder.move_on(self.state, stored)

    def decisions(self) -> list[Event]:
        """The decisions of the next commit; empty when none is due."""
        return next_commit(self.stage, self.state)

    def deadline(self) -> int | None:
        """Next log time (ms) at which the stage may decide more without new events."""
        deadline = self.stage.next_deadline(self.state)
        return deadline if deadline is not None and deadline > self.state.now else None

    def commit_due(self, now: int) -> tuple[CommitKind, list[Event]] | None:
        """The commit to append at log time ``now`` (ms): decisions, else a reached deadline, else nothing."""
        decisions = self.decisions()
        if decisions:
            return "decision", decisions
        deadline = self.deadline()
        return ("input", [TimeReached(at=now)]) if deadline is not None and deadline <= now else None


AnySeat = Seat[Any]


# --- inmemory ---------------------------------------------------------------------------------------------------------


T = TypeVar("T", bound=Seat[Any])

MAX_ROUNDS = 100_000
"""Rounds of decisions at one moment; more rounds mean that stages undo each other's work without end."""


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
        """``seats``: {stage, or stage/shard: seat}. ``sink`` gets every commit after the fold.

        ``turns``: the deciding seats, by default all seats.
        """
        self.seats: dict[str, T] = {**seats}
        self.seq = 0
        self.now = 0
        self.origin = origin
        self.epochs: dict[str, int] = {}
        """{seat: sequence of its leader's start}"""
        self._turns = list(self.seats if turns is None else turns)
        self._sink = sink

    def begin(self, log_id: str, process: str, leaders: Iterable[str]) -> None:
        """The first commits of a log: the genesis, and the leaders."""
        self.append("genesis", "input", [Genesis(log_id=log_id, generation=1)])
        for key in leaders:
            self.lead(key, process)

    def lead(self, key: str, process: str) -> None:
        """A new leader of a seat begins."""
        self.epochs[key] = 0
        self.epochs[key] = self.append(key, "input", [LeaderStarted(process=process)])

    def append(self, key: str, kind: CommitKind, events: Iterable[Event], in_seq: int | None = None) -> int:
        """Store one commit and let every seat fold the commit; returns the sequence.

        ``in_seq``: the last sequence known to the decider, where older than the end of the log.
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
        """Append facts or effects, in as many commits as needed."""
        for start in range(0, len(events), MAX_EVENTS):
            self.append(key, "input", events[start : start + MAX_EVENTS])

    def kept(self, commit: Commit) -> Commit:
        """The commit as the log keeps the commit."""
        return commit

    def fold(self, stored: Stored) -> None:
        """Let every seat fold a commit."""
        for seat in self.seats.values():
            seat.fold(stored)

    def turns(self) -> list[str]:
        """The deciding seats, in the order of one round."""
        return self._turns

    def step(self, key: str) -> list[Event]:
        """Let one stage decide and commit; returns the decisions."""
        due = self.seats[key].decisions()
        if due:
            self.append(key, "decision", due)
        return due

    def settle(self, act: Callable[[], bool] = lambda: False) -> list[Event]:
        """Let the stages decide until nothing is due at this moment; returns all decisions, in order.

        ``act``: called after every round; returns whether anything was done. Raises RestlessError.
        """
        decided: list[Event] = []
        for _ in range(self.max_rounds):
            decisions = [event for key in self.turns() for event in self.step(key)]
            if not act() and not decisions:
                return decided
            decided += decisions
        last = "; ".join(_shown(event) for event in decided[-6:])
        raise RestlessError(
            f"after {self.max_rounds} rounds at {self.now} ms the stages still decide: {last}; each of these makes the "
            "next one due: two rules contradict each other"
        )

    def next_deadline(self) -> tuple[int, str] | None:
        """(ms since ``origin``, seat) of the first seat with a deadline, without new events."""
        times = ((self.seats[key].deadline(), key) for key in self._turns)
        return min(((at - self.origin, key) for at, key in times if at is not None), default=None)


def _shown(event: Event) -> str:
    """``WorkloadDequeued video/one held``."""
    words = (getattr(getattr(event, "ref", None), "key", ""), str(getattr(event, "reason", "")))
    return " ".join((type(event).__name__, *(word for word in words if word)))
