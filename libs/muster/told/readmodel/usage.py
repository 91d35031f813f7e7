"""The use, loss and waiting over a time, by queue and owner: amounts times duration, from the log alone. Pure.

In base units times milliseconds. Each job counts by its charge, or by its request for a waiting job. Use lasts from
the reservation of the quota to the release. Loss is the part of the use in runs that were evicted or failed, from the
start of the run or the last checkpoint to the end of the run.

The read model keeps an account of the present month and the sums of earlier months, so that no reader
adds them up again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol

from msgspec import Struct, field

from muster.core.queueing.queues import Queues
from muster.core.workloads.registry import is_job
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, QuotaTreeAccepted, QuotaTreeRemoved
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished
from muster.model.keys import Ref
from muster.model.resources import Vector, add_into

By = Literal["queue", "owner"]

MONTHS_KEPT = 13
"""Ended months whose sums are kept."""


class ChargedRun(Protocol):
    """The record of a job."""

    @property
    def owner(self) -> str: ...

    @property
    def running_at(self) -> int: ...


class Folded(Protocol):
    """The read model."""

    @property
    def now(self) -> int: ...

    @property
    def queues(self) -> Queues: ...

    @property
    def records(self) -> Mapping[str, ChargedRun]: ...


PART = 1 << 40
Areas = dict[str, tuple[int, int]]
"""resource -> amount x time as (parts of ``PART``, rest): a month of bytes has more than 64 bits, and no place in a
snapshot.
"""


class Sums(Struct):
    """The sums of one queue or owner."""

    used: Vector = field(default_factory=dict)
    lost: Vector = field(default_factory=dict)
    waited: Vector = field(default_factory=dict)
    runs: int = 0
    """How many times a job got quota."""


class KeptSums(Struct):
    """The same, as a state keeps it."""

    used: Areas = field(default_factory=dict)
    lost: Areas = field(default_factory=dict)
    waited: Areas = field(default_factory=dict)
    runs: int = 0

    def add_to(self, sums: Sums) -> None:
        """Add these sums to others."""
        for areas, vector in ((self.used, sums.used), (self.lost, sums.lost), (self.waited, sums.waited)):
            add_into(vector, {name: parts * PART + rest for name, (parts, rest) in areas.items()})
        sums.runs += self.runs


def accrue(areas: Areas, amounts: Mapping[str, int], ms: int) -> None:
    """Add amounts times a duration."""
    for name, amount in amounts.items():
        parts, rest = areas.get(name, (0, 0))
        areas[name] = divmod(parts * PART + rest + amount * ms, PART)


class Month(Struct, frozen=True):
    """The sums of an ended month. Times are log times in ms."""

    begin: int
    """The first moment of the month, or the first of the log."""
    end: int
    sums: dict[str, KeptSums]
    """``QUEUE NEWLINE OWNER`` -> sums"""


class _Open(Struct):
    """A job since the last look: the charge, or the request while ``waits``."""

    key: str
    """``QUEUE NEWLINE OWNER``"""
    amounts: Vector
    waits: bool
    since: int
    run: dict[str, Areas] = field(default_factory=dict)
    """By key, the use of the present run that would be lost with the run: a quota may move to another parent."""
    began: int = 0
    saved: int = 0
    """Log times (ms) of the start of the run and of the last checkpoint."""


class Months(Struct):
    """The sums from ``begin`` to ``end`` (log time, ms). All that changes takes the read model after the change."""

    begin: int = 0
    end: int = 0
    open: dict[str, _Open] = field(default_factory=dict)
    """uid -> the job, charged or waiting"""
    succeeded: dict[str, None] = field(default_factory=dict)
    sums: dict[str, KeptSums] = field(default_factory=dict)
    """``QUEUE NEWLINE OWNER`` -> sums"""
    stirred: dict[str, None] = field(default_factory=dict)
    """uids to look at when the commit is folded"""

    def start(self, state: Folded, begin: int, end: int) -> None:
        """Begin again; ``state``: as of a position that is not after ``begin``."""
        self.begin, self.end = begin, end
        self.open, self.succeeded, self.sums = {}, {}, {}
        for uid in (*state.queues.ledger.charges, *state.queues.jobs):
            self._look(state, uid, self.begin, starts=False)

    def hear(self, event: Event) -> None:
        """Note what an event may have changed something of."""
        if isinstance(event, WorkloadFinished) and event.outcome == "succeeded":
            self.succeeded[event.ref.uid] = None
        if isinstance(event, QuotaTreeAccepted | QuotaTreeRemoved):
            self.stirred.update(dict.fromkeys(self.open))  # Queues may have other parents.
        for ref in _about(event):
            self.stirred[ref.uid] = None

    def settle(self, state: Folded) -> None:
        """A commit is folded."""
        now = self._time(state.now)
        for uid in self.stirred:
            self._look(state, uid, now, starts=state.now >= self.begin)
        self.stirred.clear()

    def close(self, now: int) -> dict[str, KeptSums]:
        """The sums, with the jobs that last until ``now`` or the end. The account is of no use afterwards."""
        for job in self.open.values():
            self._add(job, self._time(now))
        return self.sums

    def _time(self, now: int) -> int:
        return min(max(now, self.begin), self.end)

    def _look(self, state: Folded, uid: str, now: int, *, starts: bool) -> None:
        before = self.open.get(uid)
        if before is not None:
            self._add(before, now)
            self._run(state, uid, before)
        after = self._now(state, uid, now)
        if after is None:
            self.open.pop(uid, None)
            self.succeeded.pop(uid, None)
            return
        if before is not None and before.waits == after.waits:
            before.key, before.amounts = after.key, after.amounts
        else:
            self.open[uid] = after
            if not after.waits and starts:
                self._of(after.key).runs += 1
        self._run(state, uid, self.open[uid])

    def _add(self, job: _Open, now: int) -> None:
        """Add the charge or the request of a job since the last look."""
        ms, job.since = max(now - job.since, 0), max(now, job.since)
        accrue(self._of(job.key).waited if job.waits else self._of(job.key).used, job.amounts, ms)
        if job.began:
            self._runs_on(job, ms)

    @staticmethod
    def _runs_on(job: _Open, ms: int) -> None:
        accrue(job.run.setdefault(job.key, {}), job.amounts, ms)

    def _run(self, state: Folded, uid: str, job: _Open) -> None:
        """A run begins, has saved its work, or has ended. At the end the use is lost, unless the job succeeded."""
        record, workload = state.records.get(uid), state.queues.workloads.get(uid)
        running = record.running_at if record is not None and uid in state.queues.ledger.charges else 0
        if job.began and not running:
            if uid not in self.succeeded and (workload is None or workload.outcome != "succeeded"):
                for key, areas in job.run.items():
                    for name, (parts, rest) in areas.items():
                        accrue(self._of(key).lost, {name: parts * PART + rest}, 1)
            job.run, job.began = {}, 0
        elif running and not job.began:
            job.began, job.run = running, {}
            self._runs_on(job, max(job.since - max(running, self.begin), 0))
        saved = workload.checkpointed_at if workload is not None else 0
        if saved > max(job.saved, job.began) and job.began:
            job.saved, job.run = saved, {}
            self._runs_on(job, max(job.since - max(saved, self.begin), 0))

    @staticmethod
    def _now(state: Folded, uid: str, now: int) -> _Open | None:
        queues = state.queues
        charge, job, workload = queues.ledger.charges.get(uid), queues.jobs.get(uid), queues.workloads.get(uid)
        if charge is not None:
            return _Open(_key(state, uid, charge.queue), dict(charge.request), waits=False, since=now)
        if job is not None and workload is not None and job.status != "charged":
            return _Open(_key(state, uid, job.queue), dict(job.demand.request), waits=True, since=now)
        return None

    def _of(self, key: str) -> KeptSums:
        return self.sums.setdefault(key, KeptSums())


class UsageBooks(Struct):
    """The account of the present month, UTC by log time, and the sums of earlier months, the oldest first."""

    account: Months = field(default_factory=Months)
    months: list[Month] = field(default_factory=list)

    def time_passed(self, state: Folded) -> None:
        """Log time has passed, and nothing of the commit is folded: at the end of a month another account begins."""
        account = self.account
        while state.now >= account.end:
            if account.end:
                ended = Month(account.begin, account.end, account.close(account.end))
                self.months = [*self.months, ended][-MONTHS_KEPT:]
            begin = account.end or state.now
            account.start(state, begin, next_month(begin))


class Adding:
    """An account of its own over any time, while a read model is folded."""

    def __init__(self, state: Folded, begin: int, end: int) -> None:
        """``state``: as of a position that is not after ``begin``."""
        self.account, self._state = Months(), state
        self.account.start(state, max(begin, state.now), end)

    def folded(self, stored: Stored) -> None:
        """The state has folded one more commit."""
        for event in stored.commit.events:
            self.account.hear(event)
        self.account.settle(self._state)


def next_month(ms: int) -> int:
    """The first moment after the month of a log time, UTC, ms."""
    at = datetime.fromtimestamp(ms // 1000, UTC)
    return int(datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC).timestamp()) * 1000


def by(sums: Mapping[str, KeptSums], whose: By) -> dict[str, Sums]:
    """The sums of an account by queue, or by owner."""
    added: dict[str, Sums] = {}
    for key, kept in sums.items():
        queue, _, owner = key.partition("\n")
        kept.add_to(added.setdefault(queue if whose == "queue" else owner, Sums()))
    return added


def _key(state: Folded, uid: str, queue: str) -> str:
    record = state.records.get(uid)
    return f"{queue}\n{record.owner if record is not None else ''}"


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
