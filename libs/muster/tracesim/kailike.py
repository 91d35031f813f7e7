"""``kai-like``: KAI's rules on GPUs: fair shares, then allocate, consolidate (on nodes), reclaim and preempt.

A session takes the waiting jobs in one order: next is the queue with the least of a share, this job included.
Allocate starts each job with room. Consolidate moves running jobs for a job that lacks only whole nodes. Reclaim serves
a job within the queue's fair share: jobs of queues above the fair share stop, and, for a job within the queue's
deserved quota, jobs of queues above deserved quota. Preempt stops jobs of lower priority in the job's own queue. Each
set of victims is tried first: all victims and the claimant are placed again in the order of the queues, and a victim
with room stays. Sessions repeat until nothing changes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from muster.tracesim.engine import Engine, Policy, Task
from muster.tracesim.kaishares import UNLIMITED, Bar, bars, fair_shares
from muster.tracesim.model import GPU
from muster.tracesim.trial import Trial
from muster.tracesim.waiting import by_arrival

SESSIONS = 60
"""At one moment."""
MOVED_AT_MOST = 16
"""Jobs of one consolidation."""

_Key = tuple[float, ...]


class _Plan(NamedTuple):
    """The claimant's nodes (empty where nodes do not count), the jobs to stop, the jobs to move."""

    nodes: list[str]
    stopped: list[Task]
    moved: list[tuple[Task, list[str]]]


class KaiLike(Policy):
    """Sessions over fair shares."""

    name = "kai-like"

    def begin(self, engine: Engine) -> None:
        self._engine = engine
        self._root = bars(engine.trace.cluster.root)
        self._bars = {bar.path: bar for bar in _walk(self._root)}
        self._chain = {leaf: chain[:-1] for leaf, chain in engine.usage.chain.items()}
        """leaf -> the leaf and the queues above, without the root"""
        self._waiting: dict[str, list[Task]] = {}
        self._fair: dict[str, int] = {}
        self._bound: dict[str, int] = {}
        """leaf -> GPUs of the running jobs that are not preemptible"""
        self._lowest: dict[str, int] | None = None
        """leaf -> lowest priority of the running preemptible jobs; None: to be computed"""
        self._kinds: dict[str, list[Task]] = {}
        """leaf -> the smallest waiting job of each priority, preemptible or not; absent: to be computed"""

    def add(self, task: Task) -> None:
        insort(self._waiting.setdefault(task.job.queue, []), task, key=by_arrival)
        self._forget(task.job.queue)

    def _forget(self, queue: str) -> None:
        """Another job waits or runs there."""
        self._kinds.pop(queue, None)
        self._lowest = None

    def schedule(self, engine: Engine) -> None:
        self._lowest = None
        for _ in range(SESSIONS):
            if not self._waiting or not self._session():
                return

    def _session(self) -> bool:
        """Whether any job started, stopped or moved."""
        self._look()
        changed = self._allocate()
        if self._engine.places is not None:
            changed |= self._consolidate()
        changed |= self._evict(self._may_reclaim, self._lenders, self._fair_to)
        return self._evict(self._may_preempt, self._lower, None) or changed

    def _look(self) -> None:
        """The fair shares of this moment."""
        asked = {
            leaf: self._used(leaf) + sum(waiting.job.gpus for waiting in self._waiting.get(leaf, ()))
            for leaf in self._chain
        }
        self._fair = fair_shares(self._root, self._engine.machines.capacity.get(GPU, 0), asked)
        self._bound = dict.fromkeys(self._chain, 0)
        for task in self._engine.running.values():
            if not task.job.preemptible:
                self._bound[task.job.queue] += task.job.gpus

    def _used(self, path: str) -> int:
        return self._engine.usage.gpus(path)

    def _share(self, path: str) -> int:
        """GPUs of a queue up to which the queue is not above the share."""
        bar = self._bars[path]
        return min(bar.limit, max(bar.deserved, self._fair[path]))

    def _key(self, path: str, used: int, more: int, less: int = 0) -> _Key:
        """The place of a queue among siblings when a job of ``more`` is next, or jobs of ``less`` have left."""
        bar, share = self._bars[path], self._share(path)

        def ratio(amount: int) -> float:
            return amount / share if share else float(amount)

        over = used + more > bar.deserved
        nothing = not share and used + more > 0
        return (over, -bar.priority, nothing, ratio(used + more - less), ratio(used), share, bar.place)

    def _order(self, lines: Mapping[str, list[Task]], used: Callable[[str], int]) -> _Order:
        return _Order(self._root, self._chain, lines, lambda path, more: self._key(path, used(path), more))

    # --- allocate -------------------------------------------------------------------------------------------------

    def _allocate(self) -> bool:
        engine = self._engine
        least = min(task.job.gpus for tasks in self._waiting.values() for task in tasks)
        if engine.pool.free.get(GPU, least) < least:
            return False
        changed = False
        order = self._order(self._waiting, self._used)
        while (task := order.pop()) is not None and engine.pool.free.get(GPU, least) >= least:
            if engine.fits(task) and engine.usage.within_max(task.job) and self._bound_within(task):
                self._start(task)
                order.changed(task.job.queue)
                changed = True
        return changed

    def _start(self, task: Task, nodes: Iterable[str] = (), *, moved: bool = False) -> None:
        tasks = self._waiting[task.job.queue]
        tasks.remove(task)
        if not tasks:
            del self._waiting[task.job.queue]
        self._forget(task.job.queue)
        self._engine.start(task, list(nodes), moved=moved)
        if not task.job.preemptible:
            self._bound[task.job.queue] += task.job.gpus

    def _bound_within(self, task: Task) -> bool:
        """A job that is not preemptible runs within the deserved quota of the queue only."""
        queue = task.job.queue
        return task.job.preemptible or self._bound[queue] + task.job.gpus <= self._bars[queue].deserved

    # --- consolidate ----------------------------------------------------------------------------------------------

    def _consolidate(self) -> bool:
        engine, changed, failed = self._engine, False, UNLIMITED
        order = self._order(self._waiting, self._used)
        while (task := order.pop()) is not None:
            enough = engine.pool.fits(task.job.request) and not engine.fits(task)
            if task.job.gpus >= failed or not enough or not engine.usage.within_max(task.job):
                continue
            plan = self._moving(task) if self._bound_within(task) else None
            if plan is None:
                failed = task.job.gpus
                continue
            self._carry_out(task, plan)
            order.changed(task.job.queue)
            changed = True
        return changed

    def _moving(self, task: Task) -> _Plan | None:
        """Jobs with other places for all of them once the claimant is placed."""
        chosen: list[Task] = []
        without = Trial(self._engine)
        for victim in self._victims(
            _by_queue(running for running in self._engine.running.values() if running.job.preemptible)
        ):
            chosen.append(victim)
            if len(chosen) > MOVED_AT_MOST:
                return None
            without.leaves(victim)
            plan = _placed(self._engine, task, chosen) if without.fits(task) else None
            if plan is not None and not plan.stopped:
                return plan
        return None

    # --- reclaim and preempt --------------------------------------------------------------------------------------

    def _may_reclaim(self, task: Task) -> bool:
        """The job stays within the fair share of the queue and of each queue above."""
        within = all(self._used(path) + task.job.gpus <= self._fair[path] for path in self._chain[task.job.queue])
        return within and self._bound_within(task)

    def _may_preempt(self, task: Task) -> bool:
        """A preemptible job of lower priority runs in the same queue."""
        if self._lowest is None:
            self._lowest = {}
            for running in self._engine.running.values():
                if running.job.preemptible:
                    known = self._lowest.get(running.job.queue, running.job.priority)
                    self._lowest[running.job.queue] = min(known, running.job.priority)
        lowest = self._lowest.get(task.job.queue, task.job.priority)
        return task.job.priority > lowest and self._bound_within(task)

    def _sides(self, task: Task, queue: str) -> tuple[str, str]:
        """The two siblings in the tree: the claimant's queue or one above, the victim's queue or one above."""
        mine, theirs = self._chain[task.job.queue], self._chain[queue]
        pairs = zip(reversed(mine), reversed(theirs), strict=False)
        return next((one, other) for one, other in pairs if one != other)

    def _gives(self, task: Task, queue: str, used: Callable[[str], int]) -> bool:
        """Whether jobs of the queue may stop for the claimant at such a use of the queues."""
        mine, theirs = self._sides(task, queue)
        owed = self._used(mine) + task.job.gpus <= self._bars[mine].deserved
        return used(theirs) > self._share(theirs) or (owed and used(theirs) > self._bars[theirs].deserved)

    def _lenders(self, task: Task) -> dict[str, list[Task]]:
        gives = {queue for queue in self._chain if queue != task.job.queue and self._gives(task, queue, self._used)}
        return _by_queue(
            victim for victim in self._engine.running.values() if victim.job.queue in gives and victim.job.preemptible
        )

    def _fair_to(self, task: Task, victims: list[Task]) -> bool:
        """Whether each of the victims may stop after the victims before."""
        gone: dict[str, int] = {}
        for victim in victims:
            if not self._gives(task, victim.job.queue, lambda path: self._used(path) - gone.get(path, 0)):
                return False
            for path in self._chain[victim.job.queue]:
                gone[path] = gone.get(path, 0) + victim.job.gpus
        return True

    def _lower(self, task: Task) -> dict[str, list[Task]]:
        job = task.job
        return _by_queue(
            victim
            for victim in self._engine.running.values()
            if victim.job.queue == job.queue and victim.job.preemptible and victim.job.priority < job.priority
        )

    def _evict(
        self,
        may: Callable[[Task], bool],
        candidates: Callable[[Task], dict[str, list[Task]]],
        fair: Callable[[Task, list[Task]], bool] | None,
    ) -> bool:
        """One pass over the waiting jobs; after a failure the queue's jobs of this size and above are left out."""
        changed, failed = False, dict.fromkeys(self._chain, UNLIMITED)
        order = self._order(self._waiting, self._used)
        while self._hopeful(may, failed) and (task := order.pop()) is not None:
            queue = task.job.queue
            if task.job.gpus >= failed[queue] or not may(task):
                continue
            plan = self._solved(task, candidates(task), fair)
            if plan is None:
                failed[queue] = task.job.gpus
            else:
                self._carry_out(task, plan)
                for path in {queue, *(victim.job.queue for victim in plan.stopped)}:
                    order.changed(path)
                changed = True
        return changed

    def _hopeful(self, may: Callable[[Task], bool], failed: Mapping[str, int]) -> bool:
        """Whether any waiting job may still claim: the smallest job of each kind decides."""
        return any(
            task.job.gpus < failed[queue] and may(task) for queue in self._waiting for task in self._smallest(queue)
        )

    def _smallest(self, queue: str) -> list[Task]:
        if queue not in self._kinds:
            tasks = sorted(self._waiting[queue], key=lambda task: -task.job.gpus)
            self._kinds[queue] = list({(task.job.priority, task.job.preemptible): task for task in tasks}.values())
        return self._kinds[queue]

    def _carry_out(self, task: Task, plan: _Plan) -> None:
        for victim in [*plan.stopped, *(moved for moved, _ in plan.moved)]:
            self._engine.stop(victim, by=task)
        self._start(task, plan.nodes)
        for moved, nodes in plan.moved:
            self._start(moved, nodes, moved=True)

    def _solved(
        self, task: Task, lines: dict[str, list[Task]], fair: Callable[[Task, list[Task]], bool] | None
    ) -> _Plan | None:
        need, free = task.job.gpus, self._engine.pool.free.get(GPU, task.job.gpus)
        if free + sum(victim.job.gpus for victims in lines.values() for victim in victims) < need:
            return None
        chosen: list[Task] = []
        without = Trial(self._engine)
        for victim in self._victims(lines):
            chosen.append(victim)
            without.leaves(victim)
            if without.fits(task):
                plan = self._tried(task, chosen)
                if plan is not None and (fair is None or fair(task, plan.stopped)):
                    return plan
        return None

    def _victims(self, lines: dict[str, list[Task]]) -> Iterator[Task]:
        """First the queue furthest above the share, without the victims so far; there the lowest priority, the newest
        job.
        """
        rest = {queue: sorted(victims, key=by_arrival) for queue, victims in lines.items()}
        gone = dict.fromkeys(self._bars, 0)

        def giver(bar: Bar) -> str | None:
            """The next leaf to give."""
            if not bar.children:
                return bar.path if rest.get(bar.path) else None
            leaves = {child.path: leaf for child in bar.children if (leaf := giver(child)) is not None}
            return leaves[max(leaves, key=lambda path: key(path, leaves[path]))] if leaves else None

        def key(path: str, leaf: str) -> _Key:
            return self._key(path, self._used(path), 0, gone[path] + rest[leaf][-1].job.gpus)

        while (leaf := giver(self._root)) is not None:
            victim = rest[leaf].pop()
            for path in self._chain[leaf]:
                gone[path] += victim.job.gpus
            yield victim

    def _tried(self, task: Task, chosen: list[Task]) -> _Plan | None:
        """Place the claimant and the victims again in the order of the queues, all other waiting jobs in their turn."""
        trial = Trial(self._engine)
        lines = {queue: list(tasks) for queue, tasks in self._waiting.items()}
        for victim in chosen:
            trial.leaves(victim)
            insort(lines.setdefault(victim.job.queue, []), victim, key=by_arrival)
        wanted = {id(victim) for victim in chosen}
        order = self._order(lines, trial.gpus)
        nodes: list[str] | None = None
        stays: dict[int, list[str]] = {}
        while (nodes is None or len(stays) < len(wanted)) and (popped := order.pop()) is not None:
            if popped is not task and id(popped) not in wanted:
                continue
            places = trial.starts(popped)
            if popped is task:
                if places is None:
                    return None
                nodes = places
            elif places is not None:
                stays[id(popped)] = places
            else:
                wanted.discard(id(popped))
                continue
            order.changed(popped.job.queue)
        return None if nodes is None else _sorted_out(nodes, chosen, stays)


class _Order:
    """Pops jobs: at each level of the queue with the lowest key; the key counts the queue's next job."""

    def __init__(
        self,
        root: Bar,
        chain: Mapping[str, tuple[str, ...]],
        lines: Mapping[str, list[Task]],
        key: Callable[[str, int], _Key],
    ) -> None:
        self._root = root
        self._chain = chain
        self._lines = {queue: list(reversed(tasks)) for queue, tasks in lines.items()}
        self._key = key
        self._known: dict[str, tuple[_Key, str] | None] = {}
        """queue -> (key, the next leaf below)"""

    def pop(self) -> Task | None:
        first = [entry for child in self._root.children if (entry := self._next(child)) is not None]
        if not first:
            return None
        leaf = min(first)[1]
        task = self._lines[leaf].pop()
        self.changed(leaf)
        return task

    def changed(self, leaf: str) -> None:
        """The use of the leaf, or the leaf's next job, has changed."""
        for path in self._chain[leaf]:
            self._known.pop(path, None)

    def _next(self, bar: Bar) -> tuple[_Key, str] | None:
        if bar.path in self._known:
            return self._known[bar.path]
        if bar.children:
            below = [entry for child in bar.children if (entry := self._next(child)) is not None]
            leaf = min(below)[1] if below else ""
        else:
            leaf = bar.path if self._lines.get(bar.path) else ""
        entry = (self._key(bar.path, self._lines[leaf][-1].job.gpus), leaf) if leaf else None
        self._known[bar.path] = entry
        return entry


def _walk(bar: Bar) -> Iterator[Bar]:
    yield bar
    for child in bar.children:
        yield from _walk(child)


def _by_queue(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    by_queue: dict[str, list[Task]] = {}
    for task in tasks:
        by_queue.setdefault(task.job.queue, []).append(task)
    return by_queue


def _placed(engine: Engine, task: Task, chosen: list[Task]) -> _Plan | None:
    """The claimant first, then the victims."""
    trial = Trial(engine)
    for victim in chosen:
        trial.leaves(victim)
    nodes = trial.starts(task)
    if nodes is None:
        return None
    stays = {id(victim): places for victim in chosen if (places := trial.starts(victim)) is not None}
    return _sorted_out(nodes, chosen, stays)


def _sorted_out(nodes: list[str], chosen: list[Task], stays: Mapping[int, list[str]]) -> _Plan:
    moved = [(victim, stays[id(victim)]) for victim in chosen if stays.get(id(victim), victim.nodes) != victim.nodes]
    return _Plan(nodes, [victim for victim in chosen if id(victim) not in stays], moved)
