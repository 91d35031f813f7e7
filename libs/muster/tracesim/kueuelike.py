"""``kueue-like``: Kueue's rules, with best-effort order, ``reclaimWithinCohort: Any`` and no preemption in a queue.

Decisions come in rounds. Each round takes a head of every queue: the first job by priority and arrival without a
refusal. All heads are judged on the same state, and then served: first heads within a guarantee, the lowest guarantee
first, then by priority and arrival. A head with room starts. For a head within the min of the queue, or of a queue
above, the youngest borrowers stop. A refused head blocks equal jobs behind until a job ends. Where nodes count, quota
alone admits, and pods look for nodes alone.
"""

from __future__ import annotations

from bisect import insort

from muster.tracesim.engine import Engine, Policy, Task
from muster.tracesim.model import GPU, TraceJob
from muster.tracesim.waiting import by_arrival

_Line = tuple[str, int, tuple[tuple[str, int], ...]]
"""(queue, priority, request): one answer holds for all jobs of a line."""


class KueueLike(Policy):
    """Rounds of heads; owed quota is taken back from the youngest borrowers."""

    name = "kueue-like"
    gangs = False

    def begin(self, engine: Engine) -> None:
        self._engine = engine
        self._usage = engine.usage
        self._lines: dict[_Line, list[Task]] = {}
        self._refused: set[_Line] = set()
        self._ran: dict[str, Task] = {}
        """The jobs with quota at the end of the last call."""
        self._capacity = engine.machines.capacity

    def add(self, task: Task) -> None:
        insort(self._lines.setdefault(_line(task.job), []), task, key=by_arrival)

    def schedule(self, engine: Engine) -> None:
        freed = self._capacity != engine.machines.capacity or any(uid not in engine.running for uid in self._ran)
        self._capacity = engine.machines.capacity
        stopped = self._rounds()
        while freed or stopped:
            self._refused.clear()
            freed, stopped = False, self._rounds()
        self._ran = dict(engine.running)

    def _rounds(self) -> bool:
        """Rounds until every line is refused; whether a job was stopped."""
        any_stopped = False
        while heads := self._heads():
            stopped = self._round(heads)
            if stopped:
                # Room beyond the need of one claimant is for all jobs, in order.
                self._refused.clear()
                any_stopped = True
        return any_stopped

    def _heads(self) -> list[Task]:
        heads: dict[str, Task] = {}
        for line, tasks in self._lines.items():
            if line not in self._refused:
                head = heads.setdefault(line[0], tasks[0])
                if by_arrival(tasks[0]) < by_arrival(head):
                    heads[line[0]] = tasks[0]
        return list(heads.values())

    def _round(self, heads: list[Task]) -> bool:
        """Serve heads, all judged before the first is served; whether a job was stopped."""
        judged = [(self._level(task), by_arrival(task), task, self._judged(task)) for task in heads]
        stopped: set[str] = set()
        for _, _, task, victims in sorted(judged, key=lambda entry: entry[:2]):
            again = bool(victims) and not stopped.isdisjoint(victim.job.id for victim in victims or ())
            chosen = self._judged(task) if again else victims
            if chosen is None:
                self._refused.add(_line(task.job))
            elif self._fits(task):
                # A head with victims is judged again in the next round.
                if not chosen:
                    self._start(task)
            elif chosen and self._fits_without(task, chosen):
                for victim in chosen:
                    self._engine.stop(victim, by=task)
                    stopped.add(victim.job.id)
                self._start(task)
        return bool(stopped)

    def _start(self, task: Task) -> None:
        line = _line(task.job)
        tasks = self._lines[line]
        tasks.remove(task)
        if not tasks:
            del self._lines[line]
        self._engine.start(task)

    # --- one head -------------------------------------------------------------------------------------------------

    def _judged(self, task: Task) -> list[Task] | None:
        """The victims: an empty list where the job fits; None where the job is refused."""
        return [] if self._fits(task) else self._victims(task) or None

    def _fits(self, task: Task) -> bool:
        return self._engine.fits(task) and self._usage.within_max(task.job)

    def _level(self, task: Task) -> int:
        """Levels between the queue and the lowest node with the job within min; the tree's height without a node."""
        chain = self._usage.chain[task.job.queue]
        return next((at for at, path in enumerate(chain) if self._within(path, task.job)), len(chain))

    def _within(self, path: str, job: TraceJob) -> bool:
        used, low = self._usage.used[path], self._usage.min[path]
        return all(
            used.get(name, 0) + amount <= low.get(name, 0)
            for name, amount in job.request.items()
            if name in low or name == GPU
        )

    def _victims(self, task: Task) -> list[Task]:
        """Lowest priority first, then the youngest borrowers; without victims that need not leave."""
        chain, level = self._usage.chain[task.job.queue], self._level(task)
        if level >= len(chain) - 1:
            return []
        lenders = self._lenders(chain[level], chain)
        if not lenders or self._hopeless(task, lenders):
            return []
        running = [
            victim for victim in self._engine.running.values() if victim.job.queue in lenders and victim.job.preemptible
        ]
        gone: dict[str, int] = {}
        chosen: list[Task] = []
        for victim in sorted(running, key=lambda task: (task.job.priority, -(task.admitted // 1000), task.order)):
            between = lenders[victim.job.queue]
            if any(self._usage.over_min(path) <= gone.get(path, 0) for path in between):
                continue
            chosen.append(victim)
            for path in between:
                gone[path] = gone.get(path, 0) + victim.job.gpus
            if self._fits_without(task, chosen):
                return self._filled_back(task, chosen)
        return []

    def _lenders(self, owed: str, chain: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Queue outside of the owed node -> the nodes from this queue up to below the shared node, all above min."""
        lenders: dict[str, tuple[str, ...]] = {}
        for path, nodes in self._usage.chain.items():
            if owed not in nodes:
                between = tuple(node for node in nodes if node not in chain)
                if all(self._usage.over_min(node) > 0 for node in between):
                    lenders[path] = between
        return lenders

    def _hopeless(self, task: Task, lenders: dict[str, tuple[str, ...]]) -> bool:
        """Whether the job cannot fit even without all jobs of these queues."""
        back = sum(self._usage.gpus(path) for path in lenders)
        return task.job.gpus > self._engine.pool.free.get(GPU, task.job.gpus) + back

    def _fits_without(self, task: Task, victims: list[Task]) -> bool:
        """Whether the job fits without the victims."""
        job, free = task.job, self._engine.pool.free
        for name, amount in job.request.items():
            back = sum(victim.job.request.get(name, 0) for victim in victims)
            if amount > free.get(name, amount) + back:
                return False
            for path in self._usage.chain[job.queue]:
                if name in (limit := self._usage.max[path]):
                    below = sum(
                        victim.job.request.get(name, 0)
                        for victim in victims
                        if path in self._usage.chain[victim.job.queue]
                    )
                    if self._usage.used[path].get(name, 0) - below + amount > limit[name]:
                        return False
        return True

    def _filled_back(self, task: Task, chosen: list[Task]) -> list[Task]:
        """Without victims that need not leave; the last victim must."""
        kept = list(chosen)
        for victim in reversed(chosen[:-1]):
            without = [other for other in kept if other is not victim]
            if self._fits_without(task, without):
                kept = without
        return kept


def _line(job: TraceJob) -> _Line:
    return job.queue, job.priority, tuple(job.request.items())
