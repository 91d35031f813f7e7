"""Free and used amounts if some jobs had left and others had started: a policy looks before a job is stopped."""

from __future__ import annotations

from muster.tracesim.engine import Engine, Task
from muster.tracesim.model import GPU


class Trial:
    """A copy of the cluster's free amounts, of the queues' use and of the nodes. Nothing is started or stopped."""

    def __init__(self, engine: Engine) -> None:
        self._usage = engine.usage
        self._free = dict(engine.pool.free)
        self._used: dict[str, dict[str, int]] = {}
        self._places = engine.places.copied() if engine.places is not None else None

    def leaves(self, task: Task) -> None:
        """A running job stops."""
        self._add(task, -1)
        if self._places is not None:
            self._places.give(task.need, task.nodes)

    def starts(self, task: Task) -> list[str] | None:
        """Start a job: on the job's old nodes, where free, else on others. The nodes (empty where nodes do not count),
        or None where the job does not fit.
        """
        if not self._fits(task):
            return None
        nodes: list[str] | None = []
        if self._places is not None:
            own = bool(task.nodes) and self._places.back_on(task.need, task.nodes)
            nodes = list(task.nodes) if own else self._places.gang(task.need, task.count)
        if nodes is not None:
            self._add(task, 1)
        return nodes

    def fits(self, task: Task) -> bool:
        """Whether there is room, also on nodes, and every max on the way up allows it."""
        return self._fits(task) and (self._places is None or self._places.fits(task.need, task.count))

    def gpus(self, path: str) -> int:
        """GPUs of the queue."""
        used = self._used.get(path)
        return self._usage.gpus(path) if used is None else used.get(GPU, 0)

    def _add(self, task: Task, times: int) -> None:
        for name, amount in task.job.request.items():
            if name in self._free:
                self._free[name] -= amount * times
        for path in self._usage.chain[task.job.queue]:
            used = self._used.setdefault(path, dict(self._usage.used[path]))
            for name, amount in task.job.request.items():
                used[name] = used.get(name, 0) + amount * times

    def _fits(self, task: Task) -> bool:
        request = task.job.request
        if any(amount > self._free.get(name, amount) for name, amount in request.items()):
            return False
        for path in self._usage.chain[task.job.queue]:
            used, limit = self._used.get(path, self._usage.used[path]), self._usage.max[path]
            if any(used.get(name, 0) + amount > limit[name] for name, amount in request.items() if name in limit):
                return False
        return True
