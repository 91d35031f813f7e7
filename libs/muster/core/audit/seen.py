"""The auditor's notes of jobs: the charge of each, since when it waits for which request, and how a cluster grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from muster.core.queueing.book import Place
from muster.events.decisions import Candidate, QuotaReserved, WorkloadAdopted, WorkloadQueued
from muster.events.elastic import GrowthOption, GrowthRequested
from muster.model.elastic import Counts
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


WAITS_MS = 7 * 24 * 3_600_000
"""A job that has waited so long borrows whatever is free."""

Asks = tuple[tuple[tuple[str, int], ...], int, bool, int]
"""A request: amounts, pods, whether it is preemptible; and the run time (ms) that it declares, for a job that declares
one may pass claims for age that others may not.
"""


def asks_of(event: WorkloadQueued | Candidate) -> Asks:
    return tuple(sorted(event.request.items())), event.pods, event.preemptible, event.run_ms


def charge_of(event: QuotaReserved | WorkloadAdopted, *, adopted: bool = False) -> ChargeSeen:
    request, pods = event.request, event.pods
    queue, attempt, gives = event.queue, event.attempt, event.preemptible
    return ChargeSeen(queue, request, attempt, pods, gives, adopted=adopted, granted=request, named=event.named)


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
    freely_from: int | None = None
    """Log time (ms) from which it borrows whatever is free where its tree keeps that from others; None for never."""

    def lines(self, at: int) -> list[tuple[Any, ...]]:
        """The lines in which it waits: those of equal requests, and of these the ones that borrow whatever is free."""
        line = (self.queue, *self.asks)
        return [line, (*line, "freely")] if self.freely_from is not None and at >= self.freely_from else [line]


def waiting_of(event: WorkloadQueued, seq: int, freely_ms: int) -> WaitingSeen:
    """``freely_ms``: how long a job may be expected to run that borrows whatever is free; 0: no job is kept from it."""
    place = Place(-event.priority, event.rank or event.queued_at, event.ref.key, event.ref.uid)
    found = WaitingSeen(place, event.attempt, event.queue, asks_of(event), seq)
    if freely_ms:
        found.freely_from = 0 if 0 < event.expected_ms <= freely_ms else event.queued_at + WAITS_MS
    return found


def asks_for(asked: GrowthRequested, growth: GrowthOption, attempt: int) -> bool:
    """Whether a cluster still asks for such replicas, at least once."""
    vectors = [each for unit in asked.units for each in (unit.groups, *(other.groups for other in unit.otherwise))]
    return asked.attempt == attempt and growth.groups in vectors


def less(growth: GrowthOption, added: Counts) -> GrowthOption | None:
    """What is left to hold once these replicas are granted; None for nothing."""
    times = growth.times - min(added.get(name, 0) // count for name, count in growth.groups.items())
    return GrowthOption(growth.groups, times) if times > 0 else None
