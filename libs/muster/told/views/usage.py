"""The use, loss and waiting over a time, by queue or owner: amounts times duration, from the log alone. Pure.

In base units times milliseconds. Each job counts by its charge, or by its request for a waiting job. Use lasts from
the reservation of the quota to the release. Loss is the part of the use in runs that were evicted or failed, from the
start of the run or the last checkpoint to the end of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from muster.core.workloads.registry import is_job
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished
from muster.model.keys import Ref
from muster.model.resources import Vector, add_into
from muster.told.readmodel.readstate import ReadState

By = Literal["queue", "owner"]


class Sums(Struct):
    """The sums of one queue or owner."""

    used: Vector = field(default_factory=dict)
    lost: Vector = field(default_factory=dict)
    waited: Vector = field(default_factory=dict)
    runs: int = 0
    """How many times a job got quota."""


class _Open(Struct):
    """A job since the last look: the charge, or the request while ``waits``."""

    key: str
    amounts: Vector
    waits: bool
    since: int
    run: dict[str, Vector] = field(default_factory=dict)
    """By key, the use of the present run that would be lost with the run: a quota may move to another parent."""
    began: int = 0
    saved: int = 0
    """Log times (ms) of the start of the run and of the last checkpoint."""


class UsageAccount:
    """The sums from ``begin`` to ``end`` (log time, ms); ``state``: as of a position that is not after ``begin``."""

    def __init__(self, state: ReadState, by: By, begin: int, end: int) -> None:
        self._state, self._by = state, by
        self.begin, self._end = max(begin, state.now), end
        self._open: dict[str, _Open] = {}
        self._succeeded: set[str] = set()
        self._nodes = state.queues.ledger.nodes
        """The quotas at the last commit; another table once a tree has changed."""
        self.sums: dict[str, Sums] = {}
        for uid in (*state.queues.ledger.charges, *state.queues.jobs):
            self._look(uid, self.begin, starts=False)

    def folded(self, stored: Stored) -> None:
        """The state has folded one more commit."""
        now = self._time(self._state.now)
        if self._nodes is not self._state.queues.ledger.nodes:
            self._nodes = self._state.queues.ledger.nodes
            for uid in list(self._open):
                self._look(uid, now, starts=self._state.now >= self.begin)
        for event in stored.commit.events:
            if isinstance(event, WorkloadFinished) and event.outcome == "succeeded":
                self._succeeded.add(event.ref.uid)
            for ref in _about(event):
                self._look(ref.uid, now, starts=self._state.now >= self.begin)

    def close(self, now: int) -> dict[str, Sums]:
        """The sums, with the jobs that last until ``now`` or the end."""
        for uid in list(self._open):
            self._add(self._open[uid], self._time(now))
        return self.sums

    def _time(self, now: int) -> int:
        return min(max(now, self.begin), self._end)

    def _look(self, uid: str, now: int, *, starts: bool) -> None:
        before = self._open.get(uid)
        if before is not None:
            self._add(before, now)
            self._run(uid, before)
        after = self._now(uid, now)
        if after is None:
            if before is not None:
                del self._open[uid]
                self._succeeded.discard(uid)
            return
        if before is not None and before.waits == after.waits:
            before.key, before.amounts = after.key, after.amounts
        else:
            self._open[uid] = after
            if not after.waits and starts:
                self._of(after.key).runs += 1
        self._run(uid, self._open[uid])

    def _add(self, job: _Open, now: int) -> None:
        """Add the charge or the request of a job since the last look."""
        ms, job.since = max(now - job.since, 0), max(now, job.since)
        add_into(self._of(job.key).waited if job.waits else self._of(job.key).used, job.amounts, ms)
        if job.began:
            self._runs_on(job, ms)

    @staticmethod
    def _runs_on(job: _Open, ms: int) -> None:
        add_into(job.run.setdefault(job.key, {}), job.amounts, ms)

    def _run(self, uid: str, job: _Open) -> None:
        """A run begins, has saved its work, or has ended. At the end the use is lost, unless the job succeeded."""
        record, workload = self._state.records.get(uid), self._state.queues.workloads.get(uid)
        running = record.running_at if record is not None and uid in self._state.queues.ledger.charges else 0
        if job.began and not running:
            if uid not in self._succeeded and (workload is None or workload.outcome != "succeeded"):
                for key, amounts in job.run.items():
                    add_into(self._of(key).lost, amounts)
            job.run, job.began = {}, 0
        elif running and not job.began:
            job.began, job.run = running, {}
            self._runs_on(job, max(job.since - max(running, self.begin), 0))
        saved = workload.checkpointed_at if workload is not None else 0
        if saved > max(job.saved, job.began) and job.began:
            job.saved, job.run = saved, {}
            self._runs_on(job, max(job.since - max(saved, self.begin), 0))

    def _now(self, uid: str, now: int) -> _Open | None:
        queues = self._state.queues
        charge, job, workload = queues.ledger.charges.get(uid), queues.jobs.get(uid), queues.workloads.get(uid)
        if charge is not None:
            return _Open(self._key(uid, charge.queue), dict(charge.request), waits=False, since=now)
        if job is not None and workload is not None and job.status != "charged":
            return _Open(self._key(uid, job.queue), dict(job.demand.request), waits=True, since=now)
        return None

    def _key(self, uid: str, queue: str) -> str:
        if self._by == "queue":
            return queue
        record = self._state.records.get(uid)
        return record.owner if record is not None else ""

    def _of(self, key: str) -> Sums:
        return self.sums.setdefault(key, Sums())


def _about(event: Event) -> Iterator[Ref]:
    """The jobs an event may have changed something of."""
    for name in ("ref", "owner"):
        ref = getattr(event, name, None)
        if isinstance(ref, Ref):
            yield ref
    workload = getattr(event, "workload", None)
    if workload is not None and is_job(workload.ref.kind):
        yield workload.ref
    if isinstance(event, EvictionOrdered):
        for victim in event.victims:
            yield victim.ref
