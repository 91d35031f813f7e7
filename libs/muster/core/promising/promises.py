"""Open promises, and the calibration of projections.

Calibration compares real waits with projected waits. The state is a histogram of scores: logarithms of real over
projected waits. A promise is the projected wait times the quantile of 90 % of the histogram, and times two corrections:
of the age and of the size of the wait. A broken promise raises both corrections; a kept promise lowers both by an
eleventh of that. Waits that end together (a whole batch of jobs) make the plain quantile too low; the corrections learn
this from the log alone. While a correction stays within its bounds, the kept share of its age or size comes to eleven
of twelve: two more in a hundred than promised, because a broken promise is known later than a kept one. All numbers are
integers, memory is bounded, and old waits count less and less.

A job that has waited for long waits for other reasons than a new job, and a large job for other reasons than a small
one. So each class of waits (an age and a size) has a histogram and a record of its own. What readers are shown about
a job is read in the class of the job, and the shown record is the record of the class. In a class with few ended waits
nothing is promised.

A job gets a promise soon after its queueing, and another promise in each age that the job reaches, at any time of the
age, whether a user asks or not: calibration learns from the waits that readers ask about. The state keeps the first
promise. A promise is kept when the job is admitted in time, and broken once its bound has passed, whichever comes
first. From a job edited, held, paused or gone nothing is learned. The pause between promises grows with the work of the
last projection: a long queue costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from muster.core.learned import ENOUGH_WAITS, KEPT_PERCENT, Durations
from muster.core.promising.projection import Projection
from muster.core.queueing.queues import Queues

# --- calibration ------------------------------------------------------------------------------------------------------


UNIT = 1024
"""Scores for a doubling of the wait."""
WIDTH = 64
"""Scores in a class of the histogram."""
REMEMBERED = 300
"""The total at which all counts are halved."""
FLOOR_MS = 60_000
"""Added to both waits of a comparison: a few seconds more or less do not matter."""
MILLION = 1_000_000
GPU = "nvidia.com/gpu"
WHOLE = 1000
BEYOND = UNIT // 2
"""Added to the highest score where even the highest is too low."""
CAREFUL = 512
"""The correction (scores) of an age or a size without settled promises: broken promises are known last."""
STEP = 8
"""Scores by which a kept promise lowers a correction."""
RISE = 11
"""A broken promise raises a correction by so many steps."""
LEAST, MOST = -4 * UNIT, 8 * UNIT
"""The bounds of a correction."""


class Calibration(Struct):
    """``scores``: number of a class of scores -> how many waits were so much longer than projected."""

    scores: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """The sum of ``scores``."""
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

    def scale(self, lasting: Iterable[tuple[int, int]], correction: int = 0) -> Scale:
        """The present reading of projections. ``lasting``: (projected wait, wait so far) of the
        waits still going on. ``correction``: scores.
        """
        still: dict[int, int] = {}
        for projected, so_far in lasting:
            number = score_of(projected, so_far)
            still[number] = still.get(number, 0) + 1
        most = self._quantile(still, MILLION * KEPT_PERCENT // 100)
        return Scale(self._quantile(still, MILLION // 2), most + correction)

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
    """The score of a wait, by its projection (both ms): the logarithm of their ratio, in steps of ``WIDTH``."""
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
MAX_WAITS = 4096
"""The most waiting jobs with promises."""
AGE_MS = 120_000
"""The first age of a wait; each further age is twice as long."""
SIZES = 64
"""The number of sizes of requests."""
PARTS = 256
"""The promise at an age is made in one of so many parts of the age: the uid chooses the part."""


def age_of(waited: int) -> int:
    """The number of the age of a wait of so many ms."""
    return (max(waited, 0) // AGE_MS).bit_length()


def class_of(waited: int, request: Mapping[str, int]) -> int:
    """The number of the class of a wait (ms) for a request: the age, and the size."""
    return age_of(waited) * SIZES + size_of(request.get(GPU, 0) // WHOLE)


def size_of(gpus: int) -> int:
    """The number of the size of a request in whole GPUs. The largest of each: 0, 1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    if gpus <= 2:
        return gpus
    doublings = (gpus - 1).bit_length()
    return min(2 * doublings - (gpus <= 3 << (doublings - 2)), SIZES - 1)


def _due_at(since: int, age: int, uid: str) -> int:
    """Log time (ms) of the promise to a job at an age: anywhere in the age, since readers look at any time."""
    if not age:
        return since + 1
    began = AGE_MS << (age - 1)
    return since + began + began * (sum(uid.encode()) * 37 % PARTS) // PARTS


class Open(Struct, frozen=True):
    """A promise. Times in ms."""

    at: int
    """Log time of the promise."""
    projected: int
    """The projected wait, before calibration."""
    latest: int
    """Log time of the promised latest start; 0 without enough ended waits for a promise."""
    broken: bool = False


class Class(Struct):
    """The waits of one age and size: what was learned of them, and the open promises."""

    number: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    open: dict[str, Open] = field(default_factory=dict)
    """workload uid -> promise"""


class Wait(Struct):
    """A waiting job. Log times in ms."""

    since: int
    """Of the queueing."""
    due: int
    """Of the next promise."""
    first: int = 0
    """The latest start that was promised first; 0 before a promise."""
    classes: list[int] = field(default_factory=list)
    """The classes with a promise to the job."""


class Promises(Struct):
    """The learned durations of runs, the calibration of waits, and the promises to waiting jobs."""

    durations: Durations = field(default_factory=Durations)
    classes: dict[int, Class] = field(default_factory=dict)
    """By number."""
    ages: dict[int, int] = field(default_factory=dict)
    """number of an age -> correction, in scores"""
    sizes: dict[int, int] = field(default_factory=dict)
    """number of a size -> correction, in scores"""
    waits: dict[str, Wait] = field(default_factory=dict)
    """workload uid -> wait"""
    next_at: int = 0
    """Log time (ms) of the next promises, at the earliest."""

    def queued(self, uid: str, now: int) -> None:
        """The job waits under a new attempt: the promises for the old attempt are void."""
        self.left(uid)
        if len(self.waits) < MAX_WAITS:
            self.waits[uid] = Wait(now, _due_at(now, 0, uid))

    def left(self, uid: str) -> None:
        """The job no longer waits, and did not start."""
        wait = self.waits.pop(uid, None)
        for number in wait.classes if wait is not None else ():
            self.classes[number].open.pop(uid, None)

    def admitted(self, uid: str, now: int) -> None:
        """The job starts: settle its promises."""
        wait = self.waits.pop(uid, None)
        for number in wait.classes if wait is not None else ():
            known = self.classes[number]
            promise = known.open.pop(uid)
            known.calibration.waited(promise.projected, now - promise.at)
            if promise.latest and not promise.broken:
                self.settled(known, kept=now <= promise.latest)

    def of(self, uid: str, request: Mapping[str, int], now: int) -> Class:
        """What is known of waits as long and as large as the wait of a job."""
        wait = self.waits.get(uid)
        return self.classes.get(class_of(now - wait.since if wait is not None else 0, request), Class())

    def scale(self, known: Class, now: int) -> Scale:
        """How to read projections of a class at this log time (ms)."""
        lasting = ((promise.projected, max(now - promise.at, 0)) for promise in known.open.values())
        age, size = divmod(known.number, SIZES)
        return known.calibration.scale(lasting, self.ages.get(age, CAREFUL) + self.sizes.get(size, CAREFUL))

    def settled(self, known: Class, *, kept: bool) -> None:
        """Learn from a settled promise."""
        known.calibration.kept += kept
        known.calibration.broken += not kept
        step = -STEP if kept else RISE * STEP
        for corrections, number in zip((self.ages, self.sizes), divmod(known.number, SIZES), strict=True):
            corrections[number] = max(min(corrections.get(number, CAREFUL) + step, MOST), LEAST)

    def first(self, uid: str) -> int:
        """The latest start (log time, ms) that was promised to a waiting job first; 0 before a promise."""
        wait = self.waits.get(uid)
        return wait.first if wait is not None else 0

    def is_due(self, now: int) -> bool:
        return bool(self.waits) and now >= self.next_at

    def make(self, queues: Queues, running: Mapping[str, int], now: int) -> None:
        """Break the promises past their bound, and make promises to jobs that have waited for another age."""
        self.next_at = now + PAUSE_MS
        self._settle(queues, now)
        due = {uid: wait for uid, wait in self.waits.items() if wait.due <= now}
        if not due or not self.durations.known():
            return
        projection = Projection(queues, running, self.durations, now)
        projection.run()
        self.next_at = now + max(PAUSE_MS, projection.steps * STEP_MS)
        scales: dict[int, Scale] = {}
        for uid, wait in due.items():
            projected = projection.found.get(uid)
            if projected is None:
                continue
            age = age_of(now - wait.since)
            wait.due = _due_at(wait.since, age + 1, uid)
            number = class_of(now - wait.since, queues.jobs[uid].demand.request)
            known = self.classes.setdefault(number, Class(number))
            if uid in known.open:
                continue
            if number not in scales:
                scales[number] = self.scale(known, now)
            latest = now + scales[number].bound(projected.wait) if known.calibration.ready else 0
            known.open[uid] = Open(now, projected.wait, latest)
            wait.classes.append(number)
            wait.first = wait.first or latest

    def _settle(self, queues: Queues, now: int) -> None:
        for uid in list(self.waits):
            job = queues.jobs.get(uid)
            if job is None:
                self.left(uid)
            elif "admissions" in queues.resting(job.queue):
                self.queued(uid, now)
        for known in self.classes.values():
            for uid, promise in known.open.items():
                if promise.latest and not promise.broken and now > promise.latest:
                    self.settled(known, kept=False)
                    known.open[uid] = Open(promise.at, promise.projected, promise.latest, broken=True)
