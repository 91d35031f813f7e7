"""Several jobs are owed quota at once: each starts as soon as a job that was ordered to leave has left for it."""

from __future__ import annotations

import pytest

from kit.packed import STOP_MS, Packed, Shape

HOUR_MS = 3_600_000


@pytest.mark.parametrize("kai", [True, False])
@pytest.mark.parametrize("mode", ["pack", "spread"])
@pytest.mark.parametrize("sizes", [[2, 1, 1], [1] * 16, [4] * 4])
def test_a_job_has_the_place_that_has_come_free_and_no_victim_takes_it(
    sizes: list[int], mode: str, *, kai: bool
) -> None:
    """Whatever job the victim left for: all of them ask alike."""
    total = sum(sizes)
    cluster = Packed(sizes, {"o": total, "b": 0}, kai=kai, mode=mode)
    for index in range(total):
        cluster.arrives(f"v{index}", "b", Shape(1, 1))
        cluster.passes(1000)
    cluster.passes(HOUR_MS)
    owed = [f"c{index}" for index in range(total)]
    cluster.stops = {f"v{index}": STOP_MS - 1000 * (7 * index % 20) for index in range(total)}
    for name in owed:
        cluster.arrives(name, "o", Shape(1, 1))
    cluster.passes(STOP_MS)
    assert [name for name in owed if name not in cluster.running] == []
    assert cluster.evicted.total() == total


@pytest.mark.parametrize("kai", [True, False])
def test_quota_that_comes_free_elsewhere_is_no_place(*, kai: bool) -> None:
    """What leaves for the first job frees quota for the second one as well, in halves of two devices."""
    cluster = Packed([1, 1, 1], {"o": 2, "b": 0}, kai=kai, mode="spread")
    half = Shape(1, share=500)
    cluster.arrives("h1", "b", half)
    cluster.arrives("h2", "b", half)
    cluster.passes(10 * HOUR_MS)
    cluster.arrives("g1", "b", Shape(2, share=500))
    cluster.arrives("g2", "b", Shape(2, share=500))
    cluster.passes(60_000)
    cluster.arrives("c0", "o", Shape(1, 1))
    cluster.arrives("c1", "o", Shape(1, 1))
    cluster.passes(STOP_MS)
    assert {"c0", "c1"} <= cluster.running.keys()
    assert set(cluster.ordered("c0")) == {"g1", "g2"}
    assert len(cluster.ordered("c1")) == 1


@pytest.mark.parametrize("kai", [True, False])
@pytest.mark.parametrize("slow_s", [600, 36_000])
def test_what_others_refuse_to_give_is_taken_at_once_from_more_victims(slow_s: int, *, kai: bool) -> None:
    """Three of four cannot be suspended, and the fourth is slow to leave: no more than the three are replaced."""
    cluster = Packed([4, 4], {"o": 4, "b": 0}, kai=kai)
    for index in range(8):
        cluster.arrives(f"v{index}", "b", Shape(1, 1))
        cluster.passes(1000)
    cluster.passes(HOUR_MS)
    cluster.stops["v7"] = slow_s * 1000
    cluster.refuses = {"v4", "v5", "v6"}
    cluster.arrives("c", "o", Shape(4, 1))
    cluster.passes(STOP_MS)
    assert cluster.ordered("c") == ["v7", "v6", "v5", "v4", "v3", "v2", "v1"]
    assert cluster.evicted.total() == 4


@pytest.mark.parametrize("kai", [True, False])
def test_no_other_node_is_cleared_while_one_is_being_cleared(*, kai: bool) -> None:
    """One of four cannot be suspended: what the three others make room for is not given up for a whole node more."""
    cluster = Packed([4, 4], {"o": 4, "b": 0}, kai=kai)
    for index in range(8):
        cluster.arrives(f"v{index}", "b", Shape(1, 1))
        cluster.passes(1000)
    cluster.passes(HOUR_MS)
    cluster.refuses = {"v6"}
    cluster.arrives("c", "o", Shape(1, 4))
    assert cluster.ordered("c") == ["v7", "v6", "v5", "v4"]
    cluster.refuses = set()
    for _ in range(20):
        cluster.passes(60_000)
    assert "c" in cluster.running
    assert cluster.evicted.total() < 8


@pytest.mark.parametrize("kai", [True, False])
def test_the_place_that_one_has_just_taken_is_not_given_to_the_next(*, kai: bool) -> None:
    """A slow admitter admits both in one commit; quota for the second came free where it has no place."""
    cluster = Packed([2, 1, 1, 2], {"o": 4, "b": 0}, kai=kai)
    cluster.arrives("stays", "b", Shape(1, 2), on="n3")
    cluster.passes(HOUR_MS)
    cluster.arrives("leaves", "b", Shape(4, 1))
    cluster.passes(1000)
    cluster.refuses = {"stays"}
    cluster.arrives("first", "o", Shape(1, 2))
    cluster.arrives("second", "o", Shape(1, 2))
    assert (cluster.ordered("first"), cluster.ordered("second")) == (["leaves"], ["stays"])
    cluster.bench.paused = frozenset({"gang_admitter"})
    cluster.passes(STOP_MS)
    assert {"first", "second"}.isdisjoint(cluster.running)
    cluster.bench.paused = frozenset()
    cluster.settle()
    assert "first" in cluster.running
    assert "second" not in cluster.running
