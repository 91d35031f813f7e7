"""The policies to compare with. Those named after a product keep its main ideas, and are not the product."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge

from muster.tracesim.engine import Engine, Policy, Task
from muster.tracesim.kailike import KaiLike
from muster.tracesim.kueuelike import KueueLike
from muster.tracesim.quotapolicies import StaticQuota, VolcanoLike
from muster.tracesim.waiting import ENDLESS, Key, Waiting, by_arrival, by_length


class Fifo(Policy):
    """A single queue in the order of arrival; a job that does not fit blocks all later jobs."""

    name = "fifo"

    def __init__(self) -> None:
        self.waiting = Waiting(by_arrival)

    def add(self, task: Task) -> None:
        self.waiting.add(task)

    def schedule(self, engine: Engine) -> None:
        while (task := self.waiting.first()) is not None and engine.fits(task):
            self.waiting.remove_head(task)
            engine.start(task)


class BestEffortFifo(Fifo):
    """One queue in the order of arrival; what fits starts."""

    name = "best-effort-fifo"

    def schedule(self, engine: Engine) -> None:
        self.waiting.start_all(engine.fits, engine.start)


class Sjf(BestEffortFifo):
    """One queue, shortest job first; knows how long each runs, and stops none."""

    name = "sjf"

    def __init__(self) -> None:
        self.waiting = Waiting(by_length)


class Srtf(Policy):
    """Least work left first, stopping jobs that have more left; knows how long each runs, and stops without loss."""

    name = "srtf"
    ideal = True

    def __init__(self) -> None:
        self.waiting = Waiting(by_length)

    def add(self, task: Task) -> None:
        self.waiting.add(task)

    def schedule(self, engine: Engine) -> None:
        """Fill the cluster again in the order of the work left; stop jobs that are not among the chosen."""
        if not self.waiting.lines:
            return
        chosen = self._chosen(engine)
        for task in [running_task for running_task in engine.running.values() if running_task.job.id not in chosen]:
            if task.job.preemptible:
                engine.stop(task)
        for task in chosen.values():
            if task.began < 0 and engine.fits(task):
                self._leave(task)
                engine.start(task)

    def _leave(self, task: Task) -> None:
        line = (task.job.queue, tuple(task.job.request.items()))
        tasks = self.waiting.lines[line]
        tasks.remove((self.waiting.key(task), task))
        if not tasks:
            del self.waiting.lines[line]

    def _chosen(self, engine: Engine) -> dict[str, Task]:
        free = dict(engine.trace.cluster.capacity)
        chosen: dict[str, Task] = {}
        for task in [running_task for running_task in engine.running.values() if not running_task.job.preemptible]:
            _take(free, task)
            chosen[task.job.id] = task
        running = sorted(
            ((self._now(engine, task), task) for task in engine.running.values() if task.job.preemptible),
            key=lambda entry: entry[0],
        )
        full: set[tuple[tuple[str, int], ...]] = set()
        lines = [self._line(tasks, full) for tasks in self.waiting.lines.values()]
        for _, task in merge(running, *lines, key=lambda entry: entry[0]):
            if _take(free, task):
                chosen[task.job.id] = task
                if not any(free.values()):
                    break
            else:
                full.add(tuple(task.job.request.items()))
        return chosen

    @staticmethod
    def _now(engine: Engine, task: Task) -> Key:
        left = task.remaining(engine.now)
        return (-task.job.priority, ENDLESS if left is None else left, task.order)

    @staticmethod
    def _line(tasks: list[tuple[Key, Task]], full: set[tuple[tuple[str, int], ...]]) -> Iterator[tuple[Key, Task]]:
        """A line, as long as its request may still fit."""
        request = tuple(tasks[0][1].job.request.items())
        for task in tasks:
            if request in full:
                return
            yield task


def _take(free: dict[str, int], task: Task) -> bool:
    request = task.job.request
    if any(amount > free.get(name, amount) for name, amount in request.items()):
        return False
    for name, amount in request.items():
        if name in free:
            free[name] -= amount
    return True


POLICIES: dict[str, Callable[[], Policy]] = {
    policy.name: policy for policy in (Fifo, BestEffortFifo, StaticQuota, KueueLike, KaiLike, VolcanoLike, Sjf, Srtf)
}
"""{name: how to make one}"""
