"""The auditor's notes of jobs: the charge of each, and since when it waits for which request."""

from __future__ import annotations

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
