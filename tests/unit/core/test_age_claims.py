"""Who ages, and what a claim for age may cost the others: how long nothing more is held after it."""

from __future__ import annotations

import pytest

from kit.scenes import WAITS_S, Scene
from kit.words import in_words
from muster.core.cell.seats import Seat
from muster.core.quota.claims import RESTS
from muster.core.quota.trees.rules import read_rules
from muster.events.claims import ClaimOpened
from muster.model.quota import WIDTHS_TO_AGE
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state

HOUR_S = 3600
IDLE_S = 1700


def scene_of(**rules: str) -> Scene:
    """Eight cores, all of them used by four jobs of b."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0), **rules)
    scene.lines("synced")
    fill(scene, "x", 4)
    return scene


def fill(scene: Scene, name: str, jobs: int) -> None:
    for index in range(jobs):
        scene.lines(f"job b/{name}{index} cpu=2")
        scene.runs(f"b/{name}{index}")


def end(scene: Scene, *names: str) -> None:
    for name in names:
        scene.lines(f"finishes {name}", f"gone {name}")


def opened(scene: Scene) -> list[str]:
    return [each.ref.name for each in scene.bench.happened(ClaimOpened)]


# --- who ages ---------------------------------------------------------------------------------------------------------


ENOUGH = WIDTHS_TO_AGE * 4 // 2
"""So many jobs of two cores pass a job of four for it to age; four of them while it waits, in the place of all four."""


@pytest.mark.parametrize("queue", ["a", "b"])
def test_a_job_ages_when_enough_later_work_has_started_before_it(queue: str) -> None:
    """Not by time, and not by one job less; it is not the head of its queue: the first job of b came before."""
    scene = scene_of()
    scene.lines("job b/huge cpu=8 prio=1", f"job {queue}/wide cpu=4")
    scene.waits(24 * HOUR_S)
    scene.lines(f"follow b/x3 cpu=2 times={ENOUGH - 5}")
    assert opened(scene) == []
    scene.lines("follow b/x3 cpu=2 times=1")
    assert opened(scene) == ["wide"]
    end(scene, "b/x0", "b/x1")
    scene.runs(f"{queue}/wide")
    scene.bench.sound()


def test_nobody_ages_in_a_line_that_moves() -> None:
    """However long it is: each of them starts in its turn."""
    scene = scene_of()
    names = [f"{'ab'[index % 2]}/w{index}" for index in range(5 * WIDTHS_TO_AGE)]
    for name in names:
        scene.lines(f"job {name} cpu=2", "time +60s")
    before = "b/x0"
    for name in names:
        end(scene, before)
        scene.runs(name)
        before = name
    assert opened(scene) == []
    scene.bench.sound()


def test_work_of_higher_priority_does_not_pass() -> None:
    scene = scene_of()
    scene.lines("job b/wide cpu=4")
    scene.waits()
    scene.lines(f"follow b/x3 cpu=2 times={2 * ENOUGH} prio=1")
    assert opened(scene) == []
    scene.lines(f"follow b/x2 cpu=2 times={ENOUGH - 5}")
    assert opened(scene) == []
    scene.lines("follow b/x2 cpu=2 times=1")
    assert opened(scene) == ["wide"]


def test_a_job_that_ran_comes_anew() -> None:
    """What was passed before it ran is forgotten, and it is later than all that waits by now."""
    scene = scene_of()
    scene.lines("job a/wide cpu=4")
    scene.lines(f"follow b/x3 cpu=2 times={ENOUGH - 1}")
    end(scene, "b/x0", "b/x1")
    scene.runs("a/wide")
    scene.lines("job b/y0 cpu=2", "job b/y1 cpu=2", "suspends a/wide", "settles a/wide")
    for name in ("b/y0", "b/y1"):
        scene.runs(name)
    scene.waits()
    scene.lines(f"follow b/x3 cpu=2 times={ENOUGH - 5}")
    assert opened(scene) == []
    scene.lines("follow b/x3 cpu=2 times=1")
    assert opened(scene) == ["wide"]


def test_what_has_passed_a_job_is_kept_in_snapshots() -> None:
    scene = scene_of()
    scene.lines("job a/wide cpu=4")
    scene.waits()
    scene.lines(f"follow b/x3 cpu=2 times={ENOUGH - 5}")
    seat = scene.bench.seats["preemptor"]
    scene.bench.seats["preemptor"] = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
    scene.lines("follow b/x3 cpu=2 times=1")
    assert opened(scene) == ["wide"]
    scene.bench.sound()


def test_a_tree_that_gives_an_age_in_time_is_refused_in_one_sentence() -> None:
    rules, wrong = read_rules({"age-limit": "0"})
    assert (rules.ages, wrong) == (False, [])
    [told] = map(in_words, read_rules({"age-limit": "10m"})[1])
    assert told == (
        "annotation muster.dev/age-limit: jobs age as later work passes them, not by time; remove the annotation, or "
        "write 0: no job ages"
    )


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_what_stood_idle_for_one_is_paid_back_before_the_next() -> None:
    """Half an hour with a quarter of the node free, which another job asks for; the one it was for needs half of
    the node, and runs for no time.
    """
    scene = scene_of()
    scene.lines("job a/first cpu=4")
    scene.waits()
    scene.passed(4, "b/x3", 2)
    end(scene, "b/x0")
    scene.lines("job b/next cpu=2", f"time +{IDLE_S}s")
    end(scene, "b/x1")
    scene.runs("a/first")
    end(scene, "a/first")
    scene.runs("b/next")
    fill(scene, "y", 1)
    scene.lines("job a/second cpu=4")
    scene.waits()
    scene.passed(4, "b/x3", 2)
    scene.lines(f"time +{IDLE_S * RESTS // 2 - WAITS_S - 100}s")
    assert opened(scene) == ["first"]
    scene.lines("time +200s")
    assert opened(scene) == ["first", "second"]
    scene.bench.sound()


def test_where_nothing_stood_idle_the_next_follows_at_once() -> None:
    scene = scene_of()
    scene.lines("job a/first cpu=4", "job a/second cpu=4")
    scene.waits()
    scene.passed(4, "b/x3", 2)
    assert opened(scene) == ["first"], "one at a time"
    end(scene, "b/x0", "b/x1")
    scene.runs("a/first")
    assert opened(scene) == ["first", "second"]
