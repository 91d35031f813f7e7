"""The search for victims looks at nodes and jobs as their turn comes: no other is chosen than if it looked at all of
them, and its cost does not grow with what runs; counted in function calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import pytest

from kit import nodes
from kit.depth import examples
from kit.packed import Packed, Shape, claim, filled
from kit.steps import calls
from muster.core.placement.view import Ask, Kept, View
from muster.core.quota.candidates import Basis, Search
from muster.core.victimsearch.prices import Option
from muster.core.victimsearch.search import _Planner
from muster.core.victimsearch.sites import Site
from muster.model.demand import Demand

ONE = Shape(1, 1)


def owners_come(named: str, *, kai: bool) -> None:
    """Four, one after the other, to each of some random clusters."""
    for seed in range(examples(12, least=4)):
        rng = Random(f"{named} {seed} {kai}")
        cluster = filled(rng, 12, kai=kai)
        for number in range(4):
            cluster.arrives(f"owed{number}", "b", claim(rng, cluster))
            cluster.passes(60_000)


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_nodes_come_in_the_order_in_which_all_of_them_would(kai: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn, seen = _Planner._one_by_one, list[int]()

    def compared(self: _Planner, site: Site, pod: Ask) -> Iterator[Option]:
        found = list(in_turn(self, site, pod))
        looked = sorted(self._options(site, self.begun.copied(), pod, None))
        if site.fits(self._all_gone().chosen):
            assert found == looked
            seen.append(len(found))
        else:
            assert not looked or not any(site.fits([*self.begun.chosen, *each.uids]) for each in looked)
        yield from found

    monkeypatch.setattr(_Planner, "_one_by_one", compared)
    owners_come("in turn", kai=kai)
    assert sum(each > 2 for each in seen) > 5, seen


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_no_set_costs_less_than_the_cheapest_that_is_enough_alone(kai: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    option, seen = _Planner._option, list[int]()

    def compared(self: _Planner, site: Site, found: Search, pod: Ask, node: str) -> Option | None:
        chosen = option(self, site, found, pod, node)
        here = [uid for uid in site.givers(node) if uid not in found.chosen and self._may_give(found, uid)]
        if chosen is not None and len(chosen.uids) == 1:
            sets = [uids for count in (1, 2) for uids in combinations(here, count) if self._legal(found, uids)]
            seen.append(len(sets))
            assert all(chosen.cost <= self.prices.cost(each) for each in sets if site.room_without(pod, node, each))
        return chosen

    monkeypatch.setattr(_Planner, "_option", compared)
    owners_come("alone", kai=kai)
    assert sum(each > 2 for each in seen) > 5, seen


def cost(nodes: int, *, kai: bool) -> int:
    """Of one claimant where a borrower runs on all devices."""
    cluster = Packed([8] * nodes, {"a": 0, "b": 8 * nodes}, kai=kai)
    for index in range(nodes):
        cluster.arrive([f"run-{index}-{each}" for each in range(8)], "a", ONE)
        cluster.passes(1_000)
    assert len(cluster.running) == 8 * nodes
    cluster.arrives("first", "b", ONE)
    count = calls(lambda: cluster.arrives("owed", "b", ONE))
    assert len(cluster.ordered("owed")) == 1
    return count


@pytest.mark.parametrize("kai", [True, False], ids=["kai", "tree"])
def test_a_claimant_costs_the_same_however_many_run(kai: bool) -> None:
    few, many = cost(8, kai=kai), cost(64, kai=kai)
    assert many < 1.2 * few, (few, many)


def test_where_one_job_is_enough_no_set_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, without = list[list[str]](), Site.room_without

    def counted(self: Site, ask: Ask, node: str, uids: list[str]) -> bool:
        tried.append(uids)
        return without(self, ask, node, uids)

    monkeypatch.setattr(Site, "room_without", counted)
    cost(4, kai=True)
    assert [len(each) for each in tried] == [1, 1], tried


def test_while_nothing_is_placed_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many claims are in force, a node that is seen again costs the admitter nothing for their places."""
    kept, keep = list[str](), View.keep

    def counted(self: View, ask: Ask, node: str, *more: Any) -> Kept:
        kept.append(node)
        return keep(self, ask, node, *more)

    cluster = Packed([8] * 2, {"a": 0, "b": 16}, kai=True)
    cluster.arrive([f"run-{at}" for at in range(16)], "a", ONE)
    cluster.passes(1_000)
    cluster.arrive([f"owed-{at}" for at in range(12)], "b", ONE)
    places = [each for each in cluster.bench.states["gang_admitter"].orders.values() if each.places]
    assert len(places) == 12, "they wait until their victims have stopped"
    monkeypatch.setattr(View, "keep", counted)
    cluster.bench.facts(nodes.node("n1", cpu=999, memory=1000, gpu=8))
    cluster.settle()
    assert not kept, kept


def test_of_many_that_are_owed_those_are_found_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of twenty queues is owed what a borrower uses."""
    asked, refuses, owed = list[str](), Basis.owed_at, 20

    def counted(self: Basis, queue: str, demand: Demand) -> str:
        asked.append(queue)
        return refuses(self, queue, demand)

    monkeypatch.setattr(Basis, "owed_at", counted)
    cluster = Packed([4] * (owed // 4), {"a": 0, **{f"b{at}": 1 for at in range(owed)}}, kai=False)
    cluster.arrive([f"run-{at}" for at in range(owed)], "a", ONE)
    cluster.passes(1_000)
    assert len(cluster.running) == owed
    asked.clear()
    cluster.bench.facts(*(cluster.created(f"owed-{at}", f"b{at}", ONE) for at in range(owed)))
    cluster.settle()
    assert all(len(cluster.ordered(f"owed-{at}")) == 1 for at in range(owed))
    assert len(asked) <= 7 * owed, len(asked)
