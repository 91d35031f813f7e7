"""Reclaim on random trees and loads: legal, no larger than needed, found whenever there is any; and then over."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.core.quota.candidates import Basis, Candidates, Run, basis, most_of
from muster.core.quota.candidates import search as begun
from muster.core.quota.demand import Charge, chain_of
from muster.core.quota.evictionrules import giving_objection, rules
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.victimsearch import search
from muster.core.victimsearch.profiles import owed
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree

SETTINGS = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
TREE = Ref("ElasticQuotaTree", "kube-system", "tree", "tree")
MOST_RUNNING = 9


def victims(given: Basis, queue: str, demand: Demand, candidates: Candidates) -> list[str]:
    return owed(given, queue, demand, candidates).uids


def objected(ledger: Ledger, queue: str, demand: Demand, chosen: Iterable[str]) -> str:
    given = basis(ledger)
    return giving_objection(rules(given, queue, demand), begun(given, queue, demand), chosen)


Load = tuple[Ledger, dict[str, list[Run]]]


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """A tree of two levels, full of small jobs, sometimes all of one size, that borrow what others are guaranteed."""
    largest = draw(st.sampled_from((1, 2, 4)))
    branches = draw(st.integers(1, 3))
    nodes: list[QuotaNode] = []
    total = 0
    leaves: list[str] = []
    for branch in range(branches):
        path = f"root/b{branch}"
        mins = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
        own = sum(mins) + draw(st.integers(0, 3))
        total += own
        children = tuple(f"{path}/l{index}" for index in range(len(mins)))
        leaves += children
        nodes.append(QuotaNode(path, {"cpu": own}, {"cpu": own + 20}, (), children))
        nodes += [QuotaNode(each, {"cpu": least}, {"cpu": 30}, ()) for each, least in zip(children, mins, strict=True)]
    root = QuotaNode("root", {"cpu": total}, {"cpu": total}, (), tuple(f"root/b{each}" for each in range(branches)))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *nodes)))
    runs: dict[str, list[Run]] = {}
    for number in range(draw(st.integers(0, MOST_RUNNING))):
        leaf, size = draw(st.sampled_from(leaves)), draw(st.integers(1, largest))
        demand = Demand({"cpu": size})
        if ledger.shortfall(leaf, demand) is None:
            uid = f"job-{number}"
            ledger.charge(uid, Charge("any", leaf, demand.request))
            runs.setdefault(leaf, []).append(Run(draw(st.integers(0, 2)), -number, 0, uid, uid))
    for work in runs.values():
        work.sort()
    return ledger, runs


def claims(ledger: Ledger) -> list[tuple[str, Demand]]:
    """What every leaf could claim in one piece: all that is left of its guarantee."""
    found = []
    for path, node in ledger.nodes.items():
        left = node.guaranteed.get("cpu", 0) - ledger.used.get(path, {}).get("cpu", 0)
        if not node.children and left > 0:
            found.append((path, Demand({"cpu": left})))
    return [claim for claim in found if ledger.shortfall(*claim) is not None]


@SETTINGS
@given(loads())
def test_victims_are_legal_needed_and_found_whenever_there_are_any(load: Load) -> None:
    ledger, runs = load
    for queue, demand in claims(ledger):
        chosen = victims(basis(ledger), queue, demand, Candidates(runs))
        if chosen:
            assert objected(ledger, queue, demand, chosen) == ""
            assert all(ledger.charges[uid].queue != queue for uid in chosen)
            continue
        for size in range(1, len(ledger.charges) + 1):
            for some in combinations(sorted(ledger.charges), size):
                assert objected(ledger, queue, demand, some), f"{queue} could have had {demand} from {some}"


@SETTINGS
@given(loads())
def test_a_search_that_is_given_up_early_would_have_found_nobody(load: Load) -> None:
    ledger, runs = load
    for queue, demand in claims(ledger):
        given_up = victims(basis(ledger), queue, demand, Candidates(runs))
        with patch.object(search._Planner, "_could_give", lambda *_: True):
            assert victims(basis(ledger), queue, demand, Candidates(runs)) == given_up


@given(st.lists(st.integers(0, 40), max_size=8), st.integers(0, 60), st.sampled_from((1, 10_001)))
def test_what_runs_give_at_the_most_is_a_sum_of_some_of_them(amounts: list[int], limit: int, times: int) -> None:
    """``times``: amounts that have a unit in common."""
    sums = {sum(some) for size in range(len(amounts) + 1) for some in combinations(amounts, size)}
    best = max(each for each in sums if each <= limit) * times
    assert most_of((amount * times for amount in amounts), limit * times) == best


def test_a_bound_is_enough_where_the_sum_would_take_too_many_steps() -> None:
    assert most_of((30_001, 50_000), 40_000) == 30_001
    assert most_of((30_001, 30_000), 40_000) == 40_000
    assert most_of((50_000,), 40_000) == 0


def test_a_search_is_given_up_where_every_run_is_larger_than_what_its_queue_is_above_its_min() -> None:
    """Each of two queues is 3 above its min, in jobs of 4: 6 are lacking, and nobody can give any."""
    ledger, runs = Ledger(), dict[str, list[Run]]()
    leaves = [
        QuotaNode(f"root/{name}", {"cpu": least}, {"cpu": 16}, ()) for name, least in (("a", 5), ("b", 5), ("c", 6))
    ]
    root = QuotaNode("root", {"cpu": 16}, {"cpu": 16}, (), tuple(leaf.path for leaf in leaves))
    ledger.install(QuotaTree(TREE, (root, *leaves)))
    for number, leaf in enumerate(("root/a", "root/a", "root/b", "root/b")):
        uid = f"job-{number}"
        ledger.charge(uid, Charge("any", leaf, {"cpu": 4}))
        runs.setdefault(leaf, []).append(Run(0, number, 0, uid, uid))
    planner = search._Planner
    with patch.object(planner, "_filled", autospec=True, side_effect=planner._filled) as picks:
        assert victims(basis(ledger), "root/c", Demand({"cpu": 6}), Candidates(runs)) == []
    assert picks.call_count == 1, "the others are tried as the first, and none of them can give"


@SETTINGS
@given(loads())
def test_taking_back_comes_to_an_end_and_is_never_undone(load: Load) -> None:
    """All queues reclaim until none can: each job is evicted at most once, and its quota is not reclaimed again."""
    ledger, runs = load
    took: set[tuple[str, str]] = set()
    left: set[str] = set()
    for step in range(100):
        for queue, demand in claims(ledger):
            candidates = Candidates(runs, lambda uid: uid in ledger.charges)
            chosen = victims(basis(ledger), queue, demand, candidates)
            if chosen:
                break
        else:
            return
        gave: list[Charge] = []
        for uid in chosen:
            charge = ledger.release(uid)
            assert charge is not None
            assert uid not in left, f"{uid} leaves twice"
            left.add(uid)
            assert (charge.queue, queue) not in took, "who gave way takes it back"
            took.add((queue, charge.queue))
            runs[charge.queue] = [run for run in runs[charge.queue] if run.uid != uid]
            gave.append(charge)
        claimant = f"claimant-{step}"
        ledger.charge(claimant, Charge("any", queue, demand.request))
        runs.setdefault(queue, []).append(Run(1, -100 - step, 0, claimant, claimant))
        runs[queue].sort()
        for charge in gave:
            level = next(ledger.owed_at(charge.queue, charge.demand), "")
            assert not level or level in chain_of(queue), "who gave way could claim it back at once"
    raise AssertionError("taking back does not come to an end")


@SETTINGS
@given(loads(), st.randoms(use_true_random=False))
def test_the_order_in_which_work_is_listed_changes_nothing(load: Load, rng: st.DataObject) -> None:
    ledger, runs = load
    shuffled = list(runs.items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    for queue, demand in claims(ledger):
        listed, otherwise = Candidates(runs), Candidates(dict(shuffled))
        assert victims(basis(ledger), queue, demand, listed) == victims(basis(ledger), queue, demand, otherwise)


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
        ledger.charge(uid, Charge("any", f"root/{leaf}", {"cpu": cpu}))
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
    assert victims(basis(ledger), "root/a", Demand({"cpu": 2}), candidates) == ["new"]


def test_the_youngest_gives_way_however_much_it_frees() -> None:
    """An hour of eight cores is more lost than two hours of two; that it has run for two says that it will run on."""
    ledger = flat(a=8, b=2)
    candidates = running(ledger, ("large", "b", 8, HOUR), ("small", "b", 2, 0), now=2 * HOUR)
    assert victims(basis(ledger), "root/a", Demand({"cpu": 2}), candidates) == ["large"]


def test_who_has_been_evicted_often_lately_goes_last() -> None:
    ledger = flat(a=4, b=0)
    candidates = running(ledger, ("again", "b", 2, HOUR), ("steady", "b", 2, 0), now=2 * HOUR)
    candidates.deprioritised = lambda uid: uid == "again"
    assert victims(basis(ledger), "root/a", Demand({"cpu": 2}), candidates) == ["steady"]
    assert sorted(victims(basis(ledger), "root/a", Demand({"cpu": 4}), candidates)) == ["again", "steady"]
