"""A bench for the deciders: one log in memory, every stage folding it, nothing else. Synchronous and deterministic."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from kit.proof import proven
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, InMemoryCell, Seat
from muster.core.stage import REQUIRED_KINDS
from muster.events.base import Event
from muster.events.envelope import Commit, Stored, decode_commit, encode_commit
from muster.events.facts import Synced
from muster.events.system import TimeReached
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state

E = TypeVar("E", bound=Event)


class Bench(InMemoryCell[AnySeat]):
    """``rng`` draws the order in which the stages take their turns; None keeps it fixed."""

    max_rounds = 400

    def __init__(self, rng: Random | None = None, *, check: bool = True) -> None:
        self.log: list[Stored] = []
        self._rng = rng
        self._check = check
        self.paused: frozenset[str] = frozenset()
        """Stages that decide nothing for now: they are slow."""
        super().__init__(
            {name: Seat(make()) for name, make in DECIDERS.items()}, lambda stored: self.log.append(stored)
        )
        self.now = 1_000_000
        self.begin("bench", "bench", self.seats)

    @property
    def states(self) -> dict[str, Any]:
        """Stage -> its state."""
        return {name: seat.state for name, seat in self.seats.items()}

    def copied(self) -> Bench:
        """Another one that goes on from here, its states as their snapshots give them back."""
        other = Bench(self._rng, check=self._check)
        other.log[:] = self.log
        other.seq, other.now, other.epochs = self.seq, self.now, {**self.epochs}
        for name, seat in self.seats.items():
            other.seats[name] = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
        return other

    def kept(self, commit: Commit) -> Commit:
        """Bytes go through the codec."""
        return decode_commit(encode_commit(commit))

    def fold(self, stored: Stored) -> None:
        super().fold(stored)
        self.check()

    def turns(self) -> list[str]:
        turns = [name for name in super().turns() if name not in self.paused]
        if self._rng is not None:
            self._rng.shuffle(turns)
        return turns

    def facts(self, *events: Event) -> int:
        """Facts of the watcher in one commit."""
        return self.append("watcher", "input", events)

    def synced(self) -> int:
        """Every required kind has been listed."""
        return self.facts(*(Synced(kind=kind) for kind in REQUIRED_KINDS))

    def late(self, name: str, decided: Sequence[Event], at: int) -> None:
        """What a stage decided at a sequence is stored now; one that has written since would not have decided it."""
        wrote = any(each.commit.stage == name and each.commit.kind == "decision" for each in self.log[at:])
        if decided and not wrote:
            self.append(name, "decision", decided, in_seq=at)

    def check(self) -> None:
        if self._check:
            for name, seat in self.seats.items():
                violations = seat.stage.check(seat.state)
                assert not violations, f"{name} at {self.seq}: {violations}"
            claims = self.states["quota_accountant"].ledger.claims.by_uid
            orders = self.states["gang_admitter"].orders
            alone = sorted(uid for uid, order in orders.items() if order.open and uid not in claims)
            assert not alone, f"at {self.seq} orders are open without a claim: {alone}"

    def happened(self, *kinds: type[E]) -> list[E]:
        """Every event of these kinds, in turn."""
        return [event for stored in self.log for event in stored.commit.events if isinstance(event, kinds)]

    def sound(self) -> None:
        """The stages' own checks hold; the log keeps every invariant, and replays."""
        self.check()
        proven(self.log)

    def pass_time(self, ms: int) -> list[Event]:
        """Let time pass: deadlines on the way are reached one by one, as the runners do it."""
        until = self.now + ms
        decided: list[Event] = []
        while (due := self.next_deadline()) is not None and due[0] <= until:
            self.now = max(self.now, due[0])
            self.append(due[1], "input", [TimeReached(at=self.now)])
            decided += self.settle()
        self.now = until
        return decided
