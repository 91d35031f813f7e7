"""The promises that are open: what was promised to which job, so that each can be settled.

One is made for each waiting job, soon after it is queued, whether a user asks or not: calibration learns from these. It
is kept when the job is admitted in time, and broken once its bound has passed, whichever comes first; when the job is
edited, held, paused or gone, nothing is learned from it. How often promises are made depends on how much work the last
projection was, so that a long queue costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct, field

from muster.core.learned.durations import Durations
from muster.core.promising.calibration import Calibration, Scale
from muster.core.promising.projection import Projection
from muster.core.queueing.queues import Queues

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
