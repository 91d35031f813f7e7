"""How long jobs run, learned from the log alone: streaming means in integers, per queue, name and request.

A job is compared with the finished jobs that are most like it: first of its queue, name stem and request, then of its
queue and request, then of its queue, then of all. Nothing is known of a job but what it says before it runs.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from muster.core.quota.service import Service, gpu_time
from muster.model.quota import Rules
from muster.model.resources import Vector
from muster.model.workload import Workload

ENOUGH = 5
"""Finished jobs that a mean rests on at least."""
MAX_KEYS = 20_000
"""Kinds of jobs that are remembered; of those beyond only the coarser ones are."""
GPU = "nvidia.com/gpu"
WHOLE = 1000
TENTHS = 3
"""A tenth of the expected GPU time of a job times this is how much later it counts as queued."""
LONGEST_MS = 48 * 3_600_000
"""No job counts as queued later than this for its expected length: a bound on how long others may overtake it."""
LEVEL_MS = 7 * 24 * 3_600_000
"""How much later a job counts as queued for each level of service: a bound on how long those with less overtake it."""
_TAIL = re.compile(r"[-_.]?[0-9a-f]*[0-9][0-9a-z]*$")


class Mean(Struct):
    """How many finished, and how long they ran together, ms."""

    count: int = 0
    total: int = 0

    def add(self, ms: int) -> None:
        self.count += 1
        self.total += ms


class Learned(Struct):
    """``means``: kind of job -> how long such jobs ran; ``running``: workload uid -> log time it began to run."""

    means: dict[str, Mean] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    service: Service = field(default_factory=Service)
    """What jobs have attained in former runs."""

    def observed(self, workload: Workload, queue: str, request: Vector, now: int) -> None:
        """A workload looks like this at log time ``now``: note its start, and learn from its end."""
        uid = workload.ref.uid
        if workload.phase == "running":
            self.running.setdefault(uid, now)
            return
        since = self.running.pop(uid, None)
        if since is not None and workload.phase != "finished":
            self.service.ran(uid, gpu_time(request, min(workload.checkpointed_at, now) - since))
        if since is None or workload.phase != "finished" or not queue:
            return
        for key in _keys(workload.ref.name, queue, request):
            mean = self.means.get(key)
            if mean is None and len(self.means) < MAX_KEYS:
                mean = self.means[key] = Mean()
            if mean is not None:
                mean.add(now - since)

    def gone(self, uid: str) -> None:
        self.service.forget(uid)
        self.running.pop(uid, None)

    def expected_ms(self, name: str, queue: str, request: Vector) -> int:
        """How long such a job runs on average; 0 while too few have finished."""
        for key in _keys(name, queue, request):
            mean = self.means.get(key)
            if mean is not None and mean.count >= ENOUGH:
                return mean.total // mean.count
        return 0

    def rank(self, workload: Workload, queue: str, request: Vector, queued_at: int) -> int:
        """When a job counts as queued among borrowers, ms since the epoch: later the more GPU time it will take."""
        gpus = max(request.get(GPU, 0), WHOLE)
        later = self.expected_ms(workload.ref.name, queue, request) * gpus * TENTHS // (10 * WHOLE)
        return queued_at + min(later, LONGEST_MS)

    def behind(self, rules: Rules, uid: str) -> int:
        """How much later a job counts as queued for the service that it has attained, ms."""
        return self.service.level(rules, uid) * LEVEL_MS


def _keys(name: str, queue: str, request: Vector) -> tuple[str, ...]:
    """The kinds a job belongs to, the finest first."""
    asked = ",".join(f"{each}={request[each]}" for each in sorted(request))
    stem = _TAIL.sub("", name)
    return f"{queue}|{stem}|{asked}", f"{queue}||{asked}", queue, ""
