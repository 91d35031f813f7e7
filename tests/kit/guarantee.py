"""Guarantees by brute force: who is owed room, who may leave for whom, and what may not be left over at the end.

A second statement of the rule, over plain numbers and every set of victims. No code of the core decides here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

Amounts = Mapping[str, int]


class Work(NamedTuple):
    queue: str
    asks: Amounts
    priority: int = 0


class World:
    """Quotas by path (parents first), jobs by name, and the names of those that run, in the order of their starts."""

    def __init__(self, least: Mapping[str, Amounts], most: Mapping[str, Amounts]) -> None:
        self.least, self.most = least, most
        self.jobs: dict[str, Work] = {}
        self.runs: list[str] = []

    def uses(self, path: str, name: str, gone: Iterable[str] = ()) -> int:
        here = (self.jobs[job] for job in self.runs if job not in gone)
        return sum(work.asks.get(name, 0) for work in here if f"{work.queue}/".startswith(f"{path}/"))

    def up(self, path: str) -> Iterator[str]:
        """A path and those above it, the root last."""
        while path:
            yield path
            path = path.rpartition("/")[0]

    def refused(self, job: str, gone: Iterable[str] = ()) -> list[tuple[str, str]]:
        work = self.jobs[job]
        return [
            (path, name)
            for path in self.up(work.queue)
            for name, amount in work.asks.items()
            if amount and name in self.most[path] and self.uses(path, name, gone) + amount > self.most[path][name]
        ]

    def within(self, path: str, job: str, names: Iterable[str], gone: Iterable[str] = ()) -> bool:
        asks = self.jobs[job].asks
        return all(self.uses(path, name, gone) + asks.get(name, 0) <= self.least[path].get(name, 0) for name in names)

    def covered(self, job: str) -> str:
        """The lowest node that owes a job its room; empty where none does."""
        work, some = self.jobs[job], {name for path, least in self.least.items() if "/" in path for name in least}
        names = [name for name, amount in work.asks.items() if amount and name in some]
        levels = [path for path in self.up(work.queue) if "/" in path and self.within(path, job, names)]
        if not names or not levels:
            return ""
        inside = all(name in some and levels[0].startswith(path) for path, name in self.refused(job))
        return levels[0] if inside else ""

    def may(self, victim: str, job: str, level: str, gone: frozenset[str]) -> bool:
        """Whether one more job leaves for another, when these have gone."""
        v, c = self.jobs[victim], self.jobs[job]
        if level in self.up(v.queue):
            return False
        shared = next(path for path in self.up(v.queue) if path in self.up(c.queue))
        before = [other for other in self.runs if other not in gone and self.jobs[other].queue == v.queue]
        before.sort(key=lambda other: (-self.jobs[other].priority, self.runs.index(other)))
        alone = [self.jobs[other] for other in before[: before.index(victim) + 1]]
        sides = [path for path in self.up(v.queue) if len(path) > len(shared)]
        own = [path for path in self.up(c.queue) if len(shared) < len(path) <= len(level)]
        return any(
            v.asks.get(name)
            and sum(work.asks.get(name, 0) for work in alone) > self.least[v.queue].get(name, 0)
            and all(self.uses(path, name, gone) > self.least[path].get(name, 0) for path in sides)
            and all(self.within(path, job, [name], gone) for path in own)
            for name in {name for path, name in self.refused(job, gone) if len(path) <= len(shared)}
        )

    def ways(self, job: str, level: str) -> list[frozenset[str]]:
        """All sets of victims, one after the other, with which the job fits and of which nobody could stay."""
        ready, seen, begins = list[frozenset[str]](), set[frozenset[str]](), [frozenset[str]()]
        while begins:
            gone = begins.pop()
            if gone in seen:
                continue
            seen.add(gone)
            if not self.refused(job, gone):
                ready.append(gone)
                continue
            begins += [gone | {other} for other in self.runs if other not in gone and self.may(other, job, level, gone)]
        return [way for way in ready if not any(other < way for other in ready)]


NAMES = ("cpu", "memory")


def drawn(rng: Random, *, sound: bool, ranks: Sequence[int] = ()) -> World:
    """A tree of up to three levels below the root, nearly full. ``sound``: all guarantees can be met at once.
    ``ranks``: the priorities to choose from.
    """
    names = NAMES[: rng.choice((1, 1, 2))]
    total = {name: rng.randint(1, rng.choice((3, 8))) for name in names}
    least: dict[str, dict[str, int]] = {"root": dict(total)}
    most: dict[str, dict[str, int]] = {"root": dict(total)}
    left = {"root": dict(total)}
    for number in range(rng.randint(2, 6)):
        above = rng.choice([path for path in least if path.count("/") < 3])
        path = f"{above}/n{number}"
        room = left[above] if sound else total
        mine = {name: rng.choice((0, room[name], rng.randint(0, room[name]))) for name in names}
        for name in names:
            left[above][name] -= mine[name]
        least[path] = {name: amount for name, amount in mine.items() if amount}
        left[path] = dict(mine)
        most[path] = {
            name: rng.randint(mine[name], max(mine[name], total[name])) for name in names if rng.random() < 0.2
        }
    if not sound and rng.random() < 0.5:
        most["root"] = {name: rng.randint(1, amount) for name, amount in total.items()}
    order = sorted(least, key=lambda path: (path.count("/"), path))
    world = World({path: least[path] for path in order}, {path: most[path] for path in order})
    leaves = [path for path in order if not any(other.startswith(f"{path}/") for other in order)]
    ranks = ranks or rng.choice(((0,), (0, 0, 1)))
    hungry = rng.choice(leaves)
    for number in range(rng.randint(3, 8)):
        asks = {name: rng.randint(1, total[name]) for name in names if len(names) == 1 or rng.random() < 0.7}
        if asks:
            world.jobs[f"job-{number}"] = Work(rng.choice(leaves), asks, rng.choice(ranks))
    for name, work in sorted(world.jobs.items(), key=lambda entry: rng.random()):
        if rng.random() < (0.3 if work.queue == hungry else 0.9) and not world.refused(name):
            world.runs.append(name)
    return world


def left_undone(world: World) -> Iterator[str]:
    """What nobody may leave over, in words: a waiting job that fits, and a waiting job for which others may leave."""
    for name in world.jobs:
        if name in world.runs:
            continue
        if not world.refused(name):
            yield f"{name} fits and waits"
        elif (level := world.covered(name)) and world.ways(name, level):
            yield f"{name} is owed its room by {level}, and others may leave for it"


def state_of(world: World) -> dict[str, Any]:
    """The world as a state file for ``muster decide``: one node has all there is, and nobody has waited for long."""

    def quota(path: str) -> dict[str, Any]:
        name, children = path.rpartition("/")[2], [each for each in world.least if each.rpartition("/")[0] == path]
        below = {"children": [quota(each) for each in children]} if children else {"namespaces": [name]}
        return {"name": name, "min": dict(world.least[path]), "max": dict(world.most[path]), **below}

    jobs = []
    for at, (name, work) in enumerate(world.jobs.items()):
        pod: dict[str, Any] = {"cpu_milli": 1000 * work.asks.get("cpu", 0), "memory_mib": 0}
        pod["memory_mib"] = work.asks.get("memory", 0)
        created = 99_900 + at
        if name in world.runs:
            created = 10 + world.runs.index(name)
            pod |= {"phase": "Running", "node": "n", "started_s": created}
        jobs.append({"name": name, "queue": work.queue.rpartition("/")[2], "pods": [pod], "created_s": created})
    whole = world.most["root"]
    root = quota("root") | {"min": dict(whole)}
    for node in _nodes(root):
        for most in (node["min"], node["max"]):
            if "memory" in most:
                most["memory"] = f"{most['memory']}Mi"
    node = {"name": "n", "cpu_milli": 1000 * whole["cpu"]}
    if "memory" in whole:
        node["memory_mib"] = whole["memory"]
    tree = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"}}
    return {"nodes": [node], "queues": {**tree, "spec": {"root": root}}, "jobs": jobs, "now_s": 100_000}


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("children", ()):
        yield from _nodes(child)
