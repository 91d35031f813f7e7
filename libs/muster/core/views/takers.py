"""Which jobs were given quota lately: what a waiting job saw pass by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice

from muster.core.codes.happenings import Taker
from muster.core.queueing.queues import Job
from muster.core.quota.demand import chain_of
from muster.core.wording import explain
from muster.model.demand import Shortfall
from muster.model.resources import format_quantity

SHOWN = 3


class Takers:
    """The reservations that are remembered, for as many waiting jobs as are asked about: they are looked through once
    for each limit that refuses some.
    """

    def __init__(self, kept: Iterable[Taker]) -> None:
        """``kept``: oldest first."""
        self._kept = kept
        self._taken: dict[tuple[str, str], _Taken] = {}
        """(path of a queue, resource) -> those that took of it there"""

    def told(self, seq: int, job: Job, refusal: Shortfall) -> str:
        """Those after a sequence that took what a job waits for, as a sentence; empty when there were none."""
        where = refusal.path, refusal.resource
        if where not in self._taken:
            self._taken[where] = _Taken(self._kept, *where)
        taken, own = self._taken[where], job.ref.key
        count = taken.count(seq, own)
        newest = (each for each in reversed(taken.all) if each.job != own)
        shown = [_one(each, job, refusal) for each in islice(newest, min(count, SHOWN))]
        return explain.taken_meanwhile(refusal.resource, shown, count) if count else ""


class _Taken:
    """Those that took a resource at or below a queue, oldest first."""

    def __init__(self, kept: Iterable[Taker], path: str, resource: str) -> None:
        self.all = [each for each in kept if each.request.get(resource) and path in chain_of(each.queue)]
        self._seqs = [each.seq for each in self.all]
        self._own: dict[str, list[int]] = {}
        """job -> the sequences at which it took some itself"""
        for each in self.all:
            self._own.setdefault(each.job, []).append(each.seq)

    def count(self, seq: int, own: str) -> int:
        """How many there were after a sequence, of other jobs than ``own``."""
        return _after(self._seqs, seq) - _after(self._own.get(own, ()), seq)


def _after(seqs: Sequence[int], seq: int) -> int:
    return len(seqs) - bisect_right(seqs, seq)


def _one(taker: Taker, job: Job, refusal: Shortfall) -> str:
    amount = format_quantity(taker.request[refusal.resource], refusal.resource)
    queue = taker.queue if taker.queue != job.queue else ""
    return explain.taker(taker.job, amount, queue, ahead=taker.place is not None and taker.place < job.place)
