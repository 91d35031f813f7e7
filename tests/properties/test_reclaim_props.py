"""Reclaim on random trees and loads: as the rule says by brute force, found whenever there is any; and then over.

``kit.guarantee`` states the rule a second time, over plain numbers and every set of victims.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.depth import examples
from kit.guarantee import Work, World, drawn
from muster.core.quota.candidates import Candidates, Run, basis
from muster.core.quota.candidates import search as begun
from muster.core.quota.demand import Charge
from muster.core.quota.evictionrules import giving_objection, rules
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.victimsearch.search import owed
from muster.events.base import Cause
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree

SETTINGS = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TREE = Ref("ElasticQuotaTree", "kube-system", "tree", "tree")


def ledger_of(world: World) -> tuple[Ledger, Candidates]:
    """The same world for the core."""
    nodes = []
    for path, least in world.least.items():
        children = tuple(each for each in world.least if each.rpartition("/")[0] == path)
        nodes.append(QuotaNode(path, dict(least), dict(world.most[path]), (), children))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, tuple(nodes)))
    runs: dict[str, list[Run]] = {}
    for at, name in enumerate(world.runs):
        work = world.jobs[name]
        charge = Charge("any", work.queue, dict(work.asks), priority=work.priority, begun=Cause(at + 1, 0))
        ledger.charge(name, charge)
        runs.setdefault(work.queue, []).append(Run(work.priority, -at, 0, name, name))
    return ledger, Candidates({leaf: sorted(lot) for leaf, lot in runs.items()}, now=len(world.runs))


def victims_of(world: World, job: str) -> list[str]:
    (ledger, candidates), work = ledger_of(world), world.jobs[job]
    return owed(basis(ledger), work.queue, Demand(dict(work.asks)), candidates).uids


def objection_to(world: World, job: str, chosen: Iterable[str]) -> str:
    (ledger, _), work = ledger_of(world), world.jobs[job]
    given, demand = basis(ledger), Demand(dict(work.asks))
    return giving_objection(rules(given, work.queue, demand), begun(given, work.queue, demand), chosen)


def waiting(world: World) -> list[tuple[str, str]]:
    """(job, the node that owes it its room) of all that wait and are refused."""
    jobs = [name for name in world.jobs if name not in world.runs and world.refused(name)]
    return [(name, world.covered(name)) for name in jobs]


@SETTINGS
@given(st.randoms(use_true_random=False), st.booleans())
def test_victims_are_by_the_rule_and_found_whenever_there_are_any(rng: Random, sound: bool) -> None:
    world = drawn(rng, sound=sound)
    for job, level in waiting(world):
        (ledger, _), work = ledger_of(world), world.jobs[job]
        assert basis(ledger).owed_at(work.queue, Demand(dict(work.asks))) == level
        ways = world.ways(job, level) if level else []
        assert not sound or not level or ways, f"{job} is guaranteed what it asks for, and nobody may leave"
        chosen = victims_of(world, job)
        assert frozenset(chosen) in ways if ways else not chosen
        assert not chosen or objection_to(world, job, chosen) == ""
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
            legal = any(not objection_to(world, job, order) for order in permutations(some))
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
        chosen = victims_of(world, job) if world.refused(job) else []
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
    assert victims_of(world, "new") == ["old"]
    assert victims_of(world, "more") == [], "nine are beyond its guarantee"


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
    ledger, candidates = ledger_of(world)
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
