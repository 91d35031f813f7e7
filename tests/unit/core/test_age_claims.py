"""What a claim for age may cost the others: how long nothing more is held after it, and who gives way again."""

from __future__ import annotations

import pytest

from kit.scenes import Scene
from muster.core.preemption.heads import IDLE_PART, RUNS_PART
from muster.events.claims import ClaimOpened

pytestmark = pytest.mark.usefixtures("ages_by_time")

HOUR_S = 3600


def scene_of(*queues: tuple[str, int], **rules: str) -> Scene:
    """Eight cores, all of them used by four jobs of b."""
    scene = Scene()
    scene.tree_of(*queues, **rules)
    scene.lines("synced")
    fill(scene, "x")
    return scene


def fill(scene: Scene, name: str, jobs: int = 4) -> None:
    for index in range(jobs):
        scene.lines(f"job b/{name}{index} cpu=2")
        scene.runs(f"b/{name}{index}")


def end(scene: Scene, *names: str) -> None:
    for name in names:
        scene.lines(f"finishes {name}", f"gone {name}")


def opened(scene: Scene) -> list[str]:
    return [each.ref.name for each in scene.bench.happened(ClaimOpened)]


def comes_of_age(scene: Scene, name: str, cpu: int) -> None:
    scene.lines(f"job a/{name} cpu={cpu}", "time +700s")


def test_what_stood_idle_for_one_is_paid_back_before_the_next() -> None:
    """An hour with a quarter of the node free, which another job asks for; the one it was for needs half of the node,
    and runs for no time.
    """
    scene = scene_of(("a", 0), ("b", 0), age_limit="10m")
    comes_of_age(scene, "first", 4)
    end(scene, "b/x0")
    scene.lines("job b/next cpu=2", f"time +{HOUR_S}s")
    end(scene, "b/x1")
    scene.runs("a/first")
    end(scene, "a/first")
    scene.runs("b/next")
    fill(scene, "y", 1)
    comes_of_age(scene, "second", 4)
    scene.lines(f"time +{HOUR_S * IDLE_PART // 4 - 800}s")
    assert opened(scene) == ["first"]
    scene.lines("time +200s")
    assert opened(scene) == ["first", "second"]
    scene.bench.sound()


def test_where_nothing_stood_idle_the_next_follows_at_once() -> None:
    scene = scene_of(("a", 0), ("b", 0), age_limit="10m")
    comes_of_age(scene, "first", 2)
    end(scene, "b/x0")
    scene.runs("a/first")
    end(scene, "a/first")
    scene.lines("job b/y cpu=2")
    scene.runs("b/y")
    comes_of_age(scene, "second", 2)
    assert opened(scene) == ["first", "second"]


def test_a_job_wider_than_the_part_for_age_ends_such_claims_until_the_average_is_reached() -> None:
    """A job of all there is runs for an hour: age has a twentieth, so nothing is held for it for nineteen."""
    scene = scene_of(("a", 0), ("b", 0), age_limit="10m")
    comes_of_age(scene, "first", 8)
    end(scene, *(f"b/x{index}" for index in range(4)))
    scene.runs("a/first")
    scene.lines(f"time +{HOUR_S}s")
    end(scene, "a/first")
    fill(scene, "y")
    comes_of_age(scene, "second", 8)
    scene.lines(f"time +{HOUR_S * (RUNS_PART - 1) - 800}s")
    assert opened(scene) == ["first"]
    scene.lines("time +200s")
    assert opened(scene) == ["first", "second"]
    scene.bench.sound()


@pytest.mark.parametrize(("older_s", "second"), [(200, "b/old"), (400, "b/young")])
def test_each_eviction_counts_like_five_minutes_of_work(older_s: int, second: str) -> None:
    """The younger of two gives way; when both run again it is spared if the other began less than that before it."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0), age_limit="0")
    scene.lines("synced", "job b/old cpu=4")
    scene.runs("b/old")
    scene.lines("time +60s", "job b/young cpu=4")
    scene.runs("b/young")
    scene.lines("job a/owed cpu=4")
    assert scene.victims() == ["b/young"]
    scene.suspended("b/young")
    scene.runs("a/owed")
    scene.lines(f"time +{older_s - 60}s")
    end(scene, "a/owed")
    scene.runs("b/young")
    scene.lines("job a/again cpu=4")
    assert scene.victims() == [second]
