"""Who was given quota lately: what a waiting job saw pass by."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from muster.core.explain import taken_meanwhile
from muster.core.queueing.book import Denial, Place
from muster.core.queueing.state import Job
from muster.events.decisions import QuotaReserved
from muster.model.keys import path_chain
from muster.model.resources import Vector, format_quantity

KEPT = 2_000
SHOWN = 3


class Taker(Struct, frozen=True):
    """One reservation."""

    seq: int
    job: str
    queue: str
    request: Vector
    place: Place | None
    """Where it stood in its queue."""


class Takers:
    """The newest reservations, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Taker] = deque(maxlen=KEPT)

    def note(self, event: QuotaReserved, seq: int, job: Job | None) -> None:
        """Somebody is given quota."""
        place = job.place if job is not None else None
        self._kept.append(Taker(seq, event.ref.key, event.queue, event.request, place))

    def since(self, seq: int, job: Job, denial: Denial) -> list[Taker]:
        """Who took what a job waits for after a sequence, the newest first."""
        found = []
        for taker in reversed(self._kept):
            if taker.seq <= seq:
                break
            other = taker.job != job.ref.key
            if other and taker.request.get(denial.resource) and denial.path in path_chain(taker.queue):
                found.append(taker)
        return found

    def told(self, seq: int, job: Job, denial: Denial) -> str:
        """The same as a sentence; empty when nobody did."""
        found = self.since(seq, job, denial)
        shown = [_one(each, job, denial) for each in found[:SHOWN]]
        return taken_meanwhile(denial.resource, shown, len(found)) if found else ""


def _one(taker: Taker, job: Job, denial: Denial) -> str:
    amount = format_quantity(taker.request[denial.resource], denial.resource)
    if taker.queue != job.queue:
        how = f"of queue {taker.queue}"
    elif taker.place is not None and taker.place < job.place:
        how = "ahead of it"
    else:
        how = "behind it, and small enough"
    return f"{taker.job} ({amount}, {how})"
