"""Stories as values: what the views tell, and what clients print.

Apart from the views, so that a client without a read model needs neither the model nor the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from muster.core.learned import Estimate
from muster.model.keys import Ref

if TYPE_CHECKING:
    from muster.told.codes.codetable import JobCode
    from muster.told.codes.happenings import Weight
    from muster.told.codes.values import GangCode
    from muster.told.views.measures import QueueShare

KEPT = 5_000
"""Entries of the story of a queue that are kept: the newest."""


class NarratedEvent(Struct, frozen=True):
    """A happening in words. ``ref`` is the job, None when the happening concerns the whole cell, or a gang."""

    at: int
    seq: int
    item: int
    ref: Ref | None
    word: str
    text: str
    weight: Weight
    what: str = ""
    """The type of the event, or the part of a fact that changed, for programs."""
    gang: str = ""
    """namespace/name of the gang of pods, or of the pod in no gang."""

    @property
    def subject(self) -> str:
        """namespace/name of the job or gang; empty for the whole cell."""
        return self.ref.key if self.ref is not None else self.gang


class ShownHolder(Struct, frozen=True):
    """A job with quota for which another job waits."""

    job: str
    amount: str
    text: str


class ShownWanting(Struct, frozen=True):
    """The limit for which a waiting job waits, in numbers of now: the quota, and the amount to be released there."""

    quota: str
    resource: str
    request: str
    limit: str
    used: str
    free: str
    missing: str
    holders: list[ShownHolder] = field(default_factory=list)
    """The largest first."""
    held_by: int = 0
    """How many jobs hold some of the resource in all."""


class Standing(Struct, frozen=True):
    """The status of a job. ``code`` is one word for programs, ``text`` one or more sentences for people."""

    code: JobCode
    text: str
    queue: str = ""
    position: int = 0
    length: int = 0
    charged: str = ""
    wanting: ShownWanting | None = None


class StoryEntry(Struct, frozen=True):
    """One entry of a story; ``times`` over 1 when the same entry came this many times in a row, last at ``last_at``."""

    entry: NarratedEvent
    times: int = 1
    last_at: int = 0


class Waits(Struct, frozen=True):
    """The waiting demand of a Ray cluster: ``pieces``, each with the fate of the piece in each worker group."""

    text: str
    pieces: list[tuple[str, list[str]]]


class JobStory(Struct, frozen=True):
    """The story of a job, as of ``log_id``, ``generation`` and ``seq``."""

    ref: Ref
    standing: Standing
    happenings: list[StoryEntry]
    log_id: str
    generation: int
    seq: int
    now: int
    earlier: int = 0
    """How many earlier jobs had the same name."""
    pauses: list[str] = field(default_factory=list)
    """The pauses that hold for the job's queue, and the settings of the job that cannot be read."""
    waits: list[Waits] = field(default_factory=list)
    """The waiting demand of the job's Ray clusters."""


class GangTale(Struct, frozen=True):
    """The story of a gang. ``name``: namespace/name of the gang, or of the pod for a pod in no gang."""

    name: str
    code: GangCode
    text: str
    pods: dict[str, str]
    """name -> the node of the pod, or the state of the pod"""
    entries: list[NarratedEvent]
    seq: int
    now: int


class Waiter(Struct, frozen=True):
    """A waiting job."""

    job: str
    position: int
    priority: int
    waited: int
    """ms"""
    reason: str


class Tally(Struct):
    """How often each thing happened between the two moments."""

    queued: int = 0
    admitted: int = 0
    finished: int = 0
    released: int = 0
    evicted: int = 0
    denied: int = 0
    longest_wait: int = 0
    """ms, of the admitted jobs"""
    longest_waiter: str = ""
    waits: int = 0
    """The sum of the waits of the admitted jobs, ms."""


class QueueTale(Struct, frozen=True):
    """The story, as far as the log was read."""

    queue: str
    usage: str
    guaranteed: str
    tally: Tally
    waiting: list[Waiter]
    length: int
    entries: list[NarratedEvent]
    left_out: int
    log_id: str
    generation: int
    seq: int
    now: int
    next_start: Estimate
    pauses: list[str] = field(default_factory=list)


class NamedTale(Struct, frozen=True):
    """A job, with its gang of pods; or a gang; or the share of a queue. ``pod``: the text about the pod ``named``."""

    story: JobStory | None = None
    gang: GangTale | None = None
    share: QueueShare | None = None
    named: str = ""
    pod: str = ""
