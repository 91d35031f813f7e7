"""Guarantees by flavor, by total, or both: the share that is given, on random clusters of two to three types of GPUs.

Nothing here asks the core. The judge knows the tree and the jobs as numbers, and the jobs that run from the log. A
queue is guaranteed its amounts by flavor, and beside these the rest of its amount by total, of any flavor. A claim by
name takes from whoever is beyond the amount of the flavor; a claim on the rest takes from whoever is beyond both.
"""

from __future__ import annotations

from random import Random

from kit import facts
from kit.depth import examples
from kit.flavored import KEY, Types, leaf, node
from muster.events.decisions import QuotaReserved
from muster.events.facts import NodeObserved
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.workload import NodeState
from properties.test_flavors_props import TYPES, Amounts, World

LEAVES = ("team/a", "team/b", "c")
LEAST = 99
"""Percent."""


class Shared(World):
    """A tree whose guarantees are by flavor, by total, or both."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.names = rng, TYPES[: rng.randint(2, 3)]
        self.whole = {name: rng.randint(2, 6) for name in self.names}
        self.least: dict[str, Amounts] = {}
        self.total: dict[str, int] = {}
        self.most: dict[str, Amounts] = {}
        self.jobs, self.runs = {}, {}
        left = self.whole | {"gpu": sum(self.whole.values())}
        inner = self._queue("team", left)
        below = self.least["team"] | {"gpu": self.total["team"]}
        leaves = [self._leaf(f"team/{name}", below) for name in ("a", "b")]
        team = node("team", inner, self.most["team"], children=tuple(leaves))
        alone = leaf("c", self._queue("c", left), self.most["c"])
        self.scene = Types()
        self.scene.flavors(self.whole, team, alone)

    def _queue(self, path: str, left: Amounts) -> Amounts:
        rng, least = self.rng, Amounts()
        for name in self.names:
            most = min(left[name], left["gpu"] - sum(least.values()))
            least[name] = rng.randint(0, most) if rng.random() < 0.6 else 0
        named = sum(least.values())
        rest = rng.randint(0, left["gpu"] - named) if rng.random() < 0.6 else 0
        for name, amount in least.items():
            left[name] -= amount
        left["gpu"] -= named + rest
        self.least[path], self.total[path] = least, named + rest
        capped = [name for name in self.names if rng.random() < 0.2]
        self.most[path] = {name: rng.randint(least[name], self.whole[name]) for name in capped}
        if rng.random() < 0.2:
            self.most[path]["gpu"] = rng.randint(named + rest, sum(self.whole.values()))
        return least | ({"gpu": named + rest} if rest or not named else {})

    def settles(self) -> None:
        """Whoever is to leave has left, and the others run."""
        for _ in range(20):
            entries = self.scene.bench.states["quota_accountant"].entries
            self.runs = {}
            for event in self.scene.bench.happened(QuotaReserved):
                entry = entries.get(event.ref.uid)
                if entry is not None and entry.attempt == event.attempt and not entry.leaving:
                    self.runs[event.ref.key] = tuple(names[0] for names in event.flavors.values())
            for name in sorted(self.runs):
                if self.scene.jobs[name].suspended:
                    self.scene.runs(name)
            leaving = [entry.ref.key for entry in entries.values() if entry.leaving]
            if not leaving:
                return
            for name in leaving:
                self.scene.suspended(name)
        raise AssertionError("jobs take each other's room without an end")

    # --- the judge

    def rest(self, path: str, more: Amounts) -> int:
        """What is left of the guarantee beside the amounts by flavor, with ``more`` in use."""
        used = {key: self.used(path).get(key, 0) + more.get(key, 0) for key in (*self.names, "gpu")}
        named = sum(min(used[name], self.least[path][name]) for name in self.names)
        return self.total[path] - sum(self.least[path].values()) - (used["gpu"] - named)

    def right(self, name: str, flavors: tuple[str, ...]) -> tuple[str, bool] | None:
        """(the lowest node whose guarantee covers a job, whether by its amounts by flavor)"""
        mine = self.amounts(name, flavors)
        for path in reversed(self.nodes(name)[1:]):
            used, least = self.used(path), self.least[path] | {"gpu": self.total[path]}
            if all(used.get(key, 0) + amount <= least[key] for key, amount in mine.items()):
                return path, True
            if self.rest(path, mine) >= 0:
                return path, False
        return None

    def lent(self, flavor: str, level: str, below: str, *, by_name: bool) -> int:
        """What jobs below a node, and beside the claimant's side, use beyond what they are guaranteed of a flavor."""
        total = 0
        for path in LEAVES:
            if f"{path}/".startswith(f"{level}/") or (below and not f"{path}/".startswith(f"{below}/")):
                continue
            sides = [path] if level.startswith("team") or path == "c" else [path, "team"]
            loans = [self.used(side).get(flavor, 0) - self.least[side][flavor] for side in sides]
            loans += [] if by_name else [-self.rest(side, {}) for side in sides]
            total += max(0, min(loans))
        return total

    def is_owed(self, name: str, flavors: tuple[str, ...]) -> bool:
        """Whether a waiting job is within a guarantee, and others have borrowed enough."""
        right, mine = self.right(name, flavors), self.amounts(name, flavors)
        for path in self.nodes(name) if right is not None else ():
            assert right is not None
            level, by_name = right
            most = self.most[path] if path else self.whole | {"gpu": sum(self.whole.values())}
            for key, amount in mine.items():
                if key not in most:
                    continue
                lent = 0
                if len(path) < len(level):
                    kinds = [key] if key != "gpu" else [one for one in mine if one != "gpu"]
                    lent = sum(self.lent(one, level, path, by_name=by_name) for one in kinds)
                if amount > min(most[key], most[key] - self.used(path).get(key, 0) + lent):
                    return False
        return right is not None


def test_what_is_guaranteed_by_flavor_or_by_total_is_given() -> None:
    measured(Shared, range(examples(40)))


def measured(kind: type[Shared], seeds: range) -> None:
    """Of the GPUs that are owed at least 99 percent are given, and no max is passed."""
    given, missing = 0, 0
    for seed in seeds:
        world = kind(Random(seed))
        for index in range(world.rng.randint(4, 10)):
            world.draws(f"{world.rng.choice('abc')}/j{index}")
            world.scene.bench.pass_time(1000)
            world.settles()
            assert not world.over(), f"seed {seed}"
            given += sum(min(world.used(path).get("gpu", 0), world.total[path]) for path in LEAVES)
            waits = [name for name in world.jobs if name not in world.runs]
            owed = {name: way for name in waits for way in world.ways(name) if world.is_owed(name, way)}
            missing += sum(world.amounts(name, way)["gpu"] for name, way in owed.items())
        world.scene.bench.sound()
    assert given > 10 * len(seeds)
    assert missing * LEAST <= given * (100 - LEAST), f"{missing} of {given + missing} GPUs owed are not given"


class SharedOnNodes(Shared):
    """The same where Muster places the pods: nodes of each type, as many GPUs as the quota has."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.scene.lines("placement pack")
        for name, gpus in self.whole.items():
            for index in range(gpus):
                ref = Ref("Node", "", f"{name}.{index}", f"uid-{name}.{index}")
                has = {"cpu": 64000, "pods": 110000, GPU: 1000}
                state = NodeState(ref=ref, rv=facts.next_rv(), allocatable=has, labels={KEY: name})
                self.scene.do(NodeObserved(node=state))

    def draws(self, name: str) -> None:
        """Each pod takes one GPU: a node of one GPU has room for it, or no room at all."""
        rng, order = self.rng, self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        sets = [(f"set{index}", rng.randint(1, 3), 1) for index in range(rng.choice((1, 1, 2)))]
        self.jobs[name] = sets, order
        self.scene.asks(name, *sets, order=",".join(order))

    def settles(self) -> None:
        """Only who has places runs; the pods of a type are no more than its nodes."""
        super().settles()
        entries = self.scene.bench.states["quota_accountant"].entries
        placed = {entry.ref.key for entry in entries.values() if entry.admitted}
        self.runs = {name: flavors for name, flavors in self.runs.items() if name in placed}
        assert all(self.used("").get(name, 0) <= gpus for name, gpus in self.whole.items())


def test_what_is_guaranteed_is_given_on_nodes_too() -> None:
    measured(SharedOnNodes, range(1000, 1000 + examples(25)))
