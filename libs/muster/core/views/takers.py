"""Which jobs were given quota lately: what a waiting job saw pass by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from muster.core.codes.happenings import Taker
from muster.core.queueing.queues import Job
from muster.core.quota.demand import chain_of
from muster.core.wording import explain
from muster.model.demand import Shortfall
from muster.model.resources import format_quantity

SHOWN = 3


def since(kept: Sequence[Taker], seq: int, job: Job, refusal: Shortfall) -> list[Taker]:
    """The reservations after a sequence that took what a job waits for, the newest first. ``kept``: oldest first."""
    name, path, own = refusal.resource, refusal.path, job.ref.key
    later = kept[bisect_right(kept, seq, key=lambda taker: taker.seq) :]
    return [
        taker
        for taker in reversed(later)
        if taker.request.get(name) and path in chain_of(taker.queue) and taker.job != own
    ]


def told(kept: Sequence[Taker], seq: int, job: Job, refusal: Shortfall) -> str:
    """The same as a sentence; empty when there were none."""
    found = since(kept, seq, job, refusal)
    shown = [_one(each, job, refusal) for each in found[:SHOWN]]
    return explain.taken_meanwhile(refusal.resource, shown, len(found)) if found else ""


def _one(taker: Taker, job: Job, refusal: Shortfall) -> str:
    amount = format_quantity(taker.request[refusal.resource], refusal.resource)
    queue = taker.queue if taker.queue != job.queue else ""
    return explain.taker(taker.job, amount, queue, ahead=taker.place is not None and taker.place < job.place)
