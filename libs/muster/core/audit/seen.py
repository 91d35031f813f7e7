"""The auditor's notes of jobs: the charge of each, and since when it waits for which request."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.core.queueing.book import Place
from muster.events.decisions import Candidate, QuotaReserved, WorkloadAdopted, WorkloadQueued
from muster.model.resources import Vector


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
    charge = ChargeSeen(event.queue, request, event.attempt, pods, event.preemptible, adopted=adopted, granted=request)
    charge.named = event.named
    return charge


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
