"""The queue, played forward: the start of each job if no job came and every job ran as long as similar jobs did.

The rules are those of the sorter and the ledger, simplified. The best queue goes first (priority, then the order of its
tree; KAI queues are ordered like other queues), in the queue its best job. Every job that fits passes a job that does
not. A released amount wakes the jobs parked on the amount. Later jobs, evictions and nodes are left out: calibration
learns their effect. In the place of later jobs no job passes a head that has waited for ``WAITS_MS``, at the node of
its refusal. All numbers are integers; equal queues have equal times, in any order of their entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from msgspec import Struct, field

from muster.core.learned import Durations, kinds_of, stem_of
from muster.core.queueing.book import Place, Shape
from muster.core.queueing.queueorder import Turn, turn_of, used_first
from muster.core.queueing.queues import Queues
from muster.core.quota.claims import Claim
from muster.core.quota.demand import Scratch, chain_of, counted, left_by
from muster.model.demand import Demand

LEAVING_MS = 30_000
"""The time until the release of quota, for an ended or evicted job."""
WAITS_MS = 600_000
"""The wait of a head after which no job passes it: later jobs are left out, and would make the head late."""
MAX_STARTS = 50_000
"""The most jobs started in a projection: jobs behind these have no time."""

Slot = tuple[str, str]
"""Path of a node, and a limited resource of the node."""
_Turn = tuple[Turn, str]
"""The sort key of a queue, and the path of the queue."""


class Projected(Struct, frozen=True):
    """The projected start of a job, ms from now. ``owed``: within a guarantee, so that victims make room."""

    wait: int
    owed: bool = False


class _Line(Struct):
    """The waiting jobs of a shape, in order. ``next``: the number of started jobs."""

    queue: str
    demand: Demand
    waiting: list[Place]
    next: int = 0
    needs: list[tuple[Slot, int]] = field(default_factory=list)

    @property
    def head(self) -> Place:
        return self.waiting[self.next]


class _Queue(Struct):
    """A queue with the lines to try."""

    path: str
    heads: list[tuple[Place, str]] = field(default_factory=list)
    blocking: bool = False
    blocked: int = 0
    """The number of parked lines, in a queue where no job passes the head."""
    priority: int = 0
    order: str = ""
    used: dict[str, int] = field(default_factory=dict)
    """line -> used part of the queue in the order of turns, until the next start or end in the queue"""
    turn: Turn | None = None
    """The valid entry among the turns; older entries stay there and are skipped."""


class Projection:
    """The queues as of now; :meth:`run` plays the queues forward."""

    def __init__(self, queues: Queues, running: Mapping[str, int], durations: Durations, now: int) -> None:
        """``running``: uid of a charged workload -> log time (ms) of the start of its run; 0 or absent before the
        start.
        """
        self._state = queues
        self._ledger = queues.ledger
        self._durations = durations
        self._now = now
        self._room: dict[Slot, int] = {}
        self._extra = Scratch()
        self._parked: dict[Slot, list[tuple[int, str]]] = {}
        self._ends: list[tuple[int, str, str, Demand]] = []
        self._claims: dict[str, Claim] = {}
        """key of a line -> claim of its head"""
        self._holders: dict[Slot, str] = {}
        """slot -> key of the line with a head that no job passes there"""
        self._behind: dict[Slot, dict[str, None]] = {}
        """slot -> keys of the lines that wait for the start of this head"""
        self._aging: list[tuple[int, str, str]] = []
        """(time at which a parked head will have waited for ``WAITS_MS``, uid of the head, its line)"""
        self._resting: dict[str, Slot] = {}
        """key of a parked line -> where"""
        self._known: dict[tuple[str, str, str], int | None] = {}
        self._lines: dict[str, _Line] = {}
        self._queues: dict[str, _Queue] = {}
        self.found: dict[str, Projected] = {}
        """workload uid -> projected start"""
        self.steps = 0
        """The work of the projection: starts and releases."""
        for uid, charge in queues.ledger.charges.items():
            self._ends.append((self._end_of(uid, running.get(uid, 0)), uid, charge.queue, charge.demand))
        heapify(self._ends)
        for key, shape in queues.book.shapes.items():
            if shape.waiting and "admissions" not in queues.resting(shape.queue) and not self._is_behind(shape):
                self._join(key, shape)
        for claim in queues.ledger.claims.by_uid.values():
            self._hold(claim)

    def _is_behind(self, shape: Shape) -> bool:
        """Whether jobs of the shape may not pass a job that waits for room on the nodes. The time of such room is
        unknown.
        """
        blocking = self._state.is_blocking(shape.queue)
        return blocking and bool(self._state.without_place(shape.queue, shape.waiting[0]))

    def _hold(self, claim: Claim) -> None:
        """No job passes a claimant at the nodes of its claim."""
        job = self._state.jobs.get(claim.uid)
        line = self._lines.get(job.shape) if job is not None else None
        if job is not None and line is not None and line.head.uid == claim.uid:
            paths = set(claim.paths())
            self._claims[job.shape] = claim
            for slot, _ in line.needs:
                if slot[0] in paths:
                    self._holders.setdefault(slot, job.shape)

    def _end_of(self, uid: str, since: int) -> int:
        """The time (ms from now) at which a charged workload releases its quota."""
        workload, charge = self._state.workloads.get(uid), self._ledger.charges[uid]
        if workload is None or workload.phase in ("finished", "suspending") or uid in self._ledger.going:
            return LEAVING_MS
        kinds = kinds_of(charge.namespace, workload.ref.name, charge.queue, charge.request)
        ran = max(self._now - since, 0) if since else 0
        return self._durations.left(kinds, ran) or 0

    def _join(self, key: str, shape: Shape) -> None:
        """A shape takes part, unless its request exceeds a limit on its path: no end of another job
        helps such a shape.
        """
        line = _Line(shape.queue, shape.demand, shape.waiting)
        amounts = counted(shape.demand)
        for path in chain_of(shape.queue):
            node = self._ledger.nodes.get(path)
            if node is None:
                continue
            for name in sorted(amounts):
                limit = self._ledger.limit(node, name)
                if limit is None or not amounts[name]:
                    continue
                if amounts[name] > limit:
                    return
                slot = (path, name)
                if slot not in self._room:
                    self._room[slot] = limit - self._ledger.used.get(path, {}).get(name, 0)
                line.needs.append((slot, amounts[name]))
        self._lines[key] = line
        queue = self._queues.get(shape.queue)
        if queue is None:
            blocking = self._state.is_blocking(shape.queue)
            priority, order = self._state.queue_priorities.get(shape.queue, 0), self._state.order(shape.queue)
            queue = _Queue(shape.queue, blocking=blocking, priority=priority, order=order)
            self._queues[shape.queue] = queue
        heappush(queue.heads, (line.head, key))

    # --- forward ----------------------------------------------------------------------------------------------

    def run(self, until: str = "", *, beyond: int = 0, most: int = MAX_STARTS) -> None:
        """Play forward until job ``until`` and ``beyond`` further jobs have started, or ``most`` jobs in all, or no job
        can start.
        """
        turns: list[_Turn] = []
        for queue in self._queues.values():
            self._turn(turns, queue)
        now = 0
        while True:
            self._start_all(turns, now)
            if until and until in self.found:
                most, until = min(most, len(self.found) + beyond), ""
            if not self._ends or len(self.found) >= most:
                return
            now = max(now, self._ends[0][0])
            self._age(now)
            while self._ends and self._ends[0][0] <= now:
                self._release(turns)

    def _age(self, now: int) -> None:
        """Parked heads past ``WAITS_MS`` hold their slots, the highest priority first."""
        aged: list[tuple[Place, str]] = []
        while self._aging and self._aging[0][0] <= now:
            _, uid, key = heappop(self._aging)
            if key in self._resting and self._lines[key].head.uid == uid:
                aged.append((self._lines[key].head, key))
        for _, key in sorted(aged):
            self._holders.setdefault(self._resting[key], key)

    def _order(self, queue: _Queue) -> Turn:
        """The sort key of a queue: as in the sorter, with KAI queues ordered like other queues."""
        place, key = queue.heads[0]
        used = queue.used.get(key)
        if used is None:
            used = used_first(self._ledger, queue.order, queue.path, self._lines[key].demand, self._extra)
            queue.used[key] = used
        return turn_of(queue.priority, used, place.rank)

    def _turn(self, turns: list[_Turn], queue: _Queue) -> None:
        """Enter a queue that may have an earlier turn now."""
        order = self._order(queue)
        if order != queue.turn:
            queue.turn = order
            heappush(turns, (order, queue.path))

    def _start_all(self, turns: list[_Turn], now: int) -> None:
        while turns and len(self.found) < MAX_STARTS:
            before, path = turns[0]
            queue = self._queues[path]
            if before != queue.turn:
                heappop(turns)
                continue
            if not queue.heads or queue.blocked:
                heappop(turns)
                queue.turn = None
                continue
            order = self._order(queue)
            if order != before:
                queue.turn = order
                heapreplace(turns, (order, path))
                continue
            _, key = queue.heads[0]
            line = self._lines[key]
            lacking = next(((slot, asked) for slot, asked in line.needs if self._room[slot] < asked), None)
            held = next((slot for slot, _ in line.needs if self._is_held(slot, key, line.demand, now)), None)
            if lacking is None and held is None:
                self._start(turns, queue, key, now, owed=False)
            elif self._passes(path, lacking[0] if lacking else held, line.demand):
                self._start(turns, queue, key, now, owed=True)
            else:
                self._park(turns, queue, key, now, lacking, held)

    def _is_held(self, slot: Slot, key: str, demand: Demand, now: int) -> bool:
        """Whether a slot is held against the job by the head of another line, which the job would make late."""
        holder = self._holders.get(slot, key)
        claim, at = self._claims.get(holder), self._now + now
        return holder != key and not (claim is not None and claim.lets_in(left_by(at, demand.run_ms), at))

    def _passes(self, path: str, slot: Slot | None, demand: Demand) -> bool:
        """Whether a guarantee opens a slot to a queue: not at its own node, nor against a job of the same queue."""
        holder = self._holders.get(slot) if slot is not None else None
        if slot is None or slot[0] == path or (holder is not None and self._lines[holder].queue == path):
            return False
        return self._ledger.owed(path, demand, self._extra)

    def _park(
        self, turns: list[_Turn], queue: _Queue, key: str, now: int, lacking: tuple[Slot, int] | None, held: Slot | None
    ) -> None:
        heappop(queue.heads)
        queue.blocked += queue.blocking
        if lacking is None:
            assert held is not None
            self._behind.setdefault(held, {})[key] = None
            self._lets_go(turns, key)  # Two heads with held slots of each other would both wait for ever.
            return
        slot, asked = lacking
        heappush(self._parked.setdefault(slot, []), (asked, key))
        self._resting[key] = slot
        uid = self._lines[key].head.uid
        at = self._state.jobs[uid].queued_at + WAITS_MS - self._now
        if at <= now:
            self._holders.setdefault(slot, key)
        else:
            heappush(self._aging, (at, uid, key))

    def _start(self, turns: list[_Turn], queue: _Queue, key: str, now: int, *, owed: bool) -> None:
        line = self._lines[key]
        place = line.head
        self.steps += 1
        self.found[place.uid] = Projected(now, owed)
        for slot, asked in line.needs:
            self._room[slot] -= asked
        self._extra.add(line.queue, line.demand)
        queue.used.clear()
        takes = self._takes(place, key, line)
        if takes is not None:
            heappush(self._ends, (now + takes, place.uid, line.queue, line.demand))
        line.next += 1
        if line.next < len(line.waiting):
            heapreplace(queue.heads, (line.head, key))
        else:
            heappop(queue.heads)
        self._lets_go(turns, key)

    def _lets_go(self, turns: list[_Turn], key: str) -> None:
        """Nothing is held for the head of a line any more."""
        self._claims.pop(key, None)
        for slot in [slot for slot, holder in self._holders.items() if holder == key]:
            del self._holders[slot]
            self._wake(turns, self._behind.pop(slot, {}))

    def _wake(self, turns: list[_Turn], keys: Iterable[str]) -> None:
        """These lines may be tried again."""
        for key in keys:
            line = self._lines[key]
            member = self._queues[line.queue]
            heappush(member.heads, (line.head, key))
            member.blocked -= member.blocking
            self._turn(turns, member)

    def _takes(self, place: Place, key: str, line: _Line) -> int | None:
        namespace, _, name = place.key.rpartition("/")
        kind = (namespace, stem_of(name), key)
        if kind not in self._known:
            kinds = kinds_of(namespace, name, line.queue, line.demand.request)
            self._known[kind] = self._durations.left(kinds, 0)
        return self._known[kind]

    def _release(self, turns: list[_Turn]) -> None:
        _, _, queue, demand = heappop(self._ends)
        self.steps += 1
        self._extra.add(queue, demand, -1)
        own = self._queues.get(queue)
        if own is not None:
            own.used.clear()
        amounts = counted(demand)
        for path in chain_of(queue):
            for name in sorted(amounts):
                slot = (path, name)
                if slot not in self._room:
                    continue
                self._room[slot] += amounts[name]
                parked = self._parked.get(slot, [])
                woken = []
                while parked and parked[0][0] <= self._room[slot]:
                    woken.append(heappop(parked)[1])
                    del self._resting[woken[-1]]
                self._wake(turns, woken)
        if own is not None and own.heads and not own.blocked:
            self._turn(turns, own)  # The queue uses less now, so its turn may be earlier.
