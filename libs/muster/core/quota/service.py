"""Least attained service: running jobs with checkpoints are evicted for waiting jobs with less service.

Only where the tree has spans (``muster.dev/least-attained``). The service of a job is the GPU time of kept work: from
each start to the last checkpoint of the run (``muster.dev/checkpointed-at``). The spans of the tree divide jobs into
levels. A running job is evicted for a waiting job of a lower level and no lower priority. The running job has noted a
checkpoint at least LEAST_RUN_MS after its start, and is evicted so at most MOST_TIMES in its life. No other queue falls
below its guarantee. Only a checkpoint changes a level, never time: no decision becomes due between two checkpoints.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.quota import Rules
from muster.model.resources import Vector

GPU = "nvidia.com/gpu"
WHOLE = 1000

LEAST_RUN_MS = 3_600_000
"""The shortest run, from start to last checkpoint, before an eviction for service."""

FRESH_MS = 60_000
"""A job is chosen within this time after a checkpoint: this bounds the lost work."""

MOST_TIMES = 4
"""The most evictions of one job for service."""


class Service(Struct):
    """The service of former runs of known workloads, and the evictions for service."""

    kept: dict[str, int] = field(default_factory=dict)
    """workload uid -> GPU time of kept work, ms"""
    times: dict[str, int] = field(default_factory=dict)
    """workload uid -> number of suspensions for a job with less service"""

    def ran(self, uid: str, gpu_ms: int) -> None:
        """Add the kept GPU time of an ended run."""
        if gpu_ms > 0:
            self.kept[uid] = self.kept.get(uid, 0) + gpu_ms

    def kept_run(self, uid: str, request: Vector) -> int:
        """The running time, ms, of former runs with kept work."""
        return self.kept.get(uid, 0) * WHOLE // max(request.get(GPU, 0), WHOLE)

    def gave_way(self, uid: str) -> None:
        self.times[uid] = self.times.get(uid, 0) + 1

    def forget(self, uid: str) -> None:
        self.kept.pop(uid, None)
        self.times.pop(uid, None)

    def level(self, rules: Rules, uid: str, gpu_ms: int = 0) -> int:
        """The number of the tree's spans that the job has passed; ``gpu_ms``: kept work of this run."""
        total = self.kept.get(uid, 0) + gpu_ms
        return sum(total >= span for span in rules.least_attained_ms)

    def gives_way(self, rules: Rules, uid: str, request: Vector, kept_ms: int) -> int:
        """The level below which a waiting job may replace this job, 0 for none; ``kept_ms``: of this run."""
        if kept_ms < LEAST_RUN_MS or self.times.get(uid, 0) >= MOST_TIMES:
            return 0
        return self.level(rules, uid, gpu_time(request, kept_ms))


def gpu_time(request: Vector, ms: int) -> int:
    """GPU time of a run, ms; a request below one GPU counts as one GPU."""
    return max(request.get(GPU, 0), WHOLE) * ms // WHOLE
