"""Policies that know queues: static quota, and the ideas of Volcano in a few lines."""

from __future__ import annotations

from muster.tracesim.engine import Engine, Policy, Task
from muster.tracesim.model import GPU
from muster.tracesim.shares import GpuShares
from muster.tracesim.trial import Trial
from muster.tracesim.waiting import Waiting, by_arrival


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


class VolcanoLike(_Queued):
    """Queues deserve a part of all requests by weight; no job may start over that, and the excess is reclaimed for
    jobs within the min of their queue, which go first.
    """

    name = "volcano-like"

    def begin(self, engine: Engine) -> None:
        self._shares = GpuShares(engine.trace.cluster.root)
        self._asked: dict[str, float] = {}
        self._deserved: dict[str, float] = {}

    def schedule(self, engine: Engine) -> None:
        self._look(engine)
        self._serve(engine)
        while self._reclaim(engine):
            self._serve(engine)  # What was freed beyond the need of the one is for the next that is owed.
        self._fill(engine)

    def _look(self, engine: Engine) -> None:
        """What every queue asks for now, and deserves of it."""
        asked = {path: float(engine.usage.gpus(path)) for path in engine.usage.chain}
        for (path, _), tasks in self.waiting.lines.items():
            asked[path] += tasks[0][1].job.gpus * len(tasks)
        self._deserved = self._shares.of(float(engine.trace.cluster.capacity.get(GPU, 0)), asked)

    def _serve(self, engine: Engine) -> None:
        """Start what stays within its min and fits."""
        usage = engine.usage
        self.waiting.start_all(
            lambda task: usage.within_min(task.job) and engine.fits(task) and usage.within_max(task.job), engine.start
        )

    def _reclaim(self, engine: Engine) -> bool:
        """Make room for the first head that is owed it; whether a job was stopped."""
        heads = [task for task in self.waiting.heads() if engine.usage.within_min(task.job)]
        for task in sorted(heads, key=lambda head: (self._share(engine, head.job.queue), by_arrival(head))):
            victims = self._victims(engine, task)
            if victims:
                for victim in victims:
                    engine.stop(victim, by=task)
                self.waiting.remove_head(task)
                engine.start(task)
                return True
        return False

    def _victims(self, engine: Engine, task: Task) -> list[Task]:
        """The lowest priority first, then the youngest, of queues over their part; empty when all do not suffice."""
        if Trial(engine).fits(task):
            return []
        over = {path: engine.usage.over_min(path) for path in engine.usage.chain}
        chosen: list[Task] = []
        for victim in sorted(
            self._candidates(engine, task), key=lambda victim: (victim.job.priority, -victim.began, -victim.order)
        ):
            if over[victim.job.queue] <= 0:
                continue
            chosen.append(victim)
            over[victim.job.queue] -= victim.job.gpus
            if _fits_without(engine, task, chosen):
                return _trimmed(engine, task, chosen)
        return []

    def _candidates(self, engine: Engine, task: Task) -> list[Task]:
        return [
            victim
            for victim in engine.running.values()
            if victim.job.preemptible and victim.job.queue != task.job.queue and self._over(engine, victim.job.queue)
        ]

    def _fill(self, engine: Engine) -> None:
        """Start the jobs that may borrow what is left."""
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


def _fits_without(engine: Engine, task: Task, victims: list[Task]) -> bool:
    trial = Trial(engine)
    for victim in victims:
        trial.leaves(victim)
    return trial.fits(task)


def _trimmed(engine: Engine, task: Task, chosen: list[Task]) -> list[Task]:
    """Without those that need not leave, looking at the first chosen first."""
    needed = list(chosen)
    for victim in chosen:
        without = [other for other in needed if other is not victim]
        if _fits_without(engine, task, without):
            needed = without
    return needed
