"""Which jobs to try now: per queue the best heads of its awake shapes, queues in turn by their order.

Chosen are at most MAX_OPEN unanswered per queue, and only what the copy of the ledger lets expect to fit together
with everything already proposed; the first of a shape that nothing is known about is tried anyway, so that its
denial tells the whole shape what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge

from muster.core.queueing.book import Place, Shape, clear
from muster.core.queueing.kaiorder import KaiOrder
from muster.core.queueing.lending import Reserve, freely_ms
from muster.core.queueing.order import used_first
from muster.core.queueing.queues import Job, job_from
from muster.core.queueing.standing import Standing, may_be_proposed
from muster.core.queueing.state import SorterState
from muster.core.quota.demand import Scratch
from muster.core.stage import MAX_DECISIONS
from muster.events.decisions import Candidate, WorkloadQueued
from muster.model.keys import root_of

MAX_CHOSEN_BYTES = 256 * 1024
"""About how long the proposal may become: it is one event, and cannot be cut."""

MAX_OPEN = 128
"""Unanswered proposals per leaf queue."""


def choose(state: SorterState, standings: Sequence[Standing]) -> list[Candidate]:
    """The candidates to propose right after ``standings``, which are decided and not folded yet, best first."""
    fresh: dict[str, list[Job]] = {}
    skip: set[str] = set()
    for standing in standings:
        skip.add(standing.ref.uid)
        if isinstance(standing, WorkloadQueued) and standing.ref.uid not in state.queues.ledger.charges:
            job = job_from(standing, standing.cause)
            fresh.setdefault(job.shape, []).append(job)
    scratch = Scratch()
    turns: dict[str, _Turn] = {}
    reserve = Reserve(state.queues, state.now)
    again = [key for key, retry in state.queues.retries.items() if retry.at <= state.now]
    for key in dict.fromkeys((*state.queues.book.awake, *fresh, *again)):
        shape = state.queues.book.shapes.get(key)
        jobs = fresh.get(key, [])
        if shape is not None and key not in again and not clear(shape, state.queues.ledger):
            continue
        if shape is None and not jobs:
            continue
        queue = shape.queue if shape is not None else jobs[0].queue
        if "admissions" in state.queues.resting(queue):
            continue
        if queue not in turns:
            turns[queue] = _Turn(state, queue, skip, reserve)
        turns[queue].join(key, shape, jobs, again=key in again)
    ledger, dividing = state.queues.ledger, dict[str, dict[str, _Turn]]()
    members: list[_Turn | _SharedTurns] = []
    for queue, each in turns.items():
        if ledger.by_shares(queue):
            dividing.setdefault(root_of(queue), {})[queue] = each
        else:
            members.append(each)
    news = [job for jobs in fresh.values() for job in jobs] if dividing else []
    members += [_SharedTurns(state, root, below, news) for root, below in dividing.items()]
    return _in_turn(state, [turn for turn in members if turn.advance(scratch)], scratch)


def _in_turn(state: SorterState, members: Iterable[_Turn | _SharedTurns], scratch: Scratch) -> list[Candidate]:
    """As many of their heads as fit beside each other, best first."""
    heap = [(turn.order(scratch), turn) for turn in members]
    heapify(heap)
    chosen: list[Candidate] = []
    size = 0
    while heap and len(chosen) < MAX_DECISIONS and size < MAX_CHOSEN_BYTES:
        before, turn = heap[0]
        if not turn.advance(scratch):  # Those chosen meanwhile may leave it no room.
            heappop(heap)
            continue
        order = turn.order(scratch)
        if order != before:
            heapreplace(heap, (order, turn))
            continue
        job = turn.take()
        size += _BYTES + len(job.shape) + len(job.ref.key) + len(job.queue)
        scratch.add(job.queue, job.demand)
        chosen.append(_candidate(state, job))
    return chosen


_BYTES = 256
"""Of a candidate, besides its texts."""


def _candidate(state: SorterState, job: Job) -> Candidate:
    shape = state.queues.book.shapes.get(job.shape)
    woken = shape.woken if shape is not None else None
    return Candidate(
        cause=max(job.cause, woken) if woken else job.cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        request=job.demand.request,
        basis=job.basis,
        pods=job.demand.pods,
        preemptible=job.demand.preemptible,
        run_ms=job.demand.run_ms,
        tries=_tries(state, job),
    )


def _tries(state: SorterState, job: Job) -> int:
    if job.queue not in state.queues.backoffs:
        return 0
    retry = state.queues.retries.get(job.shape)
    return retry.tries + 1 if retry is not None else 1


class _ShapeLine:
    """The waiting of one shape that take part, in order."""

    def __init__(self, state: SorterState, shape: Shape | None, fresh: Sequence[Job], skip: set[str]) -> None:
        known = shape.waiting if shape is not None else ()
        waiting = self._waiting(state, known, skip)
        news = sorted(job.place for job in fresh)
        self.jobs = {job.ref.uid: job for job in fresh}
        self.places = merge(waiting, news) if news and known else iter(news) if news else waiting
        self.takes: Callable[[Job], bool] | None = None
        """Which of the waiting jobs may go on; None for all."""
        self.demand = shape.demand if shape is not None else fresh[0].demand
        self.untried = shape is None or (shape.denial is None and not shape.open)
        """Nothing is known of the shape: its first is tried whatever the ledger lets expect."""

    def _waiting(self, state: SorterState, known: Iterable[Place], skip: set[str]) -> Iterator[Place]:
        for place in known:
            job = state.queues.jobs[place.uid]
            if (self.takes is None or self.takes(job)) and place.uid not in skip and may_be_proposed(state, job):
                yield place


class _Turn:
    """One queue while candidates are being chosen: the heads of its lines, best first."""

    def __init__(self, state: SorterState, queue: str, skip: set[str], reserve: Reserve) -> None:
        self.state = state
        self.reserve = reserve if freely_ms(state.queues, queue) else None
        self.queue = queue
        self.skip = skip
        self.lines: dict[str, _ShapeLine] = {}
        self.heads: list[tuple[Place, str]] = []
        self.blocking = state.queues.is_blocking(queue)
        """No job overtakes the head of the queue: whether it may be tried or not, whatever the nodes have room for."""
        self.open = sum(state.queues.book.shapes[key].open for key in state.queues.book.queues.get(queue, ()))

    def __lt__(self, other: _Turn | _SharedTurns) -> bool:
        return self.queue < other.queue

    def join(self, key: str, shape: Shape | None, fresh: Sequence[Job], *, again: bool) -> None:
        """A shape takes part, with those of it that are about to be queued; ``again``: whatever is free."""
        line = self.lines[key] = _ShapeLine(self.state, shape, fresh, self.skip)
        line.untried = line.untried or again
        head = next(line.places, None)
        if head is not None:
            heappush(self.heads, (head, key))

    def order(self, scratch: Scratch) -> tuple[int, int, int]:
        """Priority of the queue; then, as the tree says, used/min and age, or age alone beyond the guarantees."""
        queues, (place, key) = self.state.queues, self.heads[0]
        used = used_first(
            queues.ledger, queues.order(self.queue), self.queue, self.lines[key].demand, queues.proposed, scratch
        )
        return (-queues.queue_priorities.get(self.queue, 0), used, place.rank)

    def advance(self, scratch: Scratch) -> bool:
        """Drop heads that should not be tried until one should; False when none is left."""
        if self.open >= MAX_OPEN:
            return False
        if self.blocking and (not self._head_first() or self._passes()):
            return False
        while self.heads:
            place, key = self.heads[0]
            line = self.lines[key]
            if self.reserve is not None and self._is_kept(place.uid, line, scratch):
                if self.blocking:
                    return False
                line.takes = self.reserve.spares  # What keeps one from borrowing keeps all others of its shape.
                following = next(line.places, None)
                if following is not None:
                    heapreplace(self.heads, (following, key))
                else:
                    heappop(self.heads)
                continue
            if line.untried or not self.state.queues.ledger.shortfall(
                self.queue, line.demand, self.state.queues.proposed, scratch, now=self.state.now
            ):
                return True
            if self.blocking:
                return False
            heappop(self.heads)
        return False

    def _is_kept(self, uid: str, line: _ShapeLine, scratch: Scratch) -> bool:
        """Whether what is free is kept for owners, and not lent to a job that may run long."""
        job = line.jobs[uid] if uid in line.jobs else self.state.queues.jobs[uid]
        return self.reserve is not None and self.reserve.keeps(job, scratch) is not None

    def _head_first(self) -> bool:
        """Whether the head of the whole queue is among those that may be tried, and is the first of them."""
        resting = [
            place
            for key in self.state.queues.book.queues.get(self.queue, ())
            if key not in self.lines and (place := self._first_of(key)) is not None
        ]
        return bool(self.heads) and (not resting or self.heads[0][0] < min(resting))

    def _passes(self) -> bool:
        """Whether the first would pass one that has no place on the nodes, or may come to have none: where gangs are
        placed, those of a queue with policy Block are tried one by one.
        """
        queues = self.state.queues
        return (queues.places and self.open > 0) or bool(queues.before_on_nodes(self.queue, self.heads[0][0]))

    def _first_of(self, key: str) -> Place | None:
        state = self.state
        waiting = (place for place in state.queues.book.shapes[key].waiting if place.uid not in self.skip)
        return next((place for place in waiting if may_be_proposed(state, state.queues.jobs[place.uid])), None)

    def take(self) -> Job:
        """The head, which counts as chosen from here on; the next of its line takes its turn."""
        place, key = self.heads[0]
        line = self.lines[key]
        line.untried = False
        following = next(line.places, None)
        if following is not None:
            heapreplace(self.heads, (following, key))
        else:
            heappop(self.heads)
        self.open += 1
        uid = place.uid
        return line.jobs[uid] if uid in line.jobs else self.state.queues.jobs[uid]


class _SharedTurns:
    """The queues of a tree of fair shares, as one that takes turns with the others, in an order of its own."""

    def __init__(self, state: SorterState, root: str, turns: dict[str, _Turn], fresh: Sequence[Job]) -> None:
        self.state = state
        self.queue = root
        self.turns = turns
        self.places = KaiOrder(state, root, fresh)
        self.first = ""
        self.moved = [*turns]
        """Queues whose heads may have changed, or may have lost their room."""

    def __lt__(self, other: _Turn | _SharedTurns) -> bool:
        return self.queue < other.queue

    def order(self, scratch: Scratch) -> tuple[int, int, int]:
        """By the age of the job that is first."""
        return (0, 0, self.turns[self.first].heads[0][0].rank)

    def advance(self, scratch: Scratch) -> bool:
        """Find the first queue now; False when none is left."""
        self._advance(self.moved, scratch)
        while self.turns:
            heads = {queue: turn.lines[turn.heads[0][1]].demand.request for queue, turn in self.turns.items()}
            self.first = self.places.first(heads, (self.state.queues.proposed, scratch))
            head = self.turns[self.first].heads[0]
            if self.turns[self.first].advance(scratch) and self.turns[self.first].heads[0] == head:
                self.moved = []
                return True
            self._advance([*self.turns], scratch)
        return False

    def _advance(self, queues: Iterable[str], scratch: Scratch) -> None:
        for queue in queues:
            self.places.changed(queue)
            if not self.turns[queue].advance(scratch):
                del self.turns[queue]

    def take(self) -> Job:
        self.moved = [self.first]
        return self.turns[self.first].take()
