"""What runners tell telemetry. Everything here may be ignored: nothing is decided from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from muster.core.stage import Violation
from muster.events.base import Cause, Event
from muster.events.envelope import Commit, Stored
from muster.events.public import PublicEvent
from muster.model.keys import Ref

Role = Literal["starting", "following", "standby", "leading"]
Level = Literal["debug", "info", "warning", "error"]


class Hooks(Protocol):
    """Observers of one runner."""

    def folded(self, batch: Sequence[Stored]) -> None:
        """Commits were folded that mean something to the stage."""
        ...

    def voided(self, stored: Stored) -> None:
        """A commit is void, and was passed over: ``stored.void`` says why."""
        ...

    def appended(self, commit: Commit, seq: int, took_s: float) -> None:
        """A commit of this runner is in the log; ``took_s`` from its making to the acknowledgement."""
        ...

    def role(self, role: Role, epoch: int) -> None:
        """What this runner is now."""
        ...

    def violated(self, violations: Sequence[Violation]) -> None:
        """An invariant is broken: an operator must look."""
        ...

    def unprovoked(self) -> None:
        """The stage decides once more, though nothing has happened in the cluster since the last few times."""
        ...

    def snapshot(self, seq: int, size: int) -> None:
        """A snapshot was kept: position and bytes."""
        ...

    def note(self, level: Level, event: str, **values: object) -> None:
        """Anything else worth a log line; ``event`` is a constant snake_case name."""
        ...

    def published(self, event: PublicEvent) -> None:
        """A public event is on its way."""
        ...

    def trace_of(self, events: Sequence[Event]) -> dict[str, str]:
        """Trace headers for a commit about to be appended."""
        ...

    def wrote(self, ref: Ref, cause: Cause, verb: str, times: tuple[int, int], trouble: str) -> None:
        """A request to the API server carried a decision out, or not (``trouble``); ``times``: begin and end, ns."""
        ...


class NoHooks:
    """Hooks without an observer."""

    def folded(self, batch: Sequence[Stored]) -> None: ...
    def voided(self, stored: Stored) -> None: ...
    def appended(self, commit: Commit, seq: int, took_s: float) -> None: ...
    def role(self, role: Role, epoch: int) -> None: ...
    def violated(self, violations: Sequence[Violation]) -> None: ...
    def unprovoked(self) -> None: ...
    def snapshot(self, seq: int, size: int) -> None: ...
    def note(self, level: Level, event: str, **values: object) -> None: ...
    def published(self, event: PublicEvent) -> None: ...
    def trace_of(self, events: Sequence[Event]) -> dict[str, str]:
        return {}

    def wrote(self, ref: Ref, cause: Cause, verb: str, times: tuple[int, int], trouble: str) -> None: ...
