"""Keepers of a log, and the notes of what runs beside a test."""

from typing import Any

from kit.doubles.log import MemoryLeases
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.snapshots import JetStreamSnapshots
from muster.runtime.clock import SystemClock
from muster.runtime.runners.hooks import Level, NoHooks
from muster.runtime.runners.keeping import LogKeeper


class Notes(NoHooks):
    """Collects the notes of a runner."""

    def __init__(self) -> None:
        self.all: list[tuple[Level, str, dict[str, object]]] = []

    def note(self, level: Level, event: str, **values: object) -> None:
        self.all.append((level, event, values))

    @property
    def noted(self) -> list[str]:
        """The events, in order."""
        return [event for _, event, _ in self.all]

    @property
    def levels(self) -> list[tuple[Level, str]]:
        """The same, each with its level."""
        return [(level, event) for level, event, _ in self.all]

    def of(self, event: str) -> list[dict[str, object]]:
        """The values of each note of one event."""
        return [values for _, name, values in self.all if name == event]


def keeper_of(js: JetStream, log: JetStreamLog, **settings: Any) -> LogKeeper:
    """A keeper with a lease of its own. ``settings``: those of LogKeeper that matter to the test."""
    usual: dict[str, Any] = {
        "lease": MemoryLeases().lease("keeper", "0", "k"),
        "snapshots": JetStreamSnapshots(js, log.identity, warn=lambda _: None),
        "clock": SystemClock(),
        "hooks": NoHooks(),
        "percent": 80,
    }
    generations = JetStreamGenerations(js, log.identity.cell)
    return LogKeeper(js, generations, log.identity.log_id, **(usual | settings))
