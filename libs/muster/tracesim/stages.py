"""The deciding stages on a log in memory, in virtual time: each commits in its turn, until nothing is due.

The log, the commits and the stages are the ones that run live; the cluster around them is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import InMemoryCell, Seat
from muster.core.docket import Docket, Judge
from muster.core.stage import Stage
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import Synced, SyncStarted
from muster.events.system import Genesis, LogNearlyFull, RulesetActivated, TimeReached
from muster.tracesim.facts import EPOCH_MS

WATCHER = "watcher"
ACTUATOR = "actuator"
FOR_EVER_MS = 100 * 366 * 24 * 3_600_000
MOVES = 16
"""How many jobs may be moved at once, as on a cluster."""
SHARED: frozenset[type[Event]] = frozenset({Genesis, LogNearlyFull, RulesetActivated, SyncStarted, Synced})
"""What every stage listens to."""

Sink = Callable[[Stored], None]


class _Stirred(Seat[Any]):
    """One stage; ``stirred`` when something it listens to came since it last had nothing to say."""

    def __init__(self, stage: Stage[Any]) -> None:
        super().__init__(stage)
        self.listens = frozenset(stage.arms()) | SHARED
        self.stirred = True
        self._first: int | None = None
        """The deadline, where nothing that the stage listens to has come since it was asked for."""
        self._known = False

    def take(self, stored: Stored, kinds: set[type[Event]]) -> None:
        """Fold a commit as it counts; ``kinds``: the types of its events. One that means nothing here only moves the
        state on; the stage is stirred where that is beyond its deadline.
        """
        if self.listens.isdisjoint(kinds):
            self.move_on(stored)
            if not self._known or self._first is None or self._first > self.state.now:
                return
        else:
            self.hear(stored)
        self.stirred, self._known = True, False

    def reaches(self, now: int) -> bool:
        """Whether its deadline is reached by log time ``now`` (ms). A known one lies ahead of the state."""
        if now <= self.state.now:
            return False
        deadline = self.deadline()
        return deadline is not None and deadline <= now

    def deadline(self) -> int | None:
        """It is another one only by an event, or once it is reached."""
        if not self._known or (self._first is not None and self._first <= self.state.now):
            self._first, self._known = super().deadline(), True
        return self._first


class Stages(InMemoryCell[_Stirred]):
    """Every stage that decides, and the actuator; ``now`` is ms since the beginning, ``sink`` gets every commit."""

    def __init__(self, sink: Sink, log_id: str) -> None:
        seats = {name: _Stirred(make()) for name, make in DECIDERS.items()}
        super().__init__({**seats, ACTUATOR: _Stirred(Actuator())}, sink, turns=seats, origin=EPOCH_MS)
        self._judge = Judge(Docket())
        for seat in self.seats.values():
            seat.state.docket = self._judge.docket
        self.begin(log_id, "simulation", (WATCHER, ACTUATOR, *seats))

    @property
    def orders(self) -> ActuatorState:
        """What the actuator has to carry out."""
        state: ActuatorState = self.seats[ACTUATOR].state
        return state

    def fold(self, stored: Stored) -> None:
        """A commit is judged once, for all seats."""
        heard = self._judge.hear(stored)
        kinds: set[type[Event]] = {type(event) for event in heard.commit.events}
        for seat in self.seats.values():
            seat.take(heard, kinds)

    def step(self, key: str) -> list[Event]:
        """Let one stage decide if something stirred it; it is stirred by a deadline that is reached, too."""
        seat, now = self.seats[key], self.origin + self.now
        if seat.reaches(now):
            self.append(key, "input", [TimeReached(at=now)])
            seat.stirred = True
        if not seat.stirred:
            return []
        seat.stirred = False
        due = super().step(key)
        seat.stirred = bool(due)
        return due
