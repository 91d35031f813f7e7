"""Least attained service: running jobs that keep their work are evicted for waiting jobs that have had less of it.

Only where the tree asks for it (``muster.dev/least-attained``). The service of a job is the GPU time of the work it has
kept: from each start to the last checkpoint noted there (``muster.dev/checkpointed-at``). The spans of the tree divide
jobs into levels. A running job is evicted for a waiting one of a lower level, of no lower priority, if it has noted a
checkpoint at least LEAST_RUN_MS after it started, and at most MOST_TIMES over its life. No other queue falls below its
guarantee by that. What changes a level is a checkpoint, never time: between two of them nothing new is due.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.quota import Rules
from muster.model.resources import Vector

GPU = "nvidia.com/gpu"
WHOLE = 1000

LEAST_RUN_MS = 3_600_000
"""How long a job has run at least, by its last checkpoint, before it is evicted so."""

FRESH_MS = 60_000
"""It is chosen within this time after a checkpoint: no more work is lost than that."""

MOST_TIMES = 4
"""How often a job is evicted so at the most."""


class Service(Struct):
    """Of the workloads that are there: the service of their former runs, and how often they were evicted for it."""

    kept: dict[str, int] = field(default_factory=dict)
    """workload uid -> GPU time of work that it has kept, ms"""
    times: dict[str, int] = field(default_factory=dict)
    """workload uid -> how often it was suspended for a job with less"""

    def ran(self, uid: str, gpu_ms: int) -> None:
        """A run is over that kept so much."""
        if gpu_ms > 0:
            self.kept[uid] = self.kept.get(uid, 0) + gpu_ms

    def kept_run(self, uid: str, request: Vector) -> int:
        """How long it ran, ms, in former runs whose work it has kept."""
        return self.kept.get(uid, 0) * WHOLE // max(request.get(GPU, 0), WHOLE)

    def gave_way(self, uid: str) -> None:
        self.times[uid] = self.times.get(uid, 0) + 1

    def forget(self, uid: str) -> None:
        self.kept.pop(uid, None)
        self.times.pop(uid, None)

    def level(self, rules: Rules, uid: str, gpu_ms: int = 0) -> int:
        """How many of the tree's spans it has passed; ``gpu_ms``: what it has kept in this run."""
        total = self.kept.get(uid, 0) + gpu_ms
        return sum(total >= span for span in rules.least_attained_ms)

    def gives_way(self, rules: Rules, uid: str, request: Vector, kept_ms: int) -> int:
        """The level below which a waiting job may take its place, 0 for none; ``kept_ms``: of this run."""
        if kept_ms < LEAST_RUN_MS or self.times.get(uid, 0) >= MOST_TIMES:
            return 0
        return self.level(rules, uid, gpu_time(request, kept_ms))


def gpu_time(request: Vector, ms: int) -> int:
    """GPU time of a run, ms; a job that asks for less than a GPU counts as one."""
    return max(request.get(GPU, 0), WHOLE) * ms // WHOLE
