"""The search for victims looks at nodes and jobs as their turn comes: no other is chosen than if it looked at all of
them, and its cost does not grow with what runs; counted in function calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kit.depth import examples
from kit.packed import Packed, Shape, claim, filled
from kit.steps import calls
from muster.core.placement.view import Ask
from muster.core.quota.reclaim import Basis
from muster.core.reclaim.search import _Planner
from muster.core.reclaim.sets import Option
from muster.core.reclaim.sites import Site
from muster.model.demand import Demand

ONE = Shape(1, 1)


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
    for seed in range(examples(12, least=4)):
        rng = Random(f"in turn {seed} {kai}")
        cluster = filled(rng, 12, kai=kai)
        for number in range(4):
            cluster.arrives(f"owed{number}", "b", claim(rng, cluster))
            cluster.passes(60_000)
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


def test_of_many_that_are_owed_those_are_found_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of twenty queues is owed what a borrower uses."""
    asked, refuses, owed = list[str](), Basis.refuses_what_is_owed, 20

    def counted(self: Basis, queue: str, demand: Demand) -> bool:
        asked.append(queue)
        return refuses(self, queue, demand)

    monkeypatch.setattr(Basis, "refuses_what_is_owed", counted)
    cluster = Packed([4] * (owed // 4), {"a": 0, **{f"b{at}": 1 for at in range(owed)}}, kai=False)
    cluster.arrive([f"run-{at}" for at in range(owed)], "a", ONE)
    cluster.passes(1_000)
    assert len(cluster.running) == owed
    asked.clear()
    cluster.bench.facts(*(cluster.created(f"owed-{at}", f"b{at}", ONE) for at in range(owed)))
    cluster.settle()
    assert all(len(cluster.ordered(f"owed-{at}")) == 1 for at in range(owed))
    assert len(asked) < 4 * owed, len(asked)
