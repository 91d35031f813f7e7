"""Flavors on random clusters of two to three types of GPUs, judged from the facts alone by every assignment there is.

Nothing here asks the core: the tree, the jobs and the flavors that a job may use are plain numbers and names, and what
was decided is read from the reservations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts
from kit.depth import examples
from kit.flavored import KEY, Types, leaf, node
from muster.events.decisions import GangAdmitted, QuotaReserved
from muster.events.facts import NodeObserved
from muster.model.keys import Ref
from muster.model.placing import GPU, PodRules
from muster.model.workload import NodeState

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = ("h100", "a100", "l40")
Amounts = dict[str, int]
Sets = list[tuple[str, int, int]]


class World:
    """A random tree of GPUs by type, and what runs in it."""

    def __init__(self, rng: Random, **rules: str) -> None:
        self.rng = rng
        self.names = TYPES[: rng.randint(2, 3)]
        self.whole = {name: rng.randint(2, 6) for name in self.names}
        self.least: dict[str, Amounts] = {}
        self.most: dict[str, Amounts] = {}
        self.jobs: dict[str, tuple[Sets, list[str]]] = {}
        self.runs: dict[str, tuple[str, ...]] = {}
        """job -> the flavor of each pod set"""
        left = dict(self.whole)
        inner = self._queue("team", left)
        below = dict(inner)
        leaves = [self._leaf(f"team/{name}", below) for name in ("a", "b")]
        team = node("team", inner, self.most["team"], children=tuple(leaves))
        alone = self._leaf("c", left)
        self.scene = Types()
        self.scene.flavors(self.whole, team, alone, **rules)

    def _queue(self, path: str, left: Amounts) -> Amounts:
        least = {name: self.rng.randint(0, left[name]) for name in self.names}
        for name, amount in least.items():
            left[name] -= amount
        self.least[path] = least
        capped = [name for name in self.names if self.rng.random() < 0.3]
        self.most[path] = {name: self.rng.randint(least[name], self.whole[name]) for name in capped}
        if self.rng.random() < 0.3:
            self.most[path]["gpu"] = self.rng.randint(sum(least.values()), sum(self.whole.values()))
        return least

    def _leaf(self, path: str, left: Amounts):  # type: ignore[no-untyped-def]
        least = self._queue(path, left)
        return leaf(path.rpartition("/")[2], least, self.most[path])

    def draws(self, name: str) -> None:
        """A job arrives, with one or two pod sets, and perhaps an order or a selector of its own."""
        rng = self.rng
        sets = [(f"set{index}", rng.randint(1, 2), rng.randint(1, 2)) for index in range(rng.choice((1, 1, 2)))]
        order, rules = list(self.names), None
        how = rng.random()
        if how < 0.4:
            order = rng.sample(order, rng.randint(1, len(order)))
        elif how < 0.6:
            order = [rng.choice(order)]
            rules = PodRules(node_labels={KEY: order[0]})
        self.jobs[name] = sets, order
        listed = ",".join(order) if rules is None else ""
        self.scene.asks(name, *sets, rules=rules, order=listed)

    def ends(self, name: str) -> None:
        self.scene.ends(name)
        del self.jobs[name]
        self.runs.pop(name, None)

    def amounts(self, name: str, flavors: tuple[str, ...]) -> Amounts:
        total: Amounts = {"gpu": 0}
        for (_, count, gpus), flavor in zip(self.jobs[name][0], flavors, strict=True):
            total["gpu"] += count * gpus
            total[flavor] = total.get(flavor, 0) + count * gpus
        return total

    def nodes(self, name: str) -> list[str]:
        queue = name.partition("/")[0]
        return ["", "team", f"team/{queue}"] if queue != "c" else ["", "c"]

    def used(self, path: str) -> Amounts:
        total: Amounts = {}
        for name, flavors in self.runs.items():
            if path in self.nodes(name):
                for key, amount in self.amounts(name, flavors).items():
                    total[key] = total.get(key, 0) + amount
        return total

    def fits(self, name: str, flavors: tuple[str, ...]) -> bool:
        """Whether a job stays within every max: of its flavors and of the total, at its queue and above."""
        mine = self.amounts(name, flavors)
        for path in self.nodes(name):
            most, used = self.most[path] if path else self.whole | {"gpu": sum(self.whole.values())}, self.used(path)
            if any(used.get(key, 0) + amount > most[key] for key, amount in mine.items() if key in most):
                return False
        return True

    def ways(self, name: str) -> Iterator[tuple[str, ...]]:
        sets, order = self.jobs[name]
        return product(order, repeat=len(sets))

    def over(self) -> list[str]:
        """The maxima that are passed."""
        limits = [(path, most) for path, most in self.most.items()] + [("", self.whole)]
        return [
            f"{path} {key}"
            for path, most in limits
            for key, amount in most.items()
            if self.used(path).get(key, 0) > amount
        ]


def reservations(world: World, since: int) -> list[QuotaReserved]:
    return world.scene.bench.happened(QuotaReserved)[since:]


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_a_job_that_could_start_on_an_allowed_flavor_starts_on_its_first(rng: Random) -> None:
    world = World(rng, reclaim="disabled", **{"age-limit": "0"})
    seen = 0
    for index in range(rng.randint(4, 14)):
        if world.jobs and rng.random() < 0.35:
            world.ends(rng.choice(sorted(world.jobs)))
        else:
            world.draws(f"{rng.choice('abc')}/j{index}")
        news = reservations(world, seen)
        seen += len(news)
        for event in news:
            name = event.ref.key
            chosen = tuple(names[0] for names in event.flavors.values())
            first = next(way for way in world.ways(name) if world.fits(name, way))
            assert world.amounts(name, chosen) == world.amounts(name, first), f"{name} is on {chosen}, not on {first}"
            world.runs[name] = chosen
        assert not world.over()
        waits = [name for name in world.jobs if name not in world.runs]
        idle = [(name, way) for name in waits for way in world.ways(name) if world.fits(name, way)]
        assert not idle, f"these could start: {idle}"
    world.scene.bench.sound()


class OnNodes(World):
    """The same with nodes: as many of each type as it happens, whatever the quota says. A pod takes one GPU."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, reclaim="disabled", **{"age-limit": "0"})
        self.size: dict[str, int] = {}
        self.pods: dict[str, dict[str, int]] = {}
        """job -> {node: its pods there}"""
        self.scene.lines("placement pack")
        for name in self.names:
            for _ in range(rng.randint(0, 2)):
                self.grows(name)

    def grows(self, name: str) -> None:
        """A further node of a type comes."""
        node, gpus = f"{name}.{len(self.size)}", self.rng.randint(1, 3)
        self.size[node] = gpus
        ref, has = Ref("Node", "", node, f"uid-{node}"), {"cpu": 64000, "pods": 110000, GPU: gpus * 1000}
        self.scene.do(NodeObserved(node=NodeState(ref=ref, rv=facts.next_rv(), allocatable=has, labels={KEY: name})))

    def draws(self, name: str) -> None:
        rng, order = self.rng, self.rng.sample(self.names, self.rng.randint(1, len(self.names)))
        sets = [(f"set{index}", rng.randint(1, 3), 1) for index in range(rng.choice((1, 1, 2)))]
        self.jobs[name] = sets, order
        self.scene.asks(name, *sets, order=",".join(order))

    def ends(self, name: str) -> None:
        super().ends(name)
        self.pods.pop(name, None)

    def free(self, flavor: str) -> int:
        """The free GPUs on the nodes of a type."""
        taken = sum(count for mine in self.pods.values() for node, count in mine.items() if node.startswith(flavor))
        return sum(gpus for node, gpus in self.size.items() if node.startswith(flavor)) - taken

    def starts(self, name: str, flavors: tuple[str, ...]) -> bool:
        amounts = self.amounts(name, flavors)
        return self.fits(name, flavors) and all(self.free(one) >= amounts[one] for one in {*flavors})

    def learns(self) -> list[tuple[str, tuple[str, ...]]]:
        """The new admissions, in order: each on nodes of the types of its reservation, and none beyond a node."""
        asked = {(event.ref.key, event.attempt): event for event in self.scene.bench.happened(QuotaReserved)}
        news = []
        for event in self.scene.bench.happened(GangAdmitted):
            if event.ref.key in self.jobs and event.ref.key not in self.runs:
                by_set = asked[event.ref.key, event.attempt].flavors
                chosen = tuple(by_set[called][0] for called, _, _ in self.jobs[event.ref.key][0])
                assert self.starts(event.ref.key, chosen)
                self.runs[event.ref.key] = chosen
                mine = self.pods[event.ref.key] = {}
                for place in event.placements:
                    assert place.node.startswith(by_set[place.pod_set][0])
                    mine[place.node] = mine.get(place.node, 0) + place.count
                news.append((event.ref.key, chosen))
        for name, gpus in self.size.items():
            assert sum(mine.get(name, 0) for mine in self.pods.values()) <= gpus
        return news


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_a_job_starts_on_an_allowed_flavor_with_quota_and_nodes(rng: Random) -> None:
    world = OnNodes(rng)
    for index in range(rng.randint(6, 16)):
        happens, name, first = rng.random(), f"{rng.choice('abc')}/j{index}", None
        if world.jobs and happens < 0.3:
            world.ends(rng.choice(sorted(world.jobs)))
        elif happens < 0.4:
            world.grows(rng.choice(world.names))
        else:
            world.draws(name)
            first = next((way for way in world.ways(name) if world.starts(name, way)), None)
        news = dict(world.learns())
        if first is not None:
            assert name in news and world.amounts(name, news[name]) == world.amounts(name, first)
        world.scene.bench.pass_time(6000)
        world.learns()
        assert not world.over()
        waits = [name for name in world.jobs if name not in world.runs]
        idle = [(name, way) for name in waits for way in world.ways(name) if world.starts(name, way)]
        assert not idle, f"these could start: {idle}, beside {world.runs} on {world.size}"
    world.scene.bench.sound()
