"""The auditor's notes of jobs: the charge of each, since when it waits for which request, and how a cluster grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from muster.core.queueing.book import Place
from muster.events.decisions import Candidate, QuotaReserved, WorkloadAdopted, WorkloadQueued
from muster.events.elastic import GrowthOption, GrowthRequested
from muster.model.elastic import Counts
from muster.model.keys import root_of
from muster.model.quota import JOBS, MACHINES
from muster.model.resources import Vector

Finding = tuple[str, bool, str]
"""Invariant, whether it holds, what is wrong if it does not."""


class ChargeSeen(Struct):
    queue: str
    request: Vector
    attempt: int
    pods: int = 0
    preemptible: bool = True
    admitted: bool = False
    adopted: bool = False
    granted: Vector = field(default_factory=dict)
    named: str = ""
    """The quota or queue its label named when it was charged."""
    part: bool = False
    """It is a part that a cluster releases while it goes on: it stays a job."""

    @property
    def amounts(self) -> Vector:
        """The request, with one job and its machines."""
        found = counted(self.request, self.pods)
        return {name: amount for name, amount in found.items() if name != JOBS} if self.part else found


def counted(request: Mapping[str, int], pods: int) -> Vector:
    """The request, with one job and its machines."""
    return {**request, JOBS: 1000, **({MACHINES: pods * 1000} if pods else {})}


Asks = tuple[tuple[tuple[str, int], ...], int, bool, str, int]
"""A request: amounts, pods, whether it is preemptible, its digest; and the run time (ms) that it declares, for a job
that declares one may pass claims for age that others may not.
"""


def asks_of(event: WorkloadQueued | Candidate) -> Asks:
    return tuple(sorted(event.request.items())), event.pods, event.preemptible, event.basis, event.run_ms


def charge_of(event: QuotaReserved | WorkloadAdopted, *, adopted: bool = False) -> ChargeSeen:
    request, pods = event.request, event.pods
    queue, attempt, gives = event.queue, event.attempt, event.preemptible
    return ChargeSeen(queue, request, attempt, pods, gives, adopted=adopted, granted=request, named=event.named)


FREELY_MS = 7 * 24 * 3_600_000
"""How long a job waits at the most that borrows only what is not kept for owners."""


class WaitingSeen(Struct):
    place: Place
    attempt: int
    queue: str
    asks: Asks
    seq: int
    """Since when it could be proposed: queued, denied or no longer charged."""
    proposed: bool = False
    rests: bool = False
    """An older attempt of it has failed: others may be tried before it until it is tried again."""
    expected_ms: int = 0
    freely_ms: int = 0
    """How long one is expected to run at the most that borrows all that is free, where its tree keeps it."""
    queued_at: int = 0
    """Log time (ms)"""

    def lines(self, at: int, soon: Mapping[str, int]) -> list[tuple[Any, ...]]:
        """The lines in which it waits: those of equal requests, and of these the ones that borrow whatever is free.
        ``soon``: root -> how long one may be expected to run by now that does.
        """
        line = (self.queue, *self.asks)
        ends_soon = 0 < self.expected_ms <= max(self.freely_ms, soon.get(root_of(self.queue), 0))
        freely = self.freely_ms and (ends_soon or at >= self.queued_at + FREELY_MS)
        return [line, (*line, "freely")] if freely else [line]


def waiting_of(event: WorkloadQueued, seq: int) -> WaitingSeen:
    place = Place(-event.priority, event.rank or event.queued_at, event.ref.key, event.ref.uid)
    times = event.expected_ms, event.freely_ms, event.queued_at
    return WaitingSeen(place, event.attempt, event.queue, asks_of(event), seq, False, False, *times)


def asks_for(asked: GrowthRequested, growth: GrowthOption, attempt: int) -> bool:
    """Whether a cluster still asks for such replicas, at least once."""
    vectors = [each for unit in asked.units for each in (unit.groups, *(other.groups for other in unit.otherwise))]
    return asked.attempt == attempt and growth.groups in vectors


def less(growth: GrowthOption, added: Counts) -> GrowthOption | None:
    """What is left to hold once these replicas are granted; None for nothing."""
    times = growth.times - min(added.get(name, 0) // count for name, count in growth.groups.items())
    return GrowthOption(growth.groups, times) if times > 0 else None
