"""The promises that are open, and what projections proved to be worth.

What projections are worth: how long jobs really waited, against what was projected for them.

Kept is a histogram of scores: the waits there were over the waits that were projected, as logarithms. A promise is the
projected wait times a quantile of that. Which quantile it takes to keep nine promises of ten is learned as well: each
broken promise raises it, each kept one lowers it, nine times as slowly, so that it comes to rest where one of ten is
broken. Waits that go together (a whole batch of jobs) make the plain quantile too low; this corrects it from the log
alone. In integers; memory is bounded, and what is long ago counts less and less.

The promises that are open: what was promised to which job, so that each can be settled.

One is made for each waiting job, soon after it is queued, whether a user asks or not: calibration learns from these. It
is kept when the job is admitted in time, and broken once its bound has passed, whichever comes first; when the job is
edited, held, paused or gone, nothing is learned from it. How often promises are made depends on how much work the last
projection was, so that a long queue costs no more than a short one.
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
"""Scores of one doubling."""
WIDTH = 64
"""Scores that one count represents."""
REMEMBERED = 4096
"""Scores at which all counts are halved."""
ENOUGH_WAITS = 20
"""Ended waits that a promise rests on at least."""
FLOOR_MS = 60_000
"""Added to both waits before they are compared: a few seconds more or less say nothing."""
MILLION = 1_000_000
LOWEST = 700_000
"""The quantile, in millionths, below which it is not lowered."""
BEYOND = UNIT // 2
"""Added to the highest score where even that is too low."""
STEP = 100
"""Millionths by which a kept promise lowers it."""


class Calibration(Struct):
    """``scores``: number of a class of scores -> how many waits were so much longer than projected."""

    scores: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """The sum of ``scores``."""
    level: int = MILLION * KEPT_PERCENT // 100
    """The quantile that bounds are taken from, in millionths."""
    kept: int = 0
    broken: int = 0
    """Promises that were kept, and not, since the log began."""

    @property
    def ready(self) -> bool:
        return self.total >= ENOUGH_WAITS

    def waited(self, projected: int, wait: int) -> None:
        """A wait (ms) is over that was projected to last so long."""
        number = score_of(projected, wait)
        self.scores[number] = self.scores.get(number, 0) + 1
        self.total += 1
        if self.total >= REMEMBERED:
            self.scores = {each: count // 2 for each, count in self.scores.items() if count > 1}
            self.total = sum(self.scores.values())

    def settled(self, *, kept: bool) -> None:
        """It is known now of a promise whether it was kept."""
        self.kept += kept
        self.broken += not kept
        less, more = STEP, STEP * KEPT_PERCENT // (100 - KEPT_PERCENT)
        self.level = max(self.level - less, LOWEST) if kept else min(self.level + more, MILLION)

    def scale(self, lasting: Iterable[tuple[int, int]]) -> Scale:
        """How to read projections now. ``lasting``: (projected wait, waited so far) of the waits that are not over."""
        still: dict[int, int] = {}
        for projected, so_far in lasting:
            number = score_of(projected, so_far)
            still[number] = still.get(number, 0) + 1
        return Scale(self._quantile(still, MILLION // 2), self._quantile(still, self.level))

    def _quantile(self, still: Mapping[int, int], level: int) -> int:
        """The score that so many waits do not exceed, in millionths, those counted in that last as long as they like.

        It is the product-limit estimate (Kaplan and Meier): to leave out the waits that go on would say that waits
        are short, for the short ones are over first.
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
    """The amounts to add to the logarithm of a projected wait for the median of real waits, and for the bound."""

    half: int
    most: int

    def middle(self, projected: int) -> int:
        """The wait (ms) that as many exceed as do not."""
        return _scaled(projected, self.half)

    def bound(self, projected: int) -> int:
        """The wait (ms) that is promised not to be exceeded, never below :meth:`middle`."""
        return _scaled(projected, max(self.most, self.half))


def score_of(projected: int, wait: int) -> int:
    """The number of the class of scores of a wait, both in ms."""
    return (_log(wait + FLOOR_MS) - _log(projected + FLOOR_MS)) // WIDTH


def _scaled(projected: int, score: int) -> int:
    return max(_power(max(_log(projected + FLOOR_MS) + score, 0)) - FLOOR_MS, 0)


def _log(number: int) -> int:
    """The logarithm to base 2 of a positive integer, in UNITs: exact for powers of 2, straight between them."""
    length = number.bit_length() - 1
    return UNIT * length + ((number * UNIT) >> length) - UNIT


def _power(log: int) -> int:
    """The integer whose logarithm that is, rounded down."""
    length, part = divmod(log, UNIT)
    return ((UNIT + part) << length) // UNIT


# --- promises ---------------------------------------------------------------------------------------------------------


PAUSE_MS = 60_000
"""Log time between two projections at least."""
STEP_MS = 100
"""And for each step that the last one took."""
MAX_OPEN = 4096
"""Promises that are open at once at most, and jobs that wait for theirs."""


class Open(Struct, frozen=True):
    """A promise. Times in ms."""

    at: int
    """Log time at which it was made."""
    projected: int
    """The wait that was projected, before calibration."""
    latest: int
    """Log time by which the job was promised to start; 0 while nothing can be promised."""
    broken: bool = False


class Promises(Struct):
    """What is learned of runs and of waits, and what it is learned from next."""

    durations: Durations = field(default_factory=Durations)
    calibration: Calibration = field(default_factory=Calibration)
    open: dict[str, Open] = field(default_factory=dict)
    """workload uid -> its promise"""
    fresh: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time (ms) at which it was queued; it has no promise yet"""
    next_at: int = 0
    """Log time (ms) before which none is made."""

    def queued(self, uid: str, now: int) -> None:
        """It waits under a new attempt: what was promised for the old one means nothing."""
        self.open.pop(uid, None)
        self.fresh.pop(uid, None)
        if len(self.fresh) < MAX_OPEN:
            self.fresh[uid] = now

    def left(self, uid: str) -> None:
        """It no longer waits, and did not start."""
        self.open.pop(uid, None)
        self.fresh.pop(uid, None)

    def admitted(self, uid: str, now: int) -> None:
        """It starts."""
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
        """Break what has passed its bound, and make promises to the jobs that have waited for some time, none yet."""
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
            found = projection.found.get(uid)
            if found is not None:
                del self.fresh[uid]
                latest = now + scale.bound(found.wait) if self.calibration.ready else 0
                self.open[uid] = Open(now, found.wait, latest)

    def scale(self, now: int) -> Scale:
        """How to read projections at this log time (ms)."""
        return self.calibration.scale((each.projected, max(now - each.at, 0)) for each in self.open.values())

    def _settle(self, queues: Queues, now: int) -> None:
        for uid, promise in list(self.open.items()):
            job = queues.jobs.get(uid)
            if job is None or "admissions" in queues.resting(job.queue):
                del self.open[uid]
            elif promise.latest and not promise.broken and now > promise.latest:
                self.calibration.settled(kept=False)
                self.open[uid] = Open(promise.at, promise.projected, promise.latest, broken=True)
