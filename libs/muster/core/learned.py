"""Learned from the log alone, in integers: how long jobs run, and how fast queues move.

How long jobs run, learned from the log alone: streaming means in integers, per kind of job.

A job is compared with the ended runs that are most like its own: first of its namespace, queue, name stem and request,
then without the namespace, then of its queue and request, then of its queue, then of all. Nothing is known of a job but
its spec before it runs. The one place that knows this: the order of borrowers rests on the means of all runs,
promised starts on those of the newest runs that took longer.

Measured are the times between one admission from a queue and the next while a job waited there: only those say how
fast it moves, for an idle queue admits no job. The job at position p waits for p of them in a row; what such
rows have taken in the past is what it may take now. Pure, in integers (ms).
"""

from __future__ import annotations

import re
from math import isqrt
from typing import Literal

from msgspec import Struct, field

from muster.model.resources import Vector

# --- durations --------------------------------------------------------------------------------------------------------


ENOUGH_RUNS = 5
"""Ended runs that a mean rests on at least."""
MAX_KINDS = 20_000
"""Kinds of jobs that are remembered: those that ended last."""
REMEMBERED = 128
"""Runs of a kind at which the counts of its spans are halved: what ended long ago counts less and less."""
_TAIL = re.compile(r"[-_.]?[0-9a-f]*[0-9][0-9a-z]*$")


class RunTimes(Struct):
    """How long ended runs of one kind took. The mean is over all of them, the spans favour the newest."""

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
            self.spans = {each: times // 2 for each, times in self.spans.items() if times > 1}
            self.kept = sum(self.spans.values())

    def left(self, ran: int) -> int | None:
        """What one that has run so long (ms) still takes, by the mean of those that took longer; None for too few.

        A job waits for the sum of the times that others still run, and the mean of a sum is the sum of the means. A
        median is not: it is far too low where a few jobs run for weeks.
        """
        begun = span_of(ran) if ran > 0 else -1
        longer = [(number, times) for number, times in self.spans.items() if number > begun]
        total = sum(times for _, times in longer)
        if total < ENOUGH_RUNS:
            return None
        return max(sum(end_of(number) * times for number, times in longer) // total - ran, 0)

    def most(self) -> int | None:
        """The time that seven of eight did not exceed, as far as the spans tell; None for too few."""
        if self.kept < ENOUGH_RUNS:
            return None
        seen = 0
        for number in sorted(self.spans):
            seen += self.spans[number]
            if 8 * seen >= 7 * self.kept:
                break
        return end_of(number)

    def ends_within(self, ran: int, ms: int) -> bool | None:
        """Whether one that has run so long (ms) ends within ``ms``, as most of those that took longer did; None for too
        few.
        """
        begun = span_of(ran) if ran > 0 else -1
        longer = {number: times for number, times in self.spans.items() if number > begun}
        if sum(longer.values()) < ENOUGH_RUNS:
            return None
        soon = sum(times for number, times in longer.items() if end_of(number) <= ran + ms)
        return 2 * soon > sum(longer.values())


class RunsSoFar(Struct):
    """The jobs of a kind that run."""

    count: int = 0
    since: int = 0
    """The sum of the log times (ms) at which they began."""


class Durations(Struct):
    """Kinds of jobs, by how long their runs took."""

    kinds: dict[str, RunTimes] = field(default_factory=dict)
    """kind of job (see :func:`kinds_of`) -> its ended runs; the one that ended last is the last"""
    running: dict[str, RunsSoFar] = field(default_factory=dict)
    """kind of job -> those that run, where it is noted"""

    def began(self, kinds: tuple[str, ...], now: int) -> None:
        """A run of a job of these kinds began at a log time (ms)."""
        for kind in kinds:
            running = self.running.setdefault(kind, RunsSoFar())
            running.count += 1
            running.since += now

    def stopped(self, kinds: tuple[str, ...], since: int) -> None:
        """A run that began so has ended, or was stopped."""
        for kind in kinds:
            running = self.running[kind]
            running.count -= 1
            running.since -= since
            if not running.count:
                del self.running[kind]

    def ended(self, kinds: tuple[str, ...], ms: int) -> None:
        """A run of a job of these kinds took so long."""
        for kind in kinds:
            spread = self.kinds.pop(kind, None) or RunTimes()
            spread.add(ms)
            self.kinds[kind] = spread
        while len(self.kinds) > MAX_KINDS:
            del self.kinds[next(iter(self.kinds))]

    def mean(self, kinds: tuple[str, ...], now: int = 0) -> int:
        """How long such a job runs on average, ms, by the finest kind of which enough ended; 0 where none has.

        ``now``: log time (ms); those that run then count with their time so far: the time of all of them, ended or not,
        for each one that ended. Where the long ones of a kind still run, the mean of those that ended is too low.
        """
        for kind in kinds:
            spread = self.kinds.get(kind)
            if spread is not None and spread.count >= ENOUGH_RUNS:
                running = self.running.get(kind) if now else None
                so_far = running.count * now - running.since if running is not None else 0
                return (spread.total + so_far) // spread.count
        return 0

    def left(self, kinds: tuple[str, ...], ran: int) -> int | None:
        """How long one of these kinds that has run so long (ms) still runs, on average; None where nothing is known.

        One that has run longer than nearly all that is known takes as long again.
        """
        for kind in kinds:
            spread = self.kinds.get(kind)
            found = spread.left(ran) if spread is not None else None
            if found is not None:
                return found
        return max(ran, 1) if self.known() else None

    def ends_within(self, kinds: tuple[str, ...], ran: int, ms: int) -> bool:
        """Whether one of these kinds that has run so long (ms) is expected to end within ``ms``; by the finest kind of
        which enough took longer. One that has run longer than nearly all that is known takes as long again; nothing
        is expected where nothing is known.
        """
        known = (self.kinds[kind].ends_within(ran, ms) for kind in kinds if kind in self.kinds)
        return next((found for found in known if found is not None), self.known() > 0 and max(ran, 1) < ms)

    def known(self) -> int:
        """How many runs ended, of all kinds; the promises rest on at least ENOUGH."""
        every = self.kinds.get(ANY)
        return every.count if every is not None and every.count >= ENOUGH_RUNS else 0


ANY = ""
"""The kind that every job is of."""


def kinds_of(namespace: str, name: str, queue: str, request: Vector) -> tuple[str, ...]:
    """The kinds a job belongs to, the finest first. Its name without the counter at its end is its stem."""
    asked = ",".join(f"{each}={request[each]}" for each in sorted(request))
    stem = stem_of(name)
    return f"{queue}|{stem}|{asked}|{namespace}", f"{queue}|{stem}|{asked}", f"{queue}||{asked}", queue, ANY


def stem_of(name: str) -> str:
    """``train-8`` and ``train-9f3`` are ``train``."""
    return _TAIL.sub("", name)


def span_of(ms: int) -> int:
    """The number of the span of times that one lies in: four to each doubling, from 1 ms on."""
    ms = max(ms, 1)
    length = ms.bit_length()
    return length * 4 + (((ms << 2) >> (length - 1)) & 3)


def end_of(number: int) -> int:
    """The longest time, ms, that lies in a span."""
    length, quarter = divmod(number, 4)
    return ((((5 + quarter) << (length - 1)) + 3) >> 2) - 1


# --- pace -------------------------------------------------------------------------------------------------------------


KEPT = 200
"""The newest intervals of a queue that are kept: how fast it moved long ago says little."""
ENOUGH_ADMISSIONS = 5
"""Rows that must have been seen before anything is said."""


class Estimate(Struct, frozen=True):
    """What a wait may still take, ms: 8 of 10 should end between ``low`` and ``high``; ``middle`` is the median seen.

    All three are -1 where nothing can be said, and ``why`` says why.
    """

    low: int = -1
    middle: int = -1
    high: int = -1
    rows: int = 0
    """How many rows of admissions it rests on; 0 where none of that length was seen and the mean is drawn out."""
    intervals: int = 0
    """How many times one admission followed another while a job waited."""
    why: Literal["", "too_few", "overdue"] = ""

    @property
    def known(self) -> bool:
        return self.middle >= 0


class Pace(Struct):
    """How fast each queue moves."""

    intervals: dict[str, list[int]] = field(default_factory=dict)
    """queue -> ms between admissions while a job waited, the newest last"""
    last: dict[str, int] = field(default_factory=dict)
    """queue -> log time of its last admission, as long as a job has waited there ever since"""

    def admitted(self, queue: str, now: int, *, waiting: bool) -> None:
        """One was admitted from a queue; ``waiting``: a job still waits there."""
        if queue in self.last:
            kept = self.intervals.setdefault(queue, [])
            kept.append(now - self.last[queue])
            del kept[:-KEPT]
        self.last[queue] = now
        self.left(queue, waiting=waiting)

    def left(self, queue: str, *, waiting: bool) -> None:
        """One left a queue; an empty queue says nothing of how fast it moves."""
        if not waiting:
            self.last.pop(queue, None)

    def expect(self, queue: str, position: int, now: int) -> Estimate:
        """What a job at a position (from 1) may expect, given how long ago the last admission was."""
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
    """So far back that no row of that length was seen: as many times the mean, within what independent times allow."""
    middle = sum(seen) * position // len(seen) - gone
    if middle <= 0:
        return Estimate(intervals=len(seen), why="overdue")
    return Estimate(low=max(0, low - gone), middle=middle, high=max(middle, high - gone), intervals=len(seen))


def _likely(seen: list[int], position: int) -> tuple[int, int]:
    """The span in which 8 of 10 rows would lie if the times were independent, the wider the fewer there are."""
    count, total = len(seen), sum(seen)
    spread = sum((each * count - total) ** 2 for each in seen) // (count * count * max(count - 1, 1))
    half = isqrt(spread * position * (count + position) // count) * 128 // 100
    middle = total * position // count
    return middle - half, middle + half


def _quantile(ordered: list[int], tenths: int) -> int:
    """The value that so many tenths of the ordered values do not exceed."""
    return ordered[max(0, (len(ordered) * tenths + 9) // 10 - 1)]
