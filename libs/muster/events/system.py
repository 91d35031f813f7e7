"""Events about the log itself: birth, leaders, time, rules."""

from __future__ import annotations

from typing import Literal

from muster.events.base import Event
from muster.model.strategies import Strategy

PlacementMode = Literal["off", "native", "pack", "spread"]
"""How gangs are placed: not at all (quota alone decides), on as few and full nodes as possible, or evenly."""


class Genesis(Event, frozen=True, kw_only=True):
    """The first event of a generation of the log; all later events belong to ``log_id``."""

    log_id: str
    generation: int
    parent: str = ""
    """log_id of the generation before, empty for the first."""
    state: str = ""
    """Digest of the snapshots at the start of this generation; empty for a start from nothing."""
    by: str = ""
    """The user that rolled the log over."""
    reason: str = ""
    """Why, in their words."""
    own_time: bool = False
    """The writers' clocks need not be right (``muster up``): no time of a writer is compared with the broker's."""
    build: str = ""
    """The version of Muster that began this generation."""
    wire: int = 0
    """The number of the wire (muster.events.wire); 0 for a build that named none."""


class LeaderStarted(Event, frozen=True, kw_only=True):
    """A process took over a (stage, shard); the sequence of this event is the epoch."""

    process: str


class TimeReached(Event, frozen=True, kw_only=True):
    """Log time is at least ``at`` (ms since the epoch): a deadline of the stage has passed."""

    at: int


class LogNearlyFull(Event, frozen=True, kw_only=True):
    """The log has little room left: from here on only releases, effects and facts are added to it.

    Nothing is queued, proposed, reserved, adopted or admitted until a new generation of the log is in force.
    """

    percent: int


class RulesetActivated(Event, frozen=True, kw_only=True):
    """From this sequence on every stage decides by rule set ``number``."""

    number: int


class PlacementChosen(Event, frozen=True, kw_only=True):
    """The placement of gangs from this sequence on: the configuration of the gang admitter."""

    mode: PlacementMode
    hold_ms: int = 600_000
    """How long places are held for the pods of an admitted gang."""
    grow_ms: int = 0
    """The time (ms) that a gang without nodes keeps its quota, because a node pool may add nodes; 0: no time."""
    gpu_sharing: bool = True
    """Whether pods may share GPUs."""
    cpu: Strategy | None = None
    """The layout of pods without GPUs, where the layout differs from ``mode``."""
    moves: int = 0
    """The most running jobs that may move at once so that another job fits on the nodes; 0: none."""

    @property
    def strategy(self) -> Strategy | None:
        """The layout of gangs of jobs; None where Muster places no gangs of jobs."""
        return self.mode if self.mode in ("pack", "spread") else None


SystemEvent = Genesis | LeaderStarted | TimeReached | LogNearlyFull | RulesetActivated | PlacementChosen
