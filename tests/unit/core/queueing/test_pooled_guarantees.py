"""A node that is guaranteed more than its children together: the rest is theirs, before any job that borrows."""

from __future__ import annotations

import pytest

from kit import facts
from kit.bench import Bench
from muster.events.decisions import EvictionOrdered, QuotaReserved

WHOLE = {"cpu": 4}


@pytest.mark.parametrize("order", ["share", "learned"])
def test_a_leaf_within_the_guarantee_above_it_comes_before_an_older_job_that_borrows(order: str) -> None:
    bench = Bench()
    teams = tuple(facts.node(f"x{index}", {}, WHOLE, (f"x{index}",)) for index in (1, 2))
    pooled = facts.node("x", {"cpu": 2}, WHOLE, children=teams)
    lender = facts.node("y", {"cpu": 2}, WHOLE, ("y",))
    bench.facts(facts.tree(facts.node("root", WHOLE, WHOLE, children=(pooled, lender)), rules={"order": order}))
    bench.synced()
    running = [facts.job(f"runs-{index}", "y", cpu=1) for index in range(3)] + [facts.job("runs", "x1", cpu=1)]
    bench.facts(*map(facts.seen, running))
    bench.settle()
    bench.facts(facts.seen(facts.job("older", "y", cpu=1, created=bench.now)))
    bench.pass_time(60_000)
    bench.facts(facts.seen(facts.job("owed", "x1", cpu=1, created=bench.now)))
    bench.pass_time(1_000)
    victims = [victim.ref for each in bench.happened(EvictionOrdered) for victim in each.victims]
    other = next(each.ref for each in running if each.ref not in victims)
    bench.facts(facts.gone(other.name, other.namespace))
    bench.settle()
    assert [each.ref.name for each in bench.happened(QuotaReserved)][4:] == ["owed"]
    bench.sound()
