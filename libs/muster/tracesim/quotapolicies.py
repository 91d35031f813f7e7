"""Policies that know queues: static quota, and the ideas of three products in a few lines each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.quota.trees.rules import span_ms
from muster.tracesim.engine import Engine, Policy, Task
from muster.tracesim.model import GPU
from muster.tracesim.shares import GpuShares
from muster.tracesim.waiting import Line, Waiting, by_arrival


class _Queued(Policy):
    """The common part: jobs wait in the order of their arrival, queue by queue."""

    def __init__(self) -> None:
        self.waiting = Waiting(by_arrival)

    def add(self, task: Task) -> None:
        self.waiting.add(task)


class StaticQuota(_Queued):
    """Every queue has exactly its min; within the min, every fitting job starts."""

    name = "static-quota"

    def schedule(self, engine: Engine) -> None:
        self.waiting.start_all(lambda task: engine.usage.within_min(task.job) and engine.fits(task), engine.start)


class _Reclaiming(_Queued):
    """Queues borrow unused quota of others; a job within the min of its queue goes first, and may reclaim quota.

    At once, or with ``reclaim-grace`` after so long a wait of jobs with the queue and size.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owed_since: dict[Line, int] = {}
        self._due: int | None = None

    def next_deadline(self) -> int | None:
        return self._due

    def schedule(self, engine: Engine) -> None:
        self._serve(engine)
        while self.reclaim(engine):
            self._serve(engine)  # What was freed beyond the need of the one is for the next that is owed.
        self.fill(engine)

    def _serve(self, engine: Engine) -> None:
        """Start what stays within its min and fits."""
        usage = engine.usage
        self.waiting.start_all(
            lambda task: usage.within_min(task.job) and engine.fits(task) and usage.within_max(task.job), engine.start
        )

    def fill(self, engine: Engine) -> None:
        """Start the jobs that may borrow what is left."""
        raise NotImplementedError

    def reclaim(self, engine: Engine) -> bool:
        """Make room for the first head that is owed it; whether a job was stopped."""
        heads = self._ripe(engine, [task for task in self.waiting.heads() if engine.usage.within_min(task.job)])
        for task in sorted(heads, key=lambda head: self.claim_order(engine, head)):
            victims = self.victims(engine, task)
            if victims:
                for victim in victims:
                    engine.stop(victim, by=task)
                self.waiting.remove_head(task)
                engine.start(task)
                return True
        return False

    def _ripe(self, engine: Engine, heads: list[Task]) -> list[Task]:
        """The jobs within a guarantee whose grace is over; notes the end of the next grace."""
        grace = span_ms(engine.trace.cluster.rules.get("reclaim-grace", "0"))
        self._due = None
        if not grace:
            return heads
        lines = {(task.job.queue, tuple(task.job.request.items())): task for task in heads}
        self._owed_since = {line: self._owed_since.get(line, engine.now) for line in lines}
        times = {line: max(since, lines[line].waits_since) + grace for line, since in self._owed_since.items()}
        self._due = min((at for at in times.values() if at > engine.now), default=None)
        return [task for line, task in lines.items() if times[line] <= engine.now]

    def victims(self, engine: Engine, task: Task) -> list[Task]:
        """The smallest set that lets a job fit, in the order of ``victim_order``; empty when there is none."""
        plan = _EvictionPlan(engine)
        if plan.fits(task):
            return []
        over = {path: engine.usage.over_min(path) for path in engine.usage.chain}
        chosen: list[Task] = []
        order = sorted(self.candidates(engine, task), key=lambda candidate: self.victim_order(engine, candidate))
        for victim in order:
            if over[victim.job.queue] <= 0:
                continue
            chosen.append(victim)
            over[victim.job.queue] -= victim.job.gpus
            plan.add(victim, -1)
            if plan.fits(task):
                return self._trimmed(plan, task, chosen)
        return []

    @staticmethod
    def _trimmed(plan: _EvictionPlan, task: Task, chosen: list[Task]) -> list[Task]:
        """Without those that need not leave, looking at the first chosen first."""
        needed = list(chosen)
        for victim in chosen:
            plan.add(victim, 1)
            if plan.fits(task):
                needed.remove(victim)
            else:
                plan.add(victim, -1)
        return needed

    def candidates(self, engine: Engine, task: Task) -> Iterable[Task]:
        for victim in engine.running.values():
            if victim.job.preemptible and victim.job.queue != task.job.queue:
                yield victim

    def claim_order(self, engine: Engine, task: Task) -> tuple[float, ...]:
        return (-task.job.priority, task.order)

    def victim_order(self, engine: Engine, task: Task) -> tuple[float, ...]:
        """Lowest priority first, then the youngest."""
        return (task.job.priority, -task.began, -task.order)


class KueueLike(_Reclaiming):
    """Best-effort order within quota; queues borrow up to their max; owed quota is taken back from the youngest."""

    name = "kueue-like"

    def fill(self, engine: Engine) -> None:
        self.waiting.start_all(lambda task: engine.fits(task) and engine.usage.within_max(task.job), engine.start)


class KaiLike(_Reclaiming):
    """The queue with the least of its share goes first; owed quota is reclaimed from the queue furthest over."""

    name = "kai-like"

    def fill(self, engine: Engine) -> None:
        queues = set(self.waiting.queues())
        while queues:
            queue = min(queues, key=lambda path: (self.share(engine, path), path))
            task = self._next(engine, queue)
            if task is None:
                queues.discard(queue)
                continue
            self.waiting.remove_head(task)
            engine.start(task)

    def _next(self, engine: Engine, queue: str) -> Task | None:
        fitting = [
            task for task in self.waiting.heads(queue) if engine.fits(task) and engine.usage.within_max(task.job)
        ]
        return min(fitting, key=by_arrival, default=None)

    def share(self, engine: Engine, queue: str) -> float:
        """GPUs used against the min."""
        low = engine.usage.min[queue].get(GPU, 0)
        used = engine.usage.gpus(queue)
        return used / low if low else (float("inf") if used else 0.0)

    def claim_order(self, engine: Engine, task: Task) -> tuple[float, ...]:
        return (self.share(engine, task.job.queue), -task.job.priority, task.order)

    def victim_order(self, engine: Engine, task: Task) -> tuple[float, ...]:
        return (-self.share(engine, task.job.queue), task.job.priority, -task.began, -task.order)


class VolcanoLike(_Reclaiming):
    """Queues deserve a part of all requests by weight; no job may start over that, and the excess is reclaimed."""

    name = "volcano-like"

    def begin(self, engine: Engine) -> None:
        self._shares = GpuShares(engine.trace.cluster.root)
        self._asked: dict[str, float] = {}
        self._deserved: dict[str, float] = {}

    def schedule(self, engine: Engine) -> None:
        self._look(engine)
        super().schedule(engine)

    def _look(self, engine: Engine) -> None:
        """What every queue asks for now, and deserves of it."""
        asked = {path: float(engine.usage.gpus(path)) for path in engine.usage.chain}
        for (path, _), tasks in self.waiting.lines.items():
            asked[path] += tasks[0][1].job.gpus * len(tasks)
        self._deserved = self._shares.of(float(engine.trace.cluster.capacity.get(GPU, 0)), asked)

    def fill(self, engine: Engine) -> None:
        queues = set(self.waiting.queues())
        while queues:
            queue = min(queues, key=lambda path: (self._share(engine, path), path))
            fitting = [
                task
                for task in self.waiting.heads(queue)
                if engine.fits(task) and engine.usage.within_max(task.job) and not self._over(engine, queue)
            ]
            task = min(fitting, key=by_arrival, default=None)
            if task is None:
                queues.discard(queue)
                continue
            self.waiting.remove_head(task)
            engine.start(task)

    def _over(self, engine: Engine, queue: str) -> bool:
        return engine.usage.gpus(queue) > self._deserved.get(queue, 0.0)

    def _share(self, engine: Engine, queue: str) -> float:
        deserved = self._deserved.get(queue, 0.0)
        return engine.usage.gpus(queue) / deserved if deserved else float("inf")

    def claim_order(self, engine: Engine, task: Task) -> tuple[float, ...]:
        return (self._share(engine, task.job.queue), -task.job.priority, task.order)

    def candidates(self, engine: Engine, task: Task) -> Iterator[Task]:
        for victim in super().candidates(engine, task):
            if self._over(engine, victim.job.queue):
                yield victim


class _EvictionPlan:
    """What would be free, and used, if some jobs had left."""

    def __init__(self, engine: Engine) -> None:
        self._usage = engine.usage
        self._free = dict(engine.pool.free)
        self._used: dict[str, dict[str, int]] = {}

    def add(self, task: Task, times: int) -> None:
        """The job runs again (1), or leaves (-1)."""
        for name, amount in task.job.request.items():
            if name in self._free:
                self._free[name] -= amount * times
        for path in self._usage.chain[task.job.queue]:
            used = self._used.setdefault(path, dict(self._usage.used[path]))
            for name, amount in task.job.request.items():
                used[name] = used.get(name, 0) + amount * times

    def fits(self, task: Task) -> bool:
        """Whether there is room, and every max on the way up allows it."""
        request = task.job.request
        if any(amount > self._free.get(name, amount) for name, amount in request.items()):
            return False
        for path in self._usage.chain[task.job.queue]:
            used, limit = self._used.get(path, self._usage.used[path]), self._usage.max[path]
            if any(used.get(name, 0) + amount > limit[name] for name, amount in request.items() if name in limit):
                return False
        return True
