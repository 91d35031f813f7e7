"""The deciding stages on a log in memory, in virtual time: who commits what, until nothing is due.

The log, the commits and the stages are the ones that run live; the cluster around them is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.deciders import DECIDERS
from muster.core.seat import Seat
from muster.core.stage import Stage
from muster.events.base import Event
from muster.events.envelope import MAX_EVENTS, CommitKind, Stored
from muster.events.facts import Synced, SyncStarted
from muster.events.system import Genesis, LeaderStarted, LogNearlyFull, RulesetActivated, TimeReached
from muster.simulation.facts import EPOCH_MS, numbered

WATCHER = "watcher"
ACTUATOR = "actuator"
FOR_EVER_MS = 100 * 366 * 24 * 3_600_000
MAX_ROUNDS = 100_000
"""Of decisions at one moment; more means that stages undo each other's work without end."""

SHARED: frozenset[type[Event]] = frozenset({Genesis, LogNearlyFull, RulesetActivated, SyncStarted, Synced})
"""What every stage listens to."""

Sink = Callable[[Stored], None]


class _Stirred(Seat[Any]):
    """One stage; ``stirred`` when something it listens to came since it last had nothing to say."""

    def __init__(self, stage: Stage[Any]) -> None:
        super().__init__(stage)
        self.hears = frozenset(stage.arms()) | SHARED
        self.stirred = True

    def take(self, stored: Stored, kinds: set[type[Event]]) -> None:
        """Fold a commit; ``kinds``: the types of its events. One that means nothing here only moves the state on."""
        if self.hears.isdisjoint(kinds):
            state = self.state
            state.seq = stored.seq
            state.now = max(state.now, stored.commit.at)
            return
        self.fold(stored)
        self.stirred = True


class Stages:
    """Every stage that decides, and the actuator; ``now`` is ms since the beginning, ``sink`` gets every commit."""

    def __init__(self, sink: Sink, log_id: str) -> None:
        self.now = 0
        self._sink = sink
        self._seq = 0
        self._deciders = {name: _Stirred(make()) for name, make in DECIDERS.items()}
        self._actuator = _Stirred(Actuator())
        self._seats = [*self._deciders.values(), self._actuator]
        self._epochs: dict[str, int] = {}
        self.append("genesis", "input", [Genesis(log_id=log_id, generation=1)])
        for name in (WATCHER, ACTUATOR, *self._deciders):
            self._epochs[name] = self.append(name, "input", [LeaderStarted(process="simulation")])

    @property
    def orders(self) -> ActuatorState:
        """What the actuator has to carry out."""
        state: ActuatorState = self._actuator.state
        return state

    def append(self, stage: str, kind: CommitKind, events: list[Event]) -> int:
        """Store one commit and let every stage fold it; returns its sequence."""
        self._seq += 1
        stored = numbered(self._seq, stage, kind, self.now, self._epochs.get(stage, 0), events)
        kinds: set[type[Event]] = {type(event) for event in events}
        for seat in self._seats:
            seat.take(stored, kinds)
        self._sink(stored)
        return self._seq

    def report(self, stage: str, events: list[Event]) -> None:
        """Facts or effects, in as many commits as they take."""
        for start in range(0, len(events), MAX_EVENTS):
            self.append(stage, "input", events[start : start + MAX_EVENTS])

    def settle(self, act: Callable[[], bool]) -> None:
        """Let the stages decide until nothing is due at this moment.

        ``act`` carries out what the actuator has outstanding, and says whether anything was.
        """
        for _ in range(MAX_ROUNDS):
            decided = [name for name, seat in self._deciders.items() if self._decide(name, seat)]
            if not act() and not decided:
                return
        raise AssertionError(f"after {MAX_ROUNDS} rounds at {self.now} ms the stages still decide")

    def _decide(self, name: str, seat: _Stirred) -> bool:
        deadline = seat.deadline()
        now = EPOCH_MS + self.now
        if deadline is not None and deadline <= now:
            self.append(name, "input", [TimeReached(at=now)])
            seat.stirred = True
        if not seat.stirred:
            return False
        seat.stirred = False
        due = seat.decisions()
        if not due:
            return False
        self.append(name, "decision", due)
        seat.stirred = True
        return True

    def next_deadline(self) -> int | None:
        """When a stage may have more to say though nothing happens, ms since the beginning."""
        found = (seat.deadline() for seat in self._deciders.values())
        return min((deadline - EPOCH_MS for deadline in found if deadline is not None), default=None)
