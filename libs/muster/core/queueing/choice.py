"""Which jobs to try now: per queue the best heads of its awake shapes, queues in turn by their order.

At most MAX_OPEN proposals of a queue are unanswered. Chosen jobs fit together beside all open proposals, by the copy of
the ledger. A job of an untried shape is tried in any case: a denial shows which room the whole shape waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace, merge

from muster.core.queueing.book import Place, Rooms, Shape, clear, room_at
from muster.core.queueing.queueorder import Turn, first_turn_with, turn_of, used_first
from muster.core.queueing.queues import Job, job_from
from muster.core.queueing.sorterstate import SorterState
from muster.core.queueing.standing import Standing, may_be_proposed
from muster.core.queueing.turns import SharedTurns, queues_with_room, slots_of
from muster.core.quota.demand import Scratch
from muster.core.stage import MAX_DECISIONS
from muster.events.decisions import Candidate, WorkloadQueued
from muster.model.keys import root_of

MAX_CHOSEN_BYTES = 256 * 1024
"""The approximate most bytes of a proposal: a single event, not to be cut."""

MAX_OPEN = 128
"""Unanswered proposals per leaf queue."""


def choose(state: SorterState, standings: Sequence[Standing]) -> list[Candidate]:
    """The candidates to propose right after ``standings`` (decided and not folded yet), best first."""
    fresh: dict[str, list[Job]] = {}
    skip: set[str] = set()
    for standing in standings:
        skip.add(standing.ref.uid)
        if isinstance(standing, WorkloadQueued) and standing.ref.uid not in state.queues.ledger.charges:
            job = job_from(standing, standing.cause)
            fresh.setdefault(job.shape, []).append(job)
    turns: dict[str, _Turn] = {}
    scratch = Scratch()
    rooms = Rooms(state.queues.ledger, state.queues.proposed, state.now)

    for uid in [*state.queues.ledger.claims.by_uid] if state.queues.proposed.extra else ():
        asking = state.queues.jobs.get(uid)
        if asking is not None and asking.status == "proposed":
            rooms.admits(uid, asking.queue, asking.demand)

    def joined(queue: str) -> _Turn | None:
        if queue not in turns and "admissions" not in state.queues.resting(queue):
            turns[queue] = _Turn(state, queue, skip, rooms)
        return turns.get(queue)

    book = state.queues.book
    again = [key for key, retry in state.queues.retries.items() if retry.at <= state.now]
    for key in dict.fromkeys((*book.untried, *fresh, *again)):
        shape = book.shapes.get(key)
        jobs = fresh.get(key, [])
        if shape is not None and key not in again and not clear(shape, state.queues.ledger):
            continue
        if shape is None and not jobs:
            continue
        turn = joined(shape.queue if shape is not None else jobs[0].queue)
        if turn is not None:
            turn.join(key, shape, jobs, again=key in again)
    news = [job for jobs in fresh.values() for job in jobs]
    members, sure = _members(state, turns, news, joined, rooms), {*turns}
    waiting = (
        (first, turn)
        for first, queue in queues_with_room(state.queues, state.lineup, rooms, scratch)
        if queue not in sure and (turn := joined(queue)) is not None
    )
    return _in_turn(state, members, waiting, scratch, rooms)


def _members(
    state: SorterState,
    turns: Mapping[str, _Turn],
    news: Sequence[Job],
    turn_of: Callable[[str], _Turn | None],
    rooms: Rooms,
) -> list[_Turn | SharedTurns]:
    """The members that take turns: single queues, and trees of fair shares as a whole."""
    by_shares = state.queues.ledger.by_shares
    dividing: dict[str, dict[str, _Turn]] = {root_of(path): {} for path in state.queues.book.roomy if by_shares(path)}
    members: list[_Turn | SharedTurns] = []
    for queue, turn in turns.items():
        if state.queues.ledger.by_shares(queue):
            dividing.setdefault(root_of(queue), {})[queue] = turn
        else:
            members.append(turn)
    return members + [SharedTurns(state, root, below, news, turn_of, rooms) for root, below in dividing.items()]


def _in_turn(
    state: SorterState,
    members: Iterable[_Turn | SharedTurns],
    waiting: Iterator[tuple[Turn, _Turn]],
    scratch: Scratch,
    rooms: Rooms,
) -> list[Candidate]:
    """The heads that fit beside each other, best first. ``waiting``: queues that join at their turn, in order.
    ``scratch``: the demands of the chosen jobs.
    """
    heap: list[tuple[Turn, _Turn | SharedTurns]] = [(turn.at_first(), turn) for turn in members]
    heapify(heap)
    following = next(waiting, None)
    begun: set[str] = set()
    chosen: list[Candidate] = []
    size = 0
    while (heap or following) and len(chosen) < MAX_DECISIONS and size < MAX_CHOSEN_BYTES:
        if following is not None and (not heap or following < heap[0]):
            heappush(heap, following)
            following = next(waiting, None)
            continue
        before, turn = heap[0]
        known = turn.queue in begun
        # The first turn does not depend on the chosen jobs; later turns may find no room beside these.
        if not turn.has_room(scratch) or not turn.advance(scratch if known else Scratch()):
            heappop(heap)
            continue
        begun.add(turn.queue)
        order = turn.order(scratch)
        if order != before or not known:
            heapreplace(heap, (order, turn))
            continue
        job = turn.take()
        size += _BYTES + len(job.shape) + len(job.ref.key) + len(job.queue)
        if not rooms.never_fits(job.queue, job.demand):
            scratch.add(job.queue, job.demand)
            rooms.admits(job.ref.uid, job.queue, job.demand)
        chosen.append(_candidate(state, job))
    return chosen


_BYTES = 256
"""Bytes of a candidate without its texts."""


def _candidate(state: SorterState, job: Job) -> Candidate:
    shape = state.queues.book.shapes.get(job.shape)
    woken = state.queues.book.since(shape) if shape is not None else None
    return Candidate(
        cause=max(job.cause, woken) if woken else job.cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        **job.demand.fields,
        tries=_tries(state, job),
    )


def _tries(state: SorterState, job: Job) -> int:
    if job.queue not in state.queues.backoffs:
        return 0
    retry = state.queues.retries.get(job.shape)
    return retry.tries + 1 if retry is not None else 1


def _is_among(uids: Container[str], job: Job) -> bool:
    return job.ref.uid in uids


class _ShapeLine:
    """The waiting jobs of a shape that take part, in order."""

    def __init__(self, shape: Shape | None, fresh: Sequence[Job], skip: set[str]) -> None:
        known = shape.waiting if shape is not None else ()
        self.jobs = {job.ref.uid: job for job in fresh}
        waiting = (place for place in known if place.uid not in skip)
        self.places = merge(waiting, sorted(job.place for job in fresh)) if fresh else waiting
        self.takes: Callable[[Job], bool] | None = None
        """Which of the waiting jobs may go on; None for all."""
        self.demand = shape.demand if shape is not None else fresh[0].demand
        self.untried = shape is None or (shape.denial is None and not shape.open)
        """The shape has no answer yet: its first job is tried whatever the ledger predicts."""


class _Turn:
    """A queue during the choice of candidates: the heads of its lines, best first."""

    def __init__(self, state: SorterState, queue: str, skip: set[str], rooms: Rooms) -> None:
        self.state = state
        self.rooms = rooms
        self.queue = queue
        self.skip = skip
        self.slots = slots_of(state.queues, queue, rooms)
        """(path, slot) with possible room for shapes of the queue; such shapes join at their turn."""
        self.lines: dict[str, _ShapeLine] = {}
        self.heads: list[tuple[Place, str]] = []
        self.behind: Iterator[tuple[Place, str]] = iter(())
        """(place, key) of the waiting jobs of further shapes that may take part, in order"""
        self.ahead: tuple[Place, str] | None = None
        """The first entry of ``behind``."""
        self.admitted: tuple[Place, str] | None = None
        """The head already known to be ready for a proposal."""
        self.blocking = state.queues.is_blocking(queue)
        """No job overtakes the head of the queue, whether the head may be tried or not, and whatever room the nodes
        have.
        """
        self.sure = False
        """Some shapes of the queue take part whatever is free."""
        self.open = -1

    def __lt__(self, other: _Turn | SharedTurns) -> bool:
        return self.queue < other.queue

    def join(self, key: str, shape: Shape | None, fresh: Sequence[Job], *, again: bool) -> None:
        """A shape takes part, with its jobs about to be queued. ``again``: whatever is free."""
        self.sure = True
        self._line(key, shape, fresh, again=again)

    def _line(self, key: str, shape: Shape | None, fresh: Sequence[Job] = (), *, again: bool = False) -> None:
        line = self.lines[key] = _ShapeLine(shape, fresh, self.skip)
        line.untried = line.untried or again
        head = next(line.places, None)
        if head is not None:
            heappush(self.heads, (head, key))

    def _begin(self) -> None:
        """Find the shapes with room by themselves; each shape takes part from the turn of its first job."""
        book, ledger = self.state.queues.book, self.state.queues.ledger
        self.open = sum([book.shapes[key].open for key in book.queues.get(self.queue, ())])
        rooms = ((slot, room_at(ledger, self.queue, path, slot)) for path, slot in self.slots)
        fitting = {key for slot, room in rooms for key in slot.within(self.queue, room)} - self.lines.keys()
        if fitting:
            self.behind = (entry for entry in book.in_order(self.queue) if entry[1] in fitting)
            self.ahead = next(self.behind, None)

    def _joined(self) -> bool:
        """Add the shapes with a first job before all heads; False when no job is left."""
        while self.ahead is not None and (self.blocking or not self.heads or self.ahead < self.heads[0]):
            key = self.ahead[1]
            if key not in self.lines:
                self._line(key, self.state.queues.book.shapes[key])
            self.ahead = next(self.behind, None)
        return bool(self.heads)

    def has_room(self, scratch: Scratch) -> bool:
        """False where no job of the queue fits beside the chosen jobs."""
        return self.sure or any(
            self.rooms.takes(self.queue, path, slot, slot.asks[self.queue][0][0], scratch) for path, slot in self.slots
        )

    def _is_full(self, key: str, scratch: Scratch) -> bool:
        """Whether a refused shape does not fit beside the chosen jobs, at a glance."""
        shape = self.state.queues.book.shapes.get(key)
        if shape is None or shape.denial is None or self.lines[key].untried:
            return False
        short = shape.denial.short
        return not self.rooms.takes(self.queue, short.path, short, short.asked, scratch)

    def at_first(self) -> Turn:
        """The earliest possible turn of the queue."""
        return first_turn_with(self.state.queues, self.queue, (place.rank for place, _ in self.heads))

    def request(self) -> Mapping[str, int]:
        """The request of the head."""
        return self.lines[self.heads[0][1]].demand.request

    def order(self, scratch: Scratch) -> Turn:
        """Owed before borrowed, then the priority of the queue; then, as the tree says, used/min and age, or age alone
        beyond the guarantees.
        """
        queues, (place, key) = self.state.queues, self.heads[0]
        used = used_first(
            queues.ledger, queues.order(self.queue), self.queue, self.lines[key].demand, queues.proposed, scratch
        )
        return turn_of(queues.queue_priorities.get(self.queue, 0), used, place.rank)

    def advance(self, scratch: Scratch) -> bool:
        """Drop heads until the first may be tried; False when no such head is left."""
        if self.open < 0:
            self._begin()
        if self.open >= MAX_OPEN:
            return False
        if self.blocking and (not self._head_first() or self._passes()) and not self._to_held(here=True):
            return False
        proposed = self.state.queues.proposed
        while self._has_head(scratch):
            place, key = self.heads[0]
            line = self.lines[key]
            now, uid, ledger = self.state.now, place.uid, self.rooms.ledger
            if line.untried or not ledger.shortfall(self.queue, line.demand, proposed, scratch, now=now, uid=uid):
                return True
            if not self.blocking and (held := self._held_in(line)):
                line.takes = partial(_is_among, held)  # Each job with a claim has its own.
                self._next()
            elif not self.blocking:
                heappop(self.heads)
            elif not self._to_held():
                return False
        return False

    def _has_head(self, scratch: Scratch | None = None) -> bool:
        """Drop heads that may not be proposed or do not fit at a glance; False when no head is left."""
        while self._joined():
            place, key = self.heads[0]
            line = self.lines[key]
            if scratch is not None and not self.blocking and self._is_full(key, scratch):
                heappop(self.heads)
                continue
            if self.heads[0] == self.admitted:
                return True
            job = self.state.queues.jobs.get(place.uid)
            may = line.takes is None or (job is not None and line.takes(job))
            if place.uid in line.jobs or (job is not None and may and may_be_proposed(self.state, job)):
                self.admitted = self.heads[0]
            else:
                self._next()
        return False

    def _next(self) -> None:
        """The next job of the first line takes its turn."""
        following = next(self.lines[self.heads[0][1]].places, None)
        if following is not None:
            heapreplace(self.heads, (following, self.heads[0][1]))
        else:
            heappop(self.heads)

    def _to_held(self, *, here: bool = False) -> bool:
        """Drop heads up to the next job with held quota; False without such a job. ``here``: the first head may be the
        job.

        Under Block the job was the head at the eviction of its victims: jobs that came back since are not ahead.
        """
        if self.queue not in self.rooms.claimants:
            return False
        claims = self.state.queues.ledger.claims.for_jobs_of(self.queue)
        held = {claim.uid for claim in claims if claim.firm}
        while held and self._has_head():
            if here and self.heads[0][0].uid in held:
                return True
            here = True
            self._next()
        return False

    def _held_in(self, line: _ShapeLine) -> dict[str, None]:
        """Uids of jobs of a line with held quota that serves no other job."""
        if self.queue not in self.rooms.claimants:
            return {}
        claims = self.state.queues.ledger.claims.for_jobs_of(self.queue)
        return {claim.uid: None for claim in claims if claim.for_nodes and claim.demand.alike(line.demand)}

    def _head_first(self) -> bool:
        """Whether the head of the whole queue takes part, and is the first head."""
        if not self._has_head():  # Shapes with room have joined by then: the others rest.
            return False
        resting = [
            place
            for key in self.state.queues.book.queues.get(self.queue, ())
            if key not in self.lines and (place := self._first_of(key)) is not None
        ]
        return not resting or self.heads[0][0] < min(resting)

    def _passes(self) -> bool:
        """Whether the first head would pass a job without a place on the nodes, or with a reservation and no place yet.
        Where gangs are placed, the jobs of a Block queue are tried one after another.
        """
        queues = self.state.queues
        return (queues.places and self.open > 0) or bool(queues.before_on_nodes(self.queue, self.heads[0][0]))

    def _first_of(self, key: str) -> Place | None:
        state = self.state
        waiting = (place for place in state.queues.book.shapes[key].waiting if place.uid not in self.skip)
        return next((place for place in waiting if may_be_proposed(state, state.queues.jobs[place.uid])), None)

    def take(self) -> Job:
        """The head, chosen from now on; the next job of its line takes its turn."""
        place, key = self.heads[0]
        line = self.lines[key]
        line.untried = False
        self._next()
        self.open += 1
        uid = place.uid
        return line.jobs[uid] if uid in line.jobs else self.state.queues.jobs[uid]
