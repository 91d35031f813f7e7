"""A bench for the deciders: one log in memory, every stage folding it, nothing else. Synchronous and deterministic."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from muster.core.deciders import DECIDERS
from muster.core.seat import AnySeat, Seat
from muster.core.stage import REQUIRED_KINDS
from muster.events.base import Event
from muster.events.envelope import Commit, CommitKind, Stored, decode_commit, encode_commit
from muster.events.facts import Synced
from muster.events.system import Genesis, LeaderStarted, TimeReached

ROUNDS = 400
"""Decision commits after one input before the stages count as restless."""


class Restless(AssertionError):
    """The stages go on deciding though nothing changes."""


class Bench:
    """``order``: in which order the stages take their turns (a seeded Random shuffles them; None keeps it fixed)."""

    def __init__(self, rng: Random | None = None, *, check: bool = True) -> None:
        self.seats: dict[str, AnySeat] = {name: Seat(make()) for name, make in DECIDERS.items()}
        self.log: list[Stored] = []
        self.now = 1_000_000
        self._rng = rng
        self._check = check
        self._count = 0
        self.epochs: dict[str, int] = {}
        self.append("genesis", "input", [Genesis(log_id="bench", generation=1)])
        for name in self.seats:
            self.epochs[name] = self.append(name, "input", [LeaderStarted(process="bench")])

    @property
    def states(self) -> dict[str, Any]:
        """Stage -> its state."""
        return {name: seat.state for name, seat in self.seats.items()}

    def append(self, stage: str, kind: CommitKind, events: Iterable[Event], in_seq: int | None = None) -> int:
        """Store a commit and let every stage fold it; returns its sequence. Bytes go through the codec."""
        self._count += 1
        commit = Commit(
            commit_id=f"bench-{self._count}",
            stage=stage,
            shard="0",
            kind=kind,
            at=self.now,
            epoch=self.epochs.get(stage, 0),
            in_seq=len(self.log) if in_seq is None else in_seq,
            events=tuple(events),
        )
        stored = Stored(len(self.log) + 1, decode_commit(encode_commit(commit)))
        self.log.append(stored)
        for seat in self.seats.values():
            seat.fold(stored)
        self.check()
        return stored.seq

    def facts(self, *events: Event) -> int:
        """Facts of the watcher in one commit."""
        return self.append("watcher", "input", events)

    def synced(self) -> int:
        """Every required kind has been listed."""
        return self.facts(*(Synced(kind=kind) for kind in REQUIRED_KINDS))

    def check(self) -> None:
        if self._check:
            for name, seat in self.seats.items():
                violations = seat.stage.check(seat.state)
                assert not violations, f"{name} at {len(self.log)}: {violations}"

    def step(self, name: str) -> list[Event]:
        """Let one stage decide and commit; returns what it decided."""
        due = self.seats[name].decisions()
        if due:
            self.append(name, "decision", due)
        return due

    def settle(self) -> list[Event]:
        """Let all stages decide until nothing is due; returns everything decided, in order."""
        decided: list[Event] = []
        for _ in range(ROUNDS):
            turn = list(self.seats)
            if self._rng is not None:
                self._rng.shuffle(turn)
            found = [event for name in turn for event in self.step(name)]
            if not found:
                return decided
            decided += found
        raise Restless(f"after {ROUNDS} rounds the stages still decide: {[type(e).__name__ for e in decided[-6:]]}")

    def pass_time(self, ms: int) -> list[Event]:
        """Let time pass: deadlines on the way are reached one by one, as the runners do it."""
        until = self.now + ms
        decided: list[Event] = []
        while True:
            deadlines = {
                name: at for name, seat in self.seats.items() if (at := seat.deadline()) is not None and at <= until
            }
            if not deadlines:
                break
            name = min(deadlines, key=lambda each: (deadlines[each], each))
            self.now = max(self.now, deadlines[name])
            self.append(name, "input", [TimeReached(at=self.now)])
            decided += self.settle()
        self.now = until
        return decided
