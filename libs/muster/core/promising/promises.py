"""Open promises, and the calibration of projections.

Calibration compares real waits with projected waits. The state is a histogram of scores: logarithms of real over
projected waits. A promise is the projected wait times a quantile of the histogram. The quantile that keeps nine
promises of ten is learned, too. A broken promise raises the quantile; a kept promise lowers the quantile by a ninth of
that, until one of ten is broken. Waits that end together (a whole batch of jobs) make the plain quantile too low;
learning corrects this from the log alone. All numbers are integers, memory is bounded, and old waits count less and
less.

Open promises: the promise to each job, for its settlement. Each waiting job has a promise soon after its queueing,
whether a user asks or not: calibration learns from all. A promise is kept when the job is admitted in time, and broken
once its bound has passed, whichever comes first. From a job edited, held, paused or gone nothing is learned. The pause
between promises grows with the work of the last projection: a long queue costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from msgspec import Struct, field

from muster.core.learned import Durations
from muster.core.promising.projection import Projection
from muster.core.queueing.queues import Queues

# --- calibration ------------------------------------------------------------------------------------------------------


KEPT_PERCENT = 90
"""How many of a hundred promises are to be kept."""
UNIT = 1024
"""Scores for a doubling of the wait."""
WIDTH = 64
"""Scores in a class of the histogram."""
REMEMBERED = 4096
"""The total at which all counts are halved."""
ENOUGH_WAITS = 20
"""The fewest ended waits for a promise."""
FLOOR_MS = 60_000
"""Added to both waits of a comparison: a few seconds more or less do not matter."""
MILLION = 1_000_000
LOWEST = 700_000
"""The lowest quantile, in millionths."""
BEYOND = UNIT // 2
"""Added to the highest score where even the highest is too low."""
STEP = 100
"""Millionths by which a kept promise lowers the quantile."""


class Calibration(Struct):
    """``scores``: number of a class of scores -> how many waits were so much longer than projected."""

    scores: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """The sum of ``scores``."""
    level: int = MILLION * KEPT_PERCENT // 100
    """The quantile for bounds, in millionths."""
    kept: int = 0
    broken: int = 0
    """Promises kept and broken since the log began."""

    @property
    def ready(self) -> bool:
        return self.total >= ENOUGH_WAITS

    def waited(self, projected: int, wait: int) -> None:
        """A wait of ``wait`` ms with a projection of ``projected`` ms is over."""
        number = score_of(projected, wait)
        self.scores[number] = self.scores.get(number, 0) + 1
        self.total += 1
        if self.total >= REMEMBERED:
            self.scores = {score: count // 2 for score, count in self.scores.items() if count > 1}
            self.total = sum(self.scores.values())

    def settled(self, *, kept: bool) -> None:
        """Learn from a settled promise."""
        self.kept += kept
        self.broken += not kept
        less, more = STEP, STEP * KEPT_PERCENT // (100 - KEPT_PERCENT)
        self.level = max(self.level - less, LOWEST) if kept else min(self.level + more, MILLION)

    def scale(self, lasting: Iterable[tuple[int, int]]) -> Scale:
        """The present reading of projections. ``lasting``: (projected wait, wait so far) of the
        waits still going on.
        """
        still: dict[int, int] = {}
        for projected, so_far in lasting:
            number = score_of(projected, so_far)
            still[number] = still.get(number, 0) + 1
        return Scale(self._quantile(still, MILLION // 2), self._quantile(still, self.level))

    def _quantile(self, still: Mapping[int, int], level: int) -> int:
        """The score not exceeded by ``level`` millionths of all waits; waits still going on may last for any time.

        This is the product-limit estimate (Kaplan and Meier). Without the waits still going on, waits would look short,
        because the short ones end first.
        """
        longer, beyond = self.total + sum(still.values()), MILLION
        numbers = sorted({*self.scores, *still})
        for number in numbers:
            over = self.scores.get(number, 0)
            if over:
                beyond = beyond * (longer - over) // longer
            if beyond <= MILLION - level:
                return (number + 1) * WIDTH
            longer -= over + still.get(number, 0)
        return (numbers[-1] + 1) * WIDTH + BEYOND if numbers else 0


class Scale(Struct, frozen=True):
    """The amounts added to the logarithm of a projected wait: for the median of real waits, and for the bound."""

    half: int
    most: int

    def middle(self, projected: int) -> int:
        """The median wait (ms) for a projection."""
        return _scaled(projected, self.half)

    def bound(self, projected: int) -> int:
        """The promised longest wait (ms) for a projection, never below :meth:`middle`."""
        return _scaled(projected, max(self.most, self.half))


def score_of(projected: int, wait: int) -> int:
    """The number of the class of scores of a wait, both in ms."""
    return (_log(wait + FLOOR_MS) - _log(projected + FLOOR_MS)) // WIDTH


def _scaled(projected: int, score: int) -> int:
    return max(_power(max(_log(projected + FLOOR_MS) + score, 0)) - FLOOR_MS, 0)


def _log(number: int) -> int:
    """The logarithm to base 2 of a positive integer, in UNITs: exact for powers of 2, linear between these."""
    length = number.bit_length() - 1
    return UNIT * length + ((number * UNIT) >> length) - UNIT


def _power(log: int) -> int:
    """The inverse of ``_log``, rounded down to an integer."""
    length, part = divmod(log, UNIT)
    return ((UNIT + part) << length) // UNIT


# --- promises ---------------------------------------------------------------------------------------------------------


PAUSE_MS = 60_000
"""Log time between two projections at least."""
STEP_MS = 100
"""Further log time for each step of the last projection."""
MAX_OPEN = 4096
"""The most open promises, and the most jobs waiting for a promise."""


class Open(Struct, frozen=True):
    """A promise. Times in ms."""

    at: int
    """Log time of the promise."""
    projected: int
    """The projected wait, before calibration."""
    latest: int
    """Log time of the promised latest start; 0 without enough ended waits for a promise."""
    broken: bool = False


class Promises(Struct):
    """The learned durations of runs, the calibration of waits, and the open promises."""

    durations: Durations = field(default_factory=Durations)
    calibration: Calibration = field(default_factory=Calibration)
    open: dict[str, Open] = field(default_factory=dict)
    """workload uid -> promise"""
    fresh: dict[str, int] = field(default_factory=dict)
    """uid of a workload without a promise -> log time (ms) of its queueing"""
    next_at: int = 0
    """Log time (ms) of the next promises, at the earliest."""

    def queued(self, uid: str, now: int) -> None:
        """The job waits under a new attempt: the promise for the old attempt is void."""
        self.open.pop(uid, None)
        self.fresh.pop(uid, None)
        if len(self.fresh) < MAX_OPEN:
            self.fresh[uid] = now

    def left(self, uid: str) -> None:
        """The job no longer waits, and did not start."""
        self.open.pop(uid, None)
        self.fresh.pop(uid, None)

    def admitted(self, uid: str, now: int) -> None:
        """The job starts: settle its promise."""
        self.fresh.pop(uid, None)
        promise = self.open.pop(uid, None)
        if promise is None:
            return
        self.calibration.waited(promise.projected, now - promise.at)
        if promise.latest and not promise.broken:
            self.calibration.settled(kept=now <= promise.latest)

    def is_due(self, now: int) -> bool:
        return bool(self.fresh or self.open) and now >= self.next_at

    def make(self, queues: Queues, running: Mapping[str, int], now: int) -> None:
        """Break the promises past their bound, and make promises to jobs queued before ``now``."""
        self.next_at = now + PAUSE_MS
        self._settle(queues, now)
        old = [uid for uid, since in self.fresh.items() if since < now]
        if not old or not self.durations.known():
            return
        projection = Projection(queues, running, self.durations, now)
        projection.run()
        self.next_at = now + max(PAUSE_MS, projection.steps * STEP_MS)
        scale = self.scale(now)
        for uid in islice(old, max(MAX_OPEN - len(self.open), 0)):
            projected = projection.found.get(uid)
            if projected is not None:
                del self.fresh[uid]
                latest = now + scale.bound(projected.wait) if self.calibration.ready else 0
                self.open[uid] = Open(now, projected.wait, latest)

    def scale(self, now: int) -> Scale:
        """How to read projections at this log time (ms)."""
        return self.calibration.scale((promise.projected, max(now - promise.at, 0)) for promise in self.open.values())

    def _settle(self, queues: Queues, now: int) -> None:
        for uid, promise in list(self.open.items()):
            job = queues.jobs.get(uid)
            if job is None or "admissions" in queues.resting(job.queue):
                del self.open[uid]
            elif promise.latest and not promise.broken and now > promise.latest:
                self.calibration.settled(kept=False)
                self.open[uid] = Open(promise.at, promise.projected, promise.latest, broken=True)
