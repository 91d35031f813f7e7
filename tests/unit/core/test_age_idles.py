"""What is idle for a job that has waited too long is bounded; nothing is where it needs what others are owed."""

from __future__ import annotations

import random

import pytest

from kit.idled import Idled
from kit.scenes import Scene
from kit.traces import trace
from muster.core.views.story import Story
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.tracesim.runner import Options, simulate

HOUR_S = 3600
DAY_S = 24 * HOUR_S
CORES = 32


def aged(*queues: tuple[str, int]) -> Scene:
    """Eight cores in use by b when a/wide wants all of them, and has waited for ten minutes."""
    scene = Scene()
    scene.tree_of(*queues, age_limit="10m")
    scene.lines("synced")
    for index in range(4):
        scene.lines(f"job b/x{index} cpu=2")
        scene.runs(f"b/x{index}")
    scene.lines("job a/wide cpu=8", "time +700s")
    return scene


def ended(scene: Scene) -> list[str]:
    return [each.outcome for each in scene.bench.happened(ClaimEnded)]


def test_without_an_age_limit_a_claim_ends() -> None:
    scene = aged(("a", 0), ("b", 0))
    scene.tree_of(("a", 0), ("b", 0), age_limit="0")
    assert ended(scene) == ["unsatisfiable"]
    scene.lines("finishes b/x0", "gone b/x0", "job b/late cpu=2")
    scene.runs("b/late")
    scene.bench.sound()


def test_nothing_is_held_for_a_job_that_needs_what_others_are_owed() -> None:
    scene = aged(("a", 4), ("b", 4))
    assert scene.bench.happened(ClaimOpened) == []
    story = Story("a/wide")
    for stored in scene.bench.log:
        story.feed(stored)
    assert (
        "It needs some of the 4 cpu of quota root that other queues use or ask for within their guarantees"
        in story.of("a/wide").standing.text
    )


def said(scene: Scene, job: str) -> str:
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    return story.of(job).standing.text


def test_a_claim_ends_when_too_much_was_idle_for_it() -> None:
    """Half of the node is idle while others ask for it: a fiftieth of a day's capacity after 57.6 minutes."""
    scene = aged(("a", 0), ("b", 0))
    assert [each.ref.name for each in scene.bench.happened(ClaimOpened)] == ["wide"]
    scene.lines("job b/late cpu=4")
    for name in ("b/x0", "b/x1"):
        scene.lines(f"finishes {name}", f"gone {name}")
    scene.lines("time +3400s")
    assert ended(scene) == []
    scene.lines("time +50s", "job b/later cpu=1")
    assert said(scene, "a/wide").endswith("3833m cpu for an hour: at 3840m the claim ends")
    scene.lines("time +10s")
    assert ended(scene) == ["idle"]
    scene.runs("b/late")
    scene.bench.sound()


def test_what_no_other_job_asks_for_is_not_idle_for_a_claim() -> None:
    scene = aged(("a", 0), ("b", 0))
    scene.lines("finishes b/x0", "gone b/x0", "finishes b/x1", "gone b/x1", f"time +{DAY_S}s")
    assert ended(scene) == []
    scene.lines("finishes b/x2", "gone b/x2", "finishes b/x3", "gone b/x3")
    scene.runs("a/wide")
    scene.bench.sound()


def test_a_claim_that_others_overtake_within_their_guarantees_ends() -> None:
    """They ask for less than they are guaranteed when it is opened, and for all of it later."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 4), ("c", 0), age_limit="10m")
    scene.lines("synced", "job c/x cpu=2", "job c/y cpu=6")
    scene.runs("c/x")
    scene.runs("c/y")
    scene.lines("job a/wide cpu=8", "time +700s", "finishes c/y", "gone c/y", "job b/owed cpu=4", "job c/z cpu=2")
    scene.runs("b/owed")
    scene.lines("time +6900s")
    assert ended(scene) == []
    scene.lines("time +20s")
    assert ended(scene) == ["idle"]
    scene.runs("c/z")
    scene.lines(f"time +{9 * DAY_S}s")
    assert len(scene.bench.happened(ClaimOpened)) == 1
    assert "within their guarantees" in said(scene, "a/wide")
    scene.bench.sound()


SHORT, LONG = (300, 1800, 20), (6 * HOUR_S, 20 * HOUR_S, 1)
"""How long jobs run, from and to (s), and how many of them do."""


def day_of(
    folder, queues: dict[str, int], spans: tuple[tuple[int, int, int], ...], load: float, seed: int
) -> tuple[dict[str, tuple[int, int]], Idled]:
    """A day of jobs of one core in b and c, and after an hour a job of all cores in a: job -> (when it came, when it
    started), in s; and what was idle for claims for age by the log.
    """
    rng, rows, now = random.Random(seed), list[tuple[float, str]](), 0.0
    mean = sum((low + high) / 2 * times for low, high, times in spans) / sum(times for *_, times in spans)
    while now < DAY_S:
        low, high, _ = rng.choices(spans, [times for *_, times in spans])[0]
        rows.append((now, f"j{len(rows):04},{rng.choice('bc')},1,{int(now)},{rng.randint(low, high)}"))
        now += rng.expovariate(CORES * load / mean)
    rows.append((HOUR_S, f"wide,a,{CORES},{HOUR_S},600"))
    limits = {name: {"min": least, "max": CORES} for name, least in queues.items()}
    cluster = {"nodes": [{"count": 4, "gpus": 8}], "queues": limits}
    made = trace(folder, cluster, "\n".join(row for _, row in sorted(rows)))
    judge = Idled({"root": CORES, **{f"root/{name}": CORES for name in queues}})
    found = simulate(made, "muster", Options(until=2 * DAY_S * 1000), hears=judge.hears)
    return {job.id: (job.submit // 1000, job.first_start // 1000) for job in found.history.jobs.values()}, judge


@pytest.mark.parametrize("others", [0, 8])
def test_a_day_with_a_job_as_wide_as_the_cluster(tmp_path, others):
    """It starts within twice a drain where others are guaranteed nothing; it costs them nothing where they are."""
    queues = {"a": 16 if others else 0, "b": others, "c": others}
    jobs, judge = day_of(tmp_path, queues, (SHORT,), 0.7, 7)
    came, started = jobs.pop("wide")
    waits = [start - at for at, start in jobs.values()]
    assert min(start for _, start in jobs.values()) >= 0
    assert max(waits) <= HOUR_S
    assert judge.most() <= CORES * DAY_S * 1000 // 50
    if others:
        assert started > DAY_S - 1800
        assert sum(waits) / len(waits) <= 60
    else:  # Ten minutes until it may claim, and at most half an hour until all have ended that run then.
        assert started - came <= 2 * (600 + 1800)


@pytest.mark.parametrize(("load", "seed"), [(0.6, 1), (0.9, 2)])
def test_long_jobs_do_not_make_a_wide_one_stop_the_cluster(tmp_path, load, seed):
    """A drain would take a day: what is idle for it comes to a fiftieth of the day's capacity, and no more."""
    jobs, judge = day_of(tmp_path, {"a": 0, "b": 0, "c": 0}, (SHORT, LONG), load, seed)
    most = CORES * DAY_S * 1000 // 50
    assert most * 99 // 100 <= judge.most() <= most + CORES  # The claim ends within a millisecond.
    waits = [start - at for name, (at, start) in jobs.items() if name != "wide" and start >= 0]
    assert sum(waits) / len(waits) <= 600
