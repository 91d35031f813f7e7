"""Least attained service: jobs that keep checkpoints give way, right after one, to jobs that have had less GPU time."""

from __future__ import annotations

import pytest

from kit.scenes import Scene
from kit.words import in_words
from muster.core.quota.service import FRESH_MS, LEAST_RUN_MS, MOST_TIMES
from muster.core.quota.trees.rules import read_rules
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered, QuotaReserved
from muster.model.quota import WIDTHS_TO_AGE

HOUR = 3_600_000


def full(spans: str = "2h", *, least: int = 0) -> Scene:
    """Eight cores, all of them borrowed by two jobs of b that run; ``least``: what b is guaranteed."""
    scene = Scene()
    rules = {"least_attained": spans} if spans else {}
    scene.tree_of(("a", 0), ("b", least), ("c", 0), **rules)
    scene.lines("synced")
    for name in ("b/long", "b/other"):
        scene.lines(f"job {name} cpu=4")
        scene.runs(name)
    return scene


def passes(scene: Scene, ms: int) -> None:
    scene.bench.pass_time(ms)
    scene.settle()


def marks(scene: Scene, name: str) -> None:
    """It has saved its work just now."""
    scene.change(name, checkpointed_at=scene.bench.now)


def orders(scene: Scene) -> list[tuple[str, list[str], str]]:
    """(claimant, victims, kind) of every order, in turn."""
    return [
        (event.ref.key, [each.ref.key for each in event.victims], event.kind)
        for stored in scene.bench.log
        for event in stored.commit.events
        if isinstance(event, EvictionOrdered)
    ]


def reserved(scene: Scene) -> str:
    """Who was let in last."""
    found = [e.ref.key for s in scene.bench.log for e in s.commit.events if isinstance(e, QuotaReserved)]
    return found[-1]


def test_who_has_had_most_gives_way_right_after_a_checkpoint() -> None:
    scene = full()
    scene.lines("job a/new cpu=4")
    passes(scene, 3 * HOUR)
    assert orders(scene) == [], "nobody keeps checkpoints"
    marks(scene, "b/long")
    assert orders(scene) == [("a/new", ["b/long"], "service")]
    scene.suspended("b/long")
    assert reserved(scene) == "a/new"
    scene.bench.sound()


def test_a_job_that_only_a_claim_for_age_refuses_is_no_claimant() -> None:
    """Without the claim its quota has room, and no node: it waits for the claim to end, and nobody leaves for it."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0), ("c", 0), least_attained="2h")
    scene.lines("placement pack hold=10000000000", "node n0 cpu=4", "node n1 cpu=4", "synced")
    for name in ("b/long", "b/other"):
        scene.lines(f"gang {name} head=3 workers=0x0")
        scene.runs(name)
    scene.lines("gang c/wide head=4 workers=1x4")
    passes(scene, 24 * HOUR)
    scene.lines("follow b/long head=3 workers=0x0 times=1")
    passes(scene, 3 * HOUR)
    before = "b/other"
    for index in range(WIDTHS_TO_AGE * 8 // 3):
        scene.lines(f"finishes {before}", f"gone {before}", f"gang b/x{index} head=3 workers=0x0")
        before = f"b/x{index}"
        scene.runs(before)
    [claim] = scene.bench.happened(ClaimOpened)
    assert (claim.kind, claim.ref.name) == ("age", "wide")
    scene.lines("gang a/new head=2 workers=0x0")
    marks(scene, "b/long")
    assert orders(scene) == []
    scene.bench.sound()


def test_it_does_not_happen_unless_the_tree_asks_for_it() -> None:
    scene = full("")
    scene.lines("job a/new cpu=4")
    passes(scene, 3 * HOUR)
    marks(scene, "b/long")
    assert orders(scene) == []


def test_within_one_queue_too_and_below_no_guarantee_of_another() -> None:
    scene = full(least=8)
    scene.lines("job a/new cpu=4")
    passes(scene, 3 * HOUR)
    marks(scene, "b/long")
    assert orders(scene) == [], "b is guaranteed what it uses"
    scene.lines("job b/new cpu=4")
    assert orders(scene) == [("b/new", ["b/long"], "service")]
    scene.suspended("b/long")
    assert reserved(scene) == "b/new", "and not who made room for it, though that came before it"
    scene.bench.sound()


def test_not_before_it_has_run_for_an_hour_and_reached_a_level() -> None:
    scene = full("30m,2h")
    scene.lines("job a/new cpu=4")
    passes(scene, LEAST_RUN_MS - 1_000)
    marks(scene, "b/long")
    assert orders(scene) == [], "it has not run for an hour"
    scene = full("2h")
    scene.lines("job a/new cpu=4")
    passes(scene, LEAST_RUN_MS + 1_000)
    marks(scene, "b/long")
    assert orders(scene) == [], "it has had less than two hours"


def test_who_comes_late_waits_for_the_next_checkpoint() -> None:
    scene = full()
    passes(scene, 3 * HOUR)
    marks(scene, "b/long")
    passes(scene, FRESH_MS + 1_000)
    scene.lines("job a/new cpu=4")
    assert orders(scene) == [], "a minute of its work would be lost"
    passes(scene, HOUR // 2)
    marks(scene, "b/long")
    assert orders(scene) == [("a/new", ["b/long"], "service")]


def test_a_mark_of_a_run_before_or_of_the_future_counts_for_nothing_more() -> None:
    scene = full()
    scene.lines("job a/new cpu=4")
    scene.change("b/long", checkpointed_at=scene.bench.now - 5 * HOUR)
    scene.change("b/other", checkpointed_at=scene.bench.now + 50 * HOUR)
    passes(scene, 3 * HOUR)
    assert orders(scene) == []
    scene.bench.sound()


def test_a_job_of_lower_priority_takes_nobodys_place() -> None:
    scene = full()
    scene.lines("job a/new cpu=4 prio=-1")
    passes(scene, 3 * HOUR)
    marks(scene, "b/long")
    assert orders(scene) == []


def test_who_gave_way_waits_behind_those_with_less_and_takes_nobodys_place_of_its_own_level() -> None:
    scene = full()
    scene.lines("job a/new cpu=4")
    passes(scene, 3 * HOUR)
    marks(scene, "b/long")
    scene.suspended("b/long")
    scene.runs("a/new")
    passes(scene, 3 * HOUR)
    marks(scene, "a/new")
    assert len(orders(scene)) == 1, "both have reached the level"
    scene.bench.sound()


def test_a_job_gives_way_so_no_more_than_four_times() -> None:
    scene = full("1h")
    for number in range(MOST_TIMES + 2):
        name = f"a/new{number}"
        passes(scene, LEAST_RUN_MS + 1_000)
        scene.lines(f"job {name} cpu=4")
        marks(scene, "b/long")
        if number >= MOST_TIMES:
            scene.lines(f"gone {name}")
            continue
        assert orders(scene)[-1] == (name, ["b/long"], "service")
        scene.suspended("b/long")
        scene.runs(name)
        scene.lines(f"finishes {name}", f"gone {name}")
        scene.runs("b/long")
    assert len(orders(scene)) == MOST_TIMES
    scene.bench.sound()


@pytest.mark.parametrize("text", ["", "0", "8h,1h", "1h,1h", "soon", "1m,2m,3m,4m,5m,6m,7m,8m,9m"])
def test_spans_that_do_not_rise_refuse_the_tree(text: str) -> None:
    rules, wrong = read_rules({"least-attained": text})
    assert rules.least_attained_ms == ()
    assert len(wrong) == 1
    assert in_words(wrong[0]).startswith("annotation muster.dev/least-attained: ")


def test_who_has_saved_its_work_gives_way_first_however_often_it_did() -> None:
    """Three evictions within an hour make a job the last of its priority, but not while it loses nothing."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.lines("synced", "job b/saves cpu=4")
    for number in range(3):
        scene.runs("b/saves")
        if not number:
            scene.lines("job b/other cpu=4")
            scene.runs("b/other")
            passes(scene, 5 * 60_000)
        passes(scene, 60_000)
        marks(scene, "b/saves")
        scene.lines(f"job a/owed{number} cpu=4")
        assert orders(scene)[-1] == (f"a/owed{number}", ["b/saves"], "guarantee")
        scene.suspended("b/saves")
        scene.runs(f"a/owed{number}")
        scene.lines(f"finishes a/owed{number}", f"gone a/owed{number}")
    scene.runs("b/saves")
    passes(scene, 60_000)
    marks(scene, "b/saves")
    scene.lines("job a/last cpu=4")
    assert orders(scene)[-1] == ("a/last", ["b/saves"], "guarantee")
    scene.bench.sound()


def test_reclaim_takes_who_saved_its_work_last() -> None:
    """A checkpoint counts as a start: the older of two borrowers loses less once it has noted one."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.lines("synced", "job b/old cpu=4")
    scene.runs("b/old")
    passes(scene, HOUR)
    scene.lines("job b/young cpu=4")
    scene.runs("b/young")
    passes(scene, HOUR)
    marks(scene, "b/old")
    scene.lines("job a/owed cpu=4")
    assert orders(scene) == [("a/owed", ["b/old"], "guarantee")]
    scene.bench.sound()
