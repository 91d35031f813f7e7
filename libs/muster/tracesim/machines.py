"""The machines of a simulation: the running jobs, their ends, and the effects of lost nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

from msgspec import Struct

from muster.model.resources import Vector
from muster.tracesim.faults import FaultSchedule
from muster.tracesim.model import Trace, TraceJob
from muster.tracesim.pool import Pool


class Running(Struct):
    """A job that runs."""

    request: Vector
    began: int
    number: int
    """Tells its end from those of earlier runs."""
    idle: int = 0
    """How long it does no work at first, ms."""


class NodeChange(Struct):
    """What a fault, or its repair, changes."""

    lost: list[str]
    back: list[str]
    stopped: list[str]
    """Jobs that ran there, in the order in which they began."""


class Machines:
    """One pool of everything the nodes have; a job takes all it asks for or does not run.

    Jobs have no places in a pool: when nodes are lost, as many of the running ones stop as no longer fit, drawn from
    the seed. Policies of the engine with nodes know better (``change``).
    """

    def __init__(self, trace: Trace, nodes: dict[str, Vector], faults: FaultSchedule, seed: int) -> None:
        self.pool = Pool(trace.cluster.capacity)
        self.capacity = dict(trace.cluster.capacity)
        """The sum of all nodes without the lost nodes."""
        self.running: dict[str, Running] = {}
        self._nodes = nodes
        self._limited = tuple(trace.cluster.capacity)
        self._faults = faults
        self._moments = faults.moments()
        self._lost: set[str] = set()
        self._rng = Random(f"machines-{seed}")  # noqa: S311 -- repeatable on purpose
        self._ends: list[tuple[int, int, str]] = []
        self._count = 0

    def start(self, uid: str, request: Vector, now: int, left: int | None, idle: int = 0) -> bool:
        """Start a job that has ``left`` ms to work (None: for ever) after ``idle`` ms of none, if there is room."""
        if not self.hold(uid, request, now):
            return False
        self.begin(uid, now, left, idle)
        return True

    def hold(self, uid: str, request: Vector, now: int) -> bool:
        """Keep room for a job before work begins, if there is room."""
        if not self.pool.take(request):
            return False
        self._count += 1
        self.running[uid] = Running(request, now, self._count)
        return True

    def begin(self, uid: str, now: int, left: int | None, idle: int = 0) -> None:
        """A job with room begins."""
        run = self.running[uid]
        run.began, run.idle = now, idle
        if left is not None:
            heappush(self._ends, (now + idle + max(left, 0), run.number, uid))

    def stop(self, uid: str) -> Running:
        """The job no longer runs."""
        run = self.running.pop(uid)
        self.pool.give(run.request)
        return run

    def next_end(self) -> int | None:
        """When the next job has run its time."""
        while self._ends:
            at, number, uid = self._ends[0]
            run = self.running.get(uid)
            if run is not None and run.number == number:
                return at
            heappop(self._ends)
        return None

    def ended(self, now: int) -> list[str]:
        """Jobs whose run time is over by ``now``: these no longer run."""
        names: list[str] = []
        while (at := self.next_end()) is not None and at <= now:
            uid = heappop(self._ends)[2]
            self.stop(uid)
            names.append(uid)
        return names

    def next_change(self, after: int) -> int | None:
        """When nodes are lost or repaired next."""
        return next((at for at in self._moments if at > after), None)

    def change(self, now: int, hit: Callable[[Sequence[str]], set[str]] | None = None) -> NodeChange | None:
        """Lose and repair nodes as the faults say; None when nothing changes. ``hit``: the jobs on lost nodes, where
        jobs have places.
        """
        lost = self._faults.lost(now)
        gone, back = sorted(lost - self._lost), sorted(self._lost - lost)
        if not gone and not back:
            return None
        self._lost = lost
        for names, times in ((gone, -1), (back, 1)):
            for name in names:
                amounts = {key: self._nodes[name].get(key, 0) for key in self._limited}
                self.pool.add(amounts, times)
                self.capacity = {key: self.capacity[key] + amount * times for key, amount in amounts.items()}
        stopped = hit(gone) if hit is not None else self._drawn()
        for uid in stopped:
            self.pool.give(self.running[uid].request)
        listed = [uid for uid in self.running if uid in stopped]
        return NodeChange(gone, back, listed)

    def _drawn(self) -> set[str]:
        """Running jobs, until the others fit."""
        stopped: set[str] = set()
        free = dict(self.pool.free)
        order = sorted(self.running)
        self._rng.shuffle(order)
        for uid in order:
            if min(free.values(), default=0) >= 0:
                break
            request = self.running[uid].request
            if any(free[name] < 0 for name in request if name in free):
                stopped.add(uid)
                free = {name: amount + request.get(name, 0) for name, amount in free.items()}
        return stopped

    def forget(self, uid: str) -> Running:
        """A job stopped by a change; its resources are free already."""
        return self.running.pop(uid)


PATIENCE_MS = 30 * 24 * 3_600_000
"""So long after the last that happened deadlines are met. What waits longer waits for a job that never ends, and the
stages would look again for ever.
"""


class VirtualTime:
    """Lets time pass from one happening to the next. Subclasses define a moment."""

    def __init__(self, trace: Trace, machines: Machines, faults: FaultSchedule) -> None:
        self.trace = trace
        self.machines = machines
        self.faults = faults
        self.now = 0
        self.ended = 0

    def next_happening(self) -> int | None:
        """When something happens on the machines besides ends and changes."""
        return None

    def next_deadline(self) -> int | None:
        """When there is something to do though nothing happens."""
        return None

    def deadline(self) -> None:
        """That moment has come, and nothing else has happened."""

    def moment(self, arrivals: list[TraceJob]) -> None:
        """``now`` has moved on: something ended, something arrives, or nodes changed."""
        raise NotImplementedError

    def run(self, until: int | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Let everything happen, up to ``until`` (ms, exclusive) if given."""
        jobs = self.trace.jobs
        index = 0
        changed = -1
        while True:
            change = self.machines.next_change(changed)
            arrival = jobs[index].submit if index < len(jobs) else None
            nexts = [at for at in (self.machines.next_end(), self.next_happening(), arrival) if at is not None]
            if change is not None and (nexts or self.machines.running or self.unfinished()):
                nexts.append(change)
            happens = max(self.faults.answered(min(nexts)), self.now) if nexts else None
            deadline = self.next_deadline()
            if happens is None and deadline is not None and deadline > max(changed, 0) + PATIENCE_MS:
                return
            times = [at for at in (happens, deadline) if at is not None]
            if not times or (until is not None and min(times) >= until):
                return
            self.now = max(min(times), self.now)
            if happens is not None and self.now >= happens:
                changed = max(changed, self.now)
                first = index
                while index < len(jobs) and jobs[index].submit <= self.now:
                    index += 1
                self.moment(list(jobs[first:index]))
            else:
                self.deadline()
            if progress is not None:
                progress(self.ended)

    def unfinished(self) -> bool:
        """Whether a job waits."""
        raise NotImplementedError


def node_capacities(trace: Trace) -> dict[str, Vector]:
    """Name -> what a node has, in the order of the file."""
    groups = [group for group in trace.cluster.groups for _ in range(group.count)]
    return {f"node-{index:04}": group.capacity for index, group in enumerate(groups)}
