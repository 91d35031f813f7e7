"""The state of the queue sorter: the queues, the jobs in the queues that may have to change, and the learned order.

The learned order ranks borrowers by the run times of jobs like them, and by the service that a job has attained.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.learned import Durations, kinds_of
from muster.core.queueing.circles import Circles
from muster.core.queueing.queueorder import Lineup
from muster.core.queueing.queues import Queues
from muster.core.quota.service import Service, gpu_time
from muster.core.stage import StageState
from muster.events.base import Cause
from muster.model.quota import Rules
from muster.model.resources import Vector
from muster.model.workload import Workload

# --- learned ----------------------------------------------------------------------------------------------------------


GPU = "nvidia.com/gpu"
WHOLE = 1000
LONGEST_MS = 72 * 3_600_000
"""No job counts as queued later than this for its expected length: a bound on how long others may overtake it."""
LEVEL_MS = 7 * 24 * 3_600_000
"""How much later a job counts as queued for each level of service: a bound on how long those with less overtake it."""


class Begun(Struct, frozen=True):
    """A job runs since a log time (ms); ``kinds``: what it was when it began (see :func:`kinds_of`)."""

    since: int
    kinds: tuple[str, ...] = ()


class Learned(Struct):
    """``durations``: how long jobs ran, and run; ``running``: workload uid -> its run."""

    durations: Durations = field(default_factory=Durations)
    running: dict[str, Begun] = field(default_factory=dict)
    service: Service = field(default_factory=Service)
    """What jobs have attained in former runs."""
    stopped: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time at which it was stopped last while it ran"""

    def observed(self, workload: Workload, queue: str, request: Vector, now: int) -> None:
        """A workload looks like this at log time ``now``: note its start, and learn from its end."""
        uid = workload.ref.uid
        ref = workload.ref
        if workload.phase == "running":
            if uid not in self.running:
                kinds = kinds_of(ref.namespace, ref.name, queue, request) if queue else ()
                self.running[uid] = Begun(now, kinds)
                self.durations.began(kinds, now)
            return
        run = self._stops(uid)
        if run is not None and workload.phase != "finished":
            self.stopped[uid] = now
            self.service.ran(uid, gpu_time(request, min(workload.checkpointed_at, now) - run.since))
        if run is None or workload.phase != "finished" or not queue:
            return
        took = now - run.since + self.service.kept_run(uid, request)
        self.durations.ended(kinds_of(ref.namespace, ref.name, queue, request), took)

    def _stops(self, uid: str) -> Begun | None:
        run = self.running.pop(uid, None)
        if run is not None:
            self.durations.stopped(run.kinds, run.since)
        return run

    def gone(self, uid: str) -> None:
        self.service.forget(uid)
        self._stops(uid)
        self.stopped.pop(uid, None)

    def expected(self, workload: Workload, queue: str, request: Vector, now: int = 0) -> int:
        """How long such jobs ran on average, ms; 0 where too few have ended. ``now``: with those that run then, see
        :meth:`Durations.mean`.
        """
        return self.durations.mean(kinds_of(workload.ref.namespace, workload.ref.name, queue, request), now)

    def rank(self, workload: Workload, queue: str, request: Vector, queued_at: int) -> int:
        """When a job counts as queued among borrowers, ms since the epoch: later the more GPU time it will take.

        One that was stopped while it ran has had its turn: it counts as queued then at the earliest.
        """
        gpus = max(request.get(GPU, 0), WHOLE)
        later = self.expected(workload, queue, request) * gpus // WHOLE
        return max(queued_at + min(later, LONGEST_MS), self.stopped.get(workload.ref.uid, 0))

    def behind(self, rules: Rules, uid: str) -> int:
        """How much later a job counts as queued for the service that it has attained, ms."""
        return self.service.level(rules, uid) * LEVEL_MS


# --- state ------------------------------------------------------------------------------------------------------------


class SorterState(StageState):
    """The queues, and what only deciding needs."""

    queues: Queues = field(default_factory=Queues)
    causes: dict[str, Cause] = field(default_factory=dict)
    """workload uid -> the newest event that may be why its standing changes"""
    learned: Learned = field(default_factory=Learned)
    """How long jobs run, where the tree orders by that."""
    circles: Circles = field(default_factory=Circles)
    """Which jobs are tried again and again without a result, though nothing changes."""
    lineup: Lineup = field(default_factory=Lineup)
    due: dict[str, None] = field(default_factory=dict)
    """uids of workloads whose standing may have to change"""
