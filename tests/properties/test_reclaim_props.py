"""Reclaim on random trees and loads: as the rule says by brute force, found whenever there is any; and then over.

The rule is written here a second time, over plain numbers and every set of victims; nothing of the core decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, permutations
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.depth import examples
from muster.core.quota.candidates import Candidates, Run, basis
from muster.core.quota.candidates import search as begun
from muster.core.quota.demand import Charge
from muster.core.quota.evictionrules import giving_objection, rules
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.victimsearch.profiles import owed
from muster.events.base import Cause
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree

SETTINGS = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TREE = Ref("ElasticQuotaTree", "kube-system", "tree", "tree")

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

    def ledger(self) -> tuple[Ledger, Candidates]:
        """The same for the core."""
        nodes = []
        for path, least in self.least.items():
            children = tuple(each for each in self.least if each.rpartition("/")[0] == path)
            nodes.append(QuotaNode(path, dict(least), dict(self.most[path]), (), children))
        ledger = Ledger()
        ledger.install(QuotaTree(TREE, tuple(nodes)))
        runs: dict[str, list[Run]] = {}
        for at, name in enumerate(self.runs):
            work = self.jobs[name]
            charge = Charge("any", work.queue, dict(work.asks), priority=work.priority, begun=Cause(at + 1, 0))
            ledger.charge(name, charge)
            runs.setdefault(work.queue, []).append(Run(work.priority, -at, 0, name, name))
        return ledger, Candidates({leaf: sorted(lot) for leaf, lot in runs.items()}, now=len(self.runs))

    def victims(self, job: str) -> list[str]:
        (ledger, candidates), work = self.ledger(), self.jobs[job]
        return owed(basis(ledger), work.queue, Demand(dict(work.asks)), candidates).uids

    def objection(self, job: str, chosen: Iterable[str]) -> str:
        (ledger, _), work = self.ledger(), self.jobs[job]
        given, demand = basis(ledger), Demand(dict(work.asks))
        return giving_objection(rules(given, work.queue, demand), begun(given, work.queue, demand), chosen)


NAMES = ("cpu", "memory")


def drawn(rng: Random, *, sound: bool) -> World:
    """A tree of up to three levels below the root, nearly full. ``sound``: all guarantees can be met at once."""
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
    ranks = rng.choice(((0,), (0, 0, 1)))
    hungry = rng.choice(leaves)
    for number in range(rng.randint(3, 8)):
        asks = {name: rng.randint(1, total[name]) for name in names if len(names) == 1 or rng.random() < 0.7}
        if asks:
            world.jobs[f"job-{number}"] = Work(rng.choice(leaves), asks, rng.choice(ranks))
    for name, work in sorted(world.jobs.items(), key=lambda entry: rng.random()):
        if rng.random() < (0.3 if work.queue == hungry else 0.9) and not world.refused(name):
            world.runs.append(name)
    return world


def waiting(world: World) -> list[tuple[str, str]]:
    """(job, the node that owes it its room) of all that wait and are refused."""
    jobs = [name for name in world.jobs if name not in world.runs and world.refused(name)]
    return [(name, world.covered(name)) for name in jobs]


@SETTINGS
@given(st.randoms(use_true_random=False), st.booleans())
def test_victims_are_by_the_rule_and_found_whenever_there_are_any(rng: Random, sound: bool) -> None:
    world = drawn(rng, sound=sound)
    for job, level in waiting(world):
        (ledger, _), work = world.ledger(), world.jobs[job]
        assert basis(ledger).owed_at(work.queue, Demand(dict(work.asks))) == level
        ways = world.ways(job, level) if level else []
        assert not sound or not level or ways, f"{job} is guaranteed what it asks for, and nobody may leave"
        chosen = world.victims(job)
        assert frozenset(chosen) in ways if ways else not chosen
        assert not chosen or world.objection(job, chosen) == ""
        again = World(world.least, world.most)
        again.jobs, again.runs = world.jobs, [name for name in world.runs if name not in chosen] + [job]
        assert not sound or not any(again.covered(name) and not again.refused(name) for name in chosen)


@SETTINGS
@given(st.randoms(use_true_random=False), st.booleans())
def test_no_others_may_leave(rng: Random, sound: bool) -> None:
    """Whatever two jobs are proposed for a third, the accountant takes them if and only if the rule does."""
    world = drawn(rng, sound=sound)
    for job, level in waiting(world):
        ways = world.ways(job, level) if level else []
        for some in combinations(world.runs, 1 + rng.randint(0, 1)):
            legal = any(not world.objection(job, order) for order in permutations(some))
            assert legal == (frozenset(some) in ways), f"{some} for {job}: {ways}"


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_taking_back_comes_to_an_end_and_is_never_undone(rng: Random) -> None:
    """Who is owed lowest is first, until nobody is owed: nobody leaves twice, or after it was started for this."""
    world = drawn(rng, sound=True)
    first = list(world.runs)
    left: set[str] = set()
    while True:
        due = [(name, level) for name in world.jobs if name not in world.runs and (level := world.covered(name))]
        if not due:
            return
        job, _ = max(due, key=lambda entry: (entry[1].count("/"), world.jobs[entry[0]].priority, entry[0]))
        chosen = world.victims(job) if world.refused(job) else []
        for victim in chosen:
            assert victim in first, f"{victim} leaves after it was started for a guarantee"
            assert victim not in left, f"{victim} leaves twice"
            left.add(victim)
            world.runs.remove(victim)
        assert not world.refused(job), f"{job} is owed, and nobody leaves for it"
        world.runs.append(job)


def test_a_job_that_straddles_the_min_of_its_queue_is_taken_back() -> None:
    """Twelve of sixteen for a queue of eight: no part of it can leave alone, and the other queue is owed its eight."""
    whole = {"cpu": 16}
    world = World(
        {"root": whole, "root/a": {"cpu": 8}, "root/b": {"cpu": 8}}, {"root": whole, "root/a": {}, "root/b": {}}
    )
    world.jobs = {
        "old": Work("root/a", {"cpu": 12}),
        "new": Work("root/b", {"cpu": 8}),
        "more": Work("root/b", {"cpu": 9}),
    }
    world.runs = ["old"]
    assert world.victims("new") == ["old"]
    assert world.victims("more") == [], "nine are beyond its guarantee"


@pytest.mark.parametrize(("younger", "gives"), [(0, "late"), (1, "early")])
def test_what_started_within_the_guarantee_stays_whatever_its_queue_borrows_later(younger: int, gives: str) -> None:
    """Eight within the guarantee, then four more: of jobs of equal priority the four leave, though the eight lose less
    when they have just written a checkpoint."""
    whole = {"cpu": 12}
    world = World(
        {"root": whole, "root/a": {"cpu": 8}, "root/b": {"cpu": 4}}, {"root": whole, "root/a": {}, "root/b": {}}
    )
    world.jobs = {"early": Work("root/a", {"cpu": 8}), "late": Work("root/a", {"cpu": 4}, younger)}
    world.jobs["new"] = Work("root/b", {"cpu": 4})
    world.runs = ["early", "late"]
    ledger, candidates = world.ledger()
    candidates.runs = {
        "root/a": [run._replace(youth=-9 if run.uid == "late" else 0) for run in candidates.runs["root/a"]]
    }
    assert owed(basis(ledger), "root/b", Demand({"cpu": 4}), candidates).uids == [gives]


def flat(**leaves: int) -> Ledger:
    """Leaves of one root with their mins, which sum up to all there is."""
    nodes = [QuotaNode(f"root/{name}", {"cpu": least}, {"cpu": 99}) for name, least in leaves.items()]
    whole = sum(leaves.values())
    root = QuotaNode("root", {"cpu": whole}, {"cpu": whole}, (), tuple(leaf.path for leaf in nodes))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *nodes)))
    return ledger


def running(ledger: Ledger, *jobs: tuple[str, str, int, int], now: int) -> Candidates:
    """(uid, leaf, cpu, log time since when it runs)"""
    runs: dict[str, list[Run]] = {}
    for uid, leaf, cpu, since in jobs:
        ledger.charge(uid, Charge("any", f"root/{leaf}", {"cpu": cpu}, begun=Cause(since, 0)))
        runs.setdefault(f"root/{leaf}", []).append(Run(0, -since, 0, uid, uid))
    for work in runs.values():
        work.sort()
    return Candidates(runs, now=now)


HOUR = 3_600_000


def test_the_youngest_gives_way_whatever_queue_it_is_of() -> None:
    """b is furthest above its min, by share and by amount; what runs in c has run for a minute."""
    ledger = flat(a=6, b=1, c=2)
    candidates = running(
        ledger, ("old", "b", 5, 0), ("new", "c", 2, 9 * HOUR), ("also", "c", 2, 0), now=9 * HOUR + 60_000
    )
    assert owed(basis(ledger), "root/a", Demand({"cpu": 2}), candidates).uids == ["new"]


def test_the_youngest_gives_way_however_much_it_frees() -> None:
    """An hour of eight cores is more lost than two hours of two; that it has run for two says that it will run on."""
    ledger = flat(a=8, b=2)
    candidates = running(ledger, ("large", "b", 8, HOUR), ("small", "b", 2, 0), now=2 * HOUR)
    assert owed(basis(ledger), "root/a", Demand({"cpu": 2}), candidates).uids == ["large"]


def test_who_has_been_evicted_often_lately_goes_last() -> None:
    ledger = flat(a=4, b=0)
    candidates = running(ledger, ("again", "b", 2, HOUR), ("steady", "b", 2, 0), now=2 * HOUR)
    candidates.deprioritised = lambda uid: uid == "again"
    assert owed(basis(ledger), "root/a", Demand({"cpu": 2}), candidates).uids == ["steady"]
    assert sorted(owed(basis(ledger), "root/a", Demand({"cpu": 4}), candidates).uids) == ["again", "steady"]
