"""Learned from the log alone, in integers: run times of jobs, and the pace of queues.

Run times are streaming means per kind of job. A job is compared with the most similar ended runs: first of the same
namespace, queue, name stem and request, then without the namespace, then of the queue and request, then of the queue,
then of all. Before a run only the spec of the job is known. No other module knows run times: the order of borrowers
uses the means of all runs, promised starts use the newest longer runs.

Pace is measured by the times between one admission from a queue and the next while a job waited there. Other times are
left out, because an idle queue admits no job. The job at position p waits for p such times in a row; past rows show the
possible wait now. Pure, in integers (ms).
"""

from __future__ import annotations

import re
from math import isqrt
from typing import Literal

from msgspec import Struct, field

from muster.model.resources import Vector

# --- durations --------------------------------------------------------------------------------------------------------


ENOUGH_RUNS = 5
"""Fewest ended runs for a mean."""
ENOUGH_WAITS = 20
"""The fewest ended waits for a promise."""
KEPT_PERCENT = 90
"""How many of a hundred promises are to be kept."""
MAX_KINDS = 20_000
"""Remembered kinds of jobs: the kinds that ended last."""
REMEMBERED = 128
"""Runs of a kind at which the counts of its spans are halved: older ends count less and less."""
_TAIL = re.compile(r"[-_.]?[0-9a-f]*[0-9][0-9a-z]*$")


class RunTimes(Struct):
    """Run times of the ended runs of one kind. The mean covers all runs, the spans favour the newest."""

    count: int = 0
    total: int = 0
    """ms"""
    spans: dict[int, int] = field(default_factory=dict)
    """number of a span (see :func:`span_of`) -> how many took so long"""
    kept: int = 0
    """The sum of ``spans``."""

    def add(self, ms: int) -> None:
        self.count += 1
        self.total += ms
        number = span_of(ms)
        self.spans[number] = self.spans.get(number, 0) + 1
        self.kept += 1
        if self.kept >= REMEMBERED:
            self.spans = {number: times // 2 for number, times in self.spans.items() if times > 1}
            self.kept = sum(self.spans.values())

    def left(self, ran: int) -> int | None:
        """Remaining time of a run after ``ran`` ms, by the mean of the longer runs; None for too few longer runs.

        A job waits for the sum of the remaining times of other jobs, and the mean of a sum is the sum of the means. A
        median is far too low where a few jobs run for weeks.
        """
        begun = span_of(ran) if ran > 0 else -1
        longer = [(number, times) for number, times in self.spans.items() if number > begun]
        total = sum(times for _, times in longer)
        if total < ENOUGH_RUNS:
            return None
        return max(sum(end_of(number) * times for number, times in longer) // total - ran, 0)

    def most(self) -> int | None:
        """The time not exceeded by seven of eight runs, as far as the spans show; None for too few runs."""
        if self.kept < ENOUGH_RUNS:
            return None
        seen = 0
        for number in sorted(self.spans):
            seen += self.spans[number]
            if 8 * seen >= 7 * self.kept:
                break
        return end_of(number)

    def ends_within(self, ran: int, ms: int) -> bool | None:
        """Whether a run ends within ``ms`` after ``ran`` ms, like most longer runs; None for too few longer runs."""
        begun = span_of(ran) if ran > 0 else -1
        longer = {number: times for number, times in self.spans.items() if number > begun}
        if sum(longer.values()) < ENOUGH_RUNS:
            return None
        soon = sum(times for number, times in longer.items() if end_of(number) <= ran + ms)
        return 2 * soon > sum(longer.values())


class Durations(Struct):
    """Kinds of jobs, by the lengths of their runs."""

    kinds: dict[str, RunTimes] = field(default_factory=dict)
    """kind of job (see :func:`kinds_of`) -> ended runs; the kind with the last end is last"""

    def ended(self, kinds: tuple[str, ...], ms: int) -> None:
        """A run of a job of these kinds took so long."""
        for kind in kinds:
            spread = self.kinds.pop(kind, None) or RunTimes()
            spread.add(ms)
            self.kinds[kind] = spread
        while len(self.kinds) > MAX_KINDS:
            del self.kinds[next(iter(self.kinds))]

    def mean(self, kinds: tuple[str, ...]) -> int:
        """Mean run time of such a job, ms, by the finest kind with enough ended runs; 0 where no kind has enough."""
        for kind in kinds:
            spread = self.kinds.get(kind)
            if spread is not None and spread.count >= ENOUGH_RUNS:
                return spread.total // spread.count
        return 0

    def left(self, kinds: tuple[str, ...], ran: int) -> int | None:
        """Mean remaining time of a run of these kinds after ``ran`` ms; None where nothing is known.

        A run longer than nearly all known runs takes as long again.
        """
        for kind in kinds:
            spread = self.kinds.get(kind)
            remaining = spread.left(ran) if spread is not None else None
            if remaining is not None:
                return remaining
        return max(ran, 1) if self.known() else None

    def ends_within(self, kinds: tuple[str, ...], ran: int, ms: int) -> bool:
        """Whether a run of these kinds is expected to end within ``ms`` after ``ran`` ms.

        The finest kind with enough longer runs decides. A run longer than nearly all known runs takes as long again;
        without any known run nothing is expected.
        """
        known = (self.kinds[kind].ends_within(ran, ms) for kind in kinds if kind in self.kinds)
        return next((verdict for verdict in known if verdict is not None), self.known() > 0 and max(ran, 1) < ms)

    def known(self) -> int:
        """How many runs ended, of all kinds; the promises rest on at least ENOUGH."""
        every = self.kinds.get(ANY)
        return every.count if every is not None and every.count >= ENOUGH_RUNS else 0


ANY = ""
"""The kind of every job."""


def kinds_of(namespace: str, name: str, queue: str, request: Vector) -> tuple[str, ...]:
    """The kinds of a job, the finest first. The stem is the name without its final counter."""
    asked = ",".join(f"{resource}={request[resource]}" for resource in sorted(request))
    stem = stem_of(name)
    return f"{queue}|{stem}|{asked}|{namespace}", f"{queue}|{stem}|{asked}", f"{queue}||{asked}", queue, ANY


def stem_of(name: str) -> str:
    """``train-8`` and ``train-9f3`` are ``train``."""
    return _TAIL.sub("", name)


def span_of(ms: int) -> int:
    """The number of the span with this time: four spans to each doubling, from 1 ms on."""
    ms = max(ms, 1)
    length = ms.bit_length()
    return length * 4 + (((ms << 2) >> (length - 1)) & 3)


def end_of(number: int) -> int:
    """The longest time, ms, in a span."""
    length, quarter = divmod(number, 4)
    return ((((5 + quarter) << (length - 1)) + 3) >> 2) - 1


# --- pace -------------------------------------------------------------------------------------------------------------


KEPT = 200
"""The newest kept intervals of a queue: the pace of long ago says little."""
ENOUGH_ADMISSIONS = 5
"""Fewest seen intervals for an estimate."""


class Estimate(Struct, frozen=True):
    """The remaining wait, ms: 8 of 10 waits should end between ``low`` and ``high``; ``middle`` is the median seen.

    The three are -1 without an estimate, and ``why`` has the reason.
    """

    low: int = -1
    middle: int = -1
    high: int = -1
    rows: int = 0
    """Seen series of as many admissions as the job has to wait for; 0 where no series is that long, and the mean is
    extrapolated.
    """
    intervals: int = 0
    """Number of intervals between two admissions while a job waited."""
    why: Literal["", "too_few", "overdue"] = ""

    @property
    def known(self) -> bool:
        return self.middle >= 0


class Pace(Struct):
    """How fast each queue moves."""

    intervals: dict[str, list[int]] = field(default_factory=dict)
    """queue -> ms between admissions while a job waited, the newest last"""
    last: dict[str, int] = field(default_factory=dict)
    """queue -> log time of the last admission, while a job has waited there ever since"""

    def admitted(self, queue: str, now: int, *, waiting: bool) -> None:
        """Note an admission from a queue; ``waiting``: a job still waits there."""
        if queue in self.last:
            kept = self.intervals.setdefault(queue, [])
            kept.append(now - self.last[queue])
            del kept[:-KEPT]
        self.last[queue] = now
        self.left(queue, waiting=waiting)

    def left(self, queue: str, *, waiting: bool) -> None:
        """A job left a queue; an empty queue shows nothing about its pace."""
        if not waiting:
            self.last.pop(queue, None)

    def expect(self, queue: str, position: int, now: int) -> Estimate:
        """The expected wait of a job at a position (from 1), given the time since the last admission."""
        seen = list(self.intervals.get(queue, ()))
        rows = [sum(seen[first : first + position]) for first in range(len(seen) - position + 1)]
        if len(seen) < ENOUGH_ADMISSIONS:
            return Estimate(rows=len(rows), intervals=len(seen), why="too_few")
        gone = now - self.last[queue] if queue in self.last else 0
        low, high = _likely(seen, position)
        if len(rows) < ENOUGH_ADMISSIONS:
            return _drawn_out(seen, position, gone, low, high)
        left = sorted(row - gone for row in rows if row > gone)
        if len(left) < ENOUGH_ADMISSIONS:
            return Estimate(rows=len(rows), intervals=len(seen), why="overdue")
        return Estimate(
            low=min(_quantile(left, 1), max(0, low - gone)),
            middle=_quantile(left, 5),
            high=max(_quantile(left, 9), high - gone),
            rows=len(left),
            intervals=len(seen),
        )


def _drawn_out(seen: list[int], position: int, gone: int, low: int, high: int) -> Estimate:
    """For positions beyond any seen row: ``position`` times the mean, within the spread of independent times."""
    middle = sum(seen) * position // len(seen) - gone
    if middle <= 0:
        return Estimate(intervals=len(seen), why="overdue")
    return Estimate(low=max(0, low - gone), middle=middle, high=max(middle, high - gone), intervals=len(seen))


def _likely(seen: list[int], position: int) -> tuple[int, int]:
    """The span of 8 of 10 rows if the times were independent; fewer times give a wider span."""
    count, total = len(seen), sum(seen)
    spread = sum((interval * count - total) ** 2 for interval in seen) // (count * count * max(count - 1, 1))
    half = isqrt(spread * position * (count + position) // count) * 128 // 100
    middle = total * position // count
    return middle - half, middle + half


def _quantile(ordered: list[int], tenths: int) -> int:
    """The value not exceeded by this many tenths of the ordered values."""
    return ordered[max(0, (len(ordered) * tenths + 9) // 10 - 1)]
