"""What is held for age moves up where others fill a node above it: else they keep its claimant out for ever."""

from __future__ import annotations

import pytest

from kit import facts
from kit.scenes import Scene
from muster.events.claims import ClaimOpened
from muster.events.decisions import QuotaReserved


def held_at_the_leaf(run: str) -> Scene:
    """a/big wants all four cores of its leaf, of which a/x uses two; the eight of the root are not all in use."""
    scene = Scene()
    leaves = (facts.node("a", {"cpu": 0}, {"cpu": 4}, ("a",)), facts.node("b", {"cpu": 0}, {"cpu": 8}, ("b",)))
    root = facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)
    scene.do(facts.tree(root, rules={"reclaim": "disabled"}))
    scene.lines("synced")
    for name, cpu in (("a/x", 2), ("b/y0", 1)):
        scene.lines(f"job {name} cpu={cpu}{run}")
        scene.runs(name)
    scene.lines(f"job a/z cpu=1{run}", "job a/big cpu=4")
    scene.runs("a/z")
    scene.waits()
    scene.passed(4, "a/z", 1, run.partition("=")[2])
    scene.lines("finishes a/z", "gone a/z")
    return scene


def full() -> Scene:
    """Two leaves of four cores each use the eight of the root; a/old was passed, b/next was not."""
    scene = Scene()
    leaves = (facts.node("a", {"cpu": 0}, {"cpu": 4}, ("a",)), facts.node("b", {"cpu": 0}, {"cpu": 4}, ("b",)))
    root = facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)
    scene.do(facts.tree(root, rules={"reclaim": "disabled"}))
    scene.lines("synced")
    for name in ("a/x0", "a/x1", "b/y0", "b/y1"):
        scene.lines(f"job {name} cpu=2")
        scene.runs(name)
    scene.lines("job a/old cpu=2", "time +60s")
    scene.passed(2, "b/y1", 2)
    scene.lines("job b/next cpu=2")
    return scene


def admitted(scene: Scene) -> list[str]:
    return [each.ref.name for each in scene.bench.happened(QuotaReserved)]


@pytest.mark.parametrize("run", ["", " run=1h"], ids=["nothing is declared", "all declare an hour"])
def test_small_jobs_of_another_queue_cannot_keep_it_out_for_ever(run: str) -> None:
    """They take what is free of the root while a/x runs, and one waits for what the next of them leaves."""
    scene = held_at_the_leaf(run)
    assert [each.top for each in scene.bench.happened(ClaimOpened)] == ["root/a"]
    for index in (1, 2):
        scene.lines(f"job b/y{index} cpu=2{run}")
        scene.runs(f"b/y{index}")
    scene.lines("finishes a/x", "gone a/x")
    opened = scene.bench.happened(ClaimOpened)
    assert [each.top for each in opened] == ["root/a", "root"]
    assert bool(opened[-1].promised) == bool(run)
    scene.lines("job b/z0 cpu=2 run=9h", "finishes b/y1", "gone b/y1")
    assert admitted(scene)[-1] == "big"
    assert len(scene.bench.happened(ClaimOpened)) == 2
    scene.bench.sound()


def test_it_stays_where_it_is_while_a_node_below_refuses_too() -> None:
    scene = held_at_the_leaf("")
    for index in (1, 2):
        scene.lines(f"job b/y{index} cpu=2")
    scene.lines("time +3600s")
    assert [each.top for each in scene.bench.happened(ClaimOpened)] == ["root/a"]
    scene.bench.sound()


def test_what_another_queue_releases_is_not_idle_for_it_while_its_own_is_full() -> None:
    """Both limits refuse it: of what b/y0 leaves it could use nothing, and what a/x0 leaves is free at the root too."""
    scene = full()
    assert [each.top for each in scene.bench.happened(ClaimOpened)] == ["root"]
    scene.lines("finishes b/y0", "gone b/y0")
    assert admitted(scene)[-1] == "next"
    scene.lines("job a/small cpu=2", "finishes a/x0", "gone a/x0")
    assert admitted(scene)[-1] == "old"
    scene.bench.sound()
