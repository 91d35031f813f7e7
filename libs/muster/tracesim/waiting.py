"""Waiting jobs, for policies: jobs of one queue and one request form a line, and lines are compared by their heads.

What does not fit does not fit for its whole line, so a round looks at as many heads as there are lines, however many
jobs wait.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace

from muster.tracesim.engine import Task

Key = tuple[int, ...]
Line = tuple[str, tuple[tuple[str, int], ...]]
ENDLESS = 2**62


def by_arrival(task: Task) -> Key:
    """Priority, then arrival."""
    return (-task.job.priority, task.order)


def by_length(task: Task) -> Key:
    """Priority, then the work that is left, then arrival."""
    left = ENDLESS if task.job.duration is None else task.job.duration - task.done
    return (-task.job.priority, left, task.order)


class Waiting:
    """Lines of waiting jobs, each in the order of ``key``."""

    def __init__(self, key: Callable[[Task], Key]) -> None:
        self.key = key
        self.lines: dict[Line, list[tuple[Key, Task]]] = {}

    def add(self, task: Task) -> None:
        line = (task.job.queue, tuple(task.job.request.items()))
        insort(self.lines.setdefault(line, []), (self.key(task), task), key=lambda entry: entry[0])

    def heads(self, queue: str | None = None) -> Iterator[Task]:
        """The first of every line (of one queue), in no particular order."""
        for (path, _), tasks in self.lines.items():
            if queue is None or path == queue:
                yield tasks[0][1]

    def queues(self) -> list[str]:
        """Queues in which a job waits."""
        return list(dict.fromkeys(path for path, _ in self.lines))

    def first(self) -> Task | None:
        """The head of all."""
        return min(((tasks[0]) for tasks in self.lines.values()), key=lambda entry: entry[0], default=(None, None))[1]

    def remove_head(self, task: Task) -> None:
        """The head of a line no longer waits."""
        line = (task.job.queue, tuple(task.job.request.items()))
        tasks = self.lines[line]
        assert tasks[0][1] is task
        del tasks[0]
        if not tasks:
            del self.lines[line]

    def start_all(self, fits: Callable[[Task], bool], start: Callable[[Task], None], queue: str | None = None) -> None:
        """Start, in order, every task (of one queue) that fits; one that does not fit blocks no other."""
        heads = [(tasks[0][0], line) for line, tasks in self.lines.items() if (queue is None or line[0] == queue)]
        heapify(heads)
        while heads:
            line = heads[0][1]
            task = self.lines[line][0][1]
            if not fits(task):
                heappop(heads)
                continue
            self.remove_head(task)
            start(task)
            rest = self.lines.get(line)
            if rest:
                heapreplace(heads, (rest[0][0], line))
            else:
                heappop(heads)
