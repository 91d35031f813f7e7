"""A job with quota that no evictions make room for on the nodes: that is searched for once, and again when it may be
otherwise.
"""

from __future__ import annotations

import pytest

from kit.packed import nodes_stay
from kit.scenes import Scene
from muster.events.decisions import EvictionOrdered, ReclaimDeferred


def searches(scene: Scene) -> int:
    """Each ends with a decision: an order, or that the nodes stay as they are."""
    return len([each for each in scene.bench.happened(ReclaimDeferred) if each.reason == "nodes_stay"])


def left(scene: Scene) -> list[str]:
    return [victim.ref.name for order in scene.bench.happened(EvictionOrdered) for victim in order.victims]


def test_nothing_is_searched_while_nothing_changes_that_matters() -> None:
    scene = nodes_stay(Scene())
    assert searches(scene) == 1
    scene.lines(*(f"gang a/other{index} head=8 workers=0x0" for index in range(3)))
    before = searches(scene)
    for index in range(20):
        scene.lines("time +600s", f"job a/late{index} cpu=100", f"gone a/late{index}")
    assert searches(scene) == before and not left(scene)
    scene.bench.sound()


@pytest.mark.parametrize("after", [1, 120, 86_400])
def test_it_is_searched_again_when_a_pod_of_others_leaves(after: int) -> None:
    scene = nodes_stay(Scene())
    scene.lines(f"time +{after}s", "foreign-gone f0", "time +120s")
    assert left(scene) == ["x"], "with the other gone the node is free"
    scene.bench.sound()


@pytest.mark.parametrize("after", [1, 120])
def test_it_is_searched_again_when_a_node_comes(after: int) -> None:
    scene = nodes_stay(Scene())
    scene.lines(f"time +{after}s", "foreign f1 node=n1 cpu=3", "node n1 cpu=4", "time +120s")
    before = searches(scene)
    assert not left(scene)
    scene.lines("foreign-gone f0", "time +120s")
    assert left(scene) == ["x"]
    assert before <= 2
    scene.bench.sound()


def test_it_is_searched_again_when_the_rules_change() -> None:
    """Within its own guarantee b keeps x; later it has none."""
    scene = nodes_stay(Scene())
    scene.tree_of(("a", 4), ("b", 4), age_limit="0")
    scene.settle()
    scene.lines("foreign-gone f0", "time +120s")
    assert not left(scene), "b is guaranteed what x has"
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    scene.settle()
    scene.lines("time +120s")
    assert left(scene) == ["x"]
    scene.bench.sound()


def test_it_is_searched_again_when_other_work_may_go() -> None:
    """A pod that is not ours goes, and work of b takes its room before anybody looks: it may go as x may."""
    scene = nodes_stay(Scene())
    scene.line("foreign-gone f0")
    scene.line("foreign f2 node=n0 cpu=3")
    scene.settle()
    scene.lines("time +120s")
    assert not left(scene)
    scene.lines("foreign-gone f2", "time +120s")
    assert left(scene) == ["x"]
    scene.bench.sound()
