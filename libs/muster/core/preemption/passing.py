"""Ageing: a waiting job ages as later work passes it.

Work passes a waiting job when it came to wait later and starts earlier. It passes at each node of the tree that both
share. Work of higher priority does not count. A job is *aged* once ``WIDTHS_TO_AGE`` times its own width has passed it.
Where jobs start in the order of coming no job ages, however long the line is.

Quota held for an aged job is idle until enough has ended. It may be idle for a tenth of the time that the job has
waited, and is not held where that is expected to be too short: work is expected to run for as long again as it has run.

Starts are counted together. Once an eighth of a node's limit has started there, the node looks at the jobs that wait
below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from muster.core.laterstarts import LaterStart, Starts
from muster.core.queueing.queues import Job, Queues
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.idling import limit_of
from muster.core.quota.ledger.quotaledger import Ledger
from muster.model.demand import Shortfall
from muster.model.quota import WAIT_PART, WIDTHS_TO_AGE
from muster.model.resources import Vector, add_into


class Arrival(Struct):
    """A job that waits, or runs."""

    number: int
    """The place in the order of coming; a job stopped in its run counts as a new one."""
    queue: str
    since: int = 0
    """Log time (ms) of the first queueing under this number."""
    passed: dict[str, Vector] = field(default_factory=dict)
    """node -> the amounts that have passed the job there, as of the node's last look"""

    def is_aged_at(self, path: str, name: str, asked: int) -> bool:
        return asked > 0 and self.passed.get(path, {}).get(name, 0) >= WIDTHS_TO_AGE * asked


class Passing(Struct):
    """The order in which jobs came to wait, and what has passed those that still wait."""

    came: int = 0
    arrivals: dict[str, Arrival] = field(default_factory=dict)
    """uid -> a job that waits, or runs"""
    starts: dict[str, Starts] = field(default_factory=dict)
    """node with a limit -> its starts"""
    aged: dict[str, dict[str, None]] = field(default_factory=dict)
    """queue -> uids of the waiting jobs that have aged at some node, as of the last looks"""
    running: dict[str, int] = field(default_factory=dict)
    """uid of an admitted job -> log time (ms) of the admission, in order"""

    def comes(self, uid: str, queue: str, now: int) -> None:
        """A job is queued; where it has not run since it was queued first, it keeps its number and its age."""
        arrival = self.arrivals.get(uid)
        if arrival is None:
            self.came += 1
            self.arrivals[uid] = Arrival(self.came, queue, now)
        elif arrival.queue != queue:
            was_aged = self._ages_no_more(uid)
            arrival.queue = queue
            if was_aged:
                self._ages(uid)

    def started(self, job: Job, queues: Queues, now: int) -> None:
        arrival = self.arrivals.get(job.ref.uid)
        if arrival is None:
            return
        self.running.pop(job.ref.uid, None)  # Of an admission without a run.
        self.running[job.ref.uid] = now
        arrival.passed.clear()
        self._ages_no_more(job.ref.uid)
        if not queues.book.waiting:  # None of the starts so far has passed a job that comes from here on.
            self.starts.clear()
            return
        start = LaterStart(job.priority, arrival.number, counted(job.demand))
        for path in chain_of(job.queue):
            limits = {name: limit_of(queues.ledger, path, name) for name in start.amounts}
            if not any(limits.values()):
                continue
            if self.starts.setdefault(path, Starts()).add(start, limits):
                self._look(path, queues)

    def left(self, uid: str) -> None:
        """The job was stopped in its run, or is gone."""
        self._ages_no_more(uid)
        self.arrivals.pop(uid, None)
        self.running.pop(uid, None)

    def idles_ms(self, uid: str, now: int) -> int:
        """How long quota may be idle for a waiting job."""
        return (now - self.arrivals[uid].since) // WAIT_PART

    def expected_idle(self, top: Shortfall, ledger: Ledger, now: int) -> int | None:
        """What is idle of the short resource, times ms, until its node has room; None without an expected end. Work
        that was never queued is not expected to end.
        """
        below, free, idle, at = f"{top.path}/", max(top.asked - top.missing, 0), 0, now
        for uid, began in reversed(self.running.items()):
            if free >= top.asked:
                break
            charge = ledger.charges.get(uid)
            if charge is not None and (charge.queue == top.path or charge.queue.startswith(below)):
                idle += free * (at - began)
                free, at = free + counted(charge.demand).get(top.resource, 0), began
        return idle if free >= top.asked else None

    def in_order(self, uids: Iterable[str]) -> list[str]:
        """Jobs in the order of coming."""
        return sorted(uids, key=lambda uid: self.arrivals[uid].number)

    def _ages(self, uid: str) -> None:
        self.aged.setdefault(self.arrivals[uid].queue, {})[uid] = None

    def _ages_no_more(self, uid: str) -> bool:
        """Take the job from the aged jobs; whether the job was one of them."""
        arrival = self.arrivals.get(uid)
        aged = self.aged.get(arrival.queue, {}) if arrival is not None else {}
        if arrival is None or uid not in aged:
            return False
        del aged[uid]
        if not aged:
            del self.aged[arrival.queue]
        return True

    def _look(self, path: str, queues: Queues) -> None:
        """Add the starts at a node to the amounts that have passed the jobs waiting below."""
        passed = self.starts.pop(path).passed()
        for job in _waiting_below(path, queues):
            arrival = self.arrivals.get(job.ref.uid)
            if arrival is None:
                continue
            amounts = passed(arrival.number, job.priority)
            if amounts:
                add_into(arrival.passed.setdefault(path, {}), amounts)
            if any(arrival.is_aged_at(path, name, asked) for name, asked in counted(job.demand).items()):
                self._ages(job.ref.uid)


def _waiting_below(path: str, queues: Queues) -> Iterator[Job]:
    lines = queues.book.lines
    below = [path] if path in lines else [queue for queue in lines if queue.startswith(f"{path}/")]
    return (queues.jobs[place.uid] for queue in below for place, _ in lines[queue])
