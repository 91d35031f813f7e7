"""Nothing stands idle for a job that has waited too long where it needs what others are owed."""

from __future__ import annotations

import random

import pytest

from kit.scenes import Scene
from kit.traces import run, trace
from muster.core.views.story import Story
from muster.events.claims import ClaimEnded, ClaimOpened

HOUR_S = 3600
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


def day_of(folder, queues: dict[str, int], *, wide: bool) -> dict[str, tuple[int, int]]:
    """job -> (when it came, when it started), in s: a day of jobs of b and c of 5 to 30 minutes, a job of all cores
    in a after an hour.
    """
    rng, rows, now = random.Random(7), list[tuple[float, str]](), 0.0
    while now < 24 * HOUR_S:
        rows.append((now, f"j{len(rows):04},{rng.choice('bc')},1,{int(now)},{rng.randint(300, 1800)}"))
        now += rng.expovariate(CORES * 0.7 / 1050)
    rows += [(HOUR_S, f"wide,a,{CORES},{HOUR_S},600")] if wide else []
    limits = {name: {"min": least, "max": CORES} for name, least in queues.items()}
    cluster = {"nodes": [{"count": 4, "gpus": 8}], "queues": limits}
    found = run(trace(folder, cluster, "\n".join(row for _, row in sorted(rows))), until=48 * HOUR_S * 1000)
    return {job.id: (job.submit // 1000, job.first_start // 1000) for job in found.history.jobs.values()}


@pytest.mark.parametrize("others", [0, 8])
def test_a_day_with_a_job_as_wide_as_the_cluster(tmp_path, others):
    """It starts within twice a drain where others are guaranteed nothing; it costs them nothing where they are."""
    jobs = day_of(tmp_path, {"a": 16 if others else 0, "b": others, "c": others}, wide=True)
    came, started = jobs.pop("wide")
    waits = [start - at for at, start in jobs.values()]
    assert min(start for _, start in jobs.values()) >= 0
    assert max(waits) <= HOUR_S
    if others:
        assert started > 24 * HOUR_S - 1800
        assert sum(waits) / len(waits) <= 60
    else:  # Ten minutes until it may claim, and at most half an hour until all have ended that run then.
        assert started - came <= 2 * (600 + 1800)
