"""The state of the queue sorter: the queues, the jobs with a change of standing, and the learned order.

The learned order ranks borrowers by the run times of similar jobs, and by the attained service of a job.
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
"""The most that an expected length moves the rank of a job: a bound on overtaking."""
LEVEL_MS = 7 * 24 * 3_600_000
"""The move in rank for each level of service: a bound on overtaking by jobs with less service."""


class Learned(Struct):
    """``durations``: lengths of ended runs. ``running``: workload uid -> log time (ms) of the start of its run."""

    durations: Durations = field(default_factory=Durations)
    running: dict[str, int] = field(default_factory=dict)
    service: Service = field(default_factory=Service)
    """The service attained by jobs in former runs."""
    stopped: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time (ms) at which its last run was stopped"""

    def observed(self, workload: Workload, queue: str, request: Vector, now: int) -> None:
        """A workload was observed at log time ``now`` (ms): note its start, and learn from its end."""
        uid = workload.ref.uid
        ref = workload.ref
        if workload.phase == "running":
            self.running.setdefault(uid, now)
            return
        since = self.running.pop(uid, None)
        if since is not None and workload.phase != "finished":
            self.stopped[uid] = now
            self.service.ran(uid, gpu_time(request, min(workload.checkpointed_at, now) - since))
        if since is None or workload.phase != "finished" or not queue:
            return
        took = now - since + self.service.kept_run(uid, request)
        self.durations.ended(kinds_of(ref.namespace, ref.name, queue, request), took)

    def gone(self, uid: str) -> None:
        self.service.forget(uid)
        self.running.pop(uid, None)
        self.stopped.pop(uid, None)

    def expected(self, workload: Workload, queue: str, request: Vector) -> int:
        """The mean run time of such jobs, ms; 0 where too few have ended."""
        return self.durations.mean(kinds_of(workload.ref.namespace, workload.ref.name, queue, request))

    def rank(self, workload: Workload, queue: str, request: Vector, queued_at: int) -> int:
        """The rank of a job among borrowers, ms since the epoch: the more GPU time expected, the later.

        A job stopped in its run has had its turn: its rank is no earlier than the stop.
        """
        gpus = max(request.get(GPU, 0), WHOLE)
        later = self.expected(workload, queue, request) * gpus // WHOLE
        return max(queued_at + min(later, LONGEST_MS), self.stopped.get(workload.ref.uid, 0))

    def behind(self, rules: Rules, uid: str) -> int:
        """The delay in rank for the service attained by a job, ms."""
        return self.service.level(rules, uid) * LEVEL_MS


# --- state ------------------------------------------------------------------------------------------------------------


class SorterState(StageState):
    """The queues, and further state for decisions."""

    queues: Queues = field(default_factory=Queues)
    causes: dict[str, Cause] = field(default_factory=dict)
    """workload uid -> the newest event that may cause its change of standing"""
    learned: Learned = field(default_factory=Learned)
    """The run times of jobs, where a tree orders by run times."""
    circles: Circles = field(default_factory=Circles)
    """Jobs tried again and again without a result or a change."""
    lineup: Lineup = field(default_factory=Lineup)
    looked: int = 0
    """``Ledger.changes`` when the sorter looked for other flavors last."""
    due: dict[str, None] = field(default_factory=dict)
    """uids of workloads with a possible change of standing"""
