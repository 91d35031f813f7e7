"""What is idle for a job that later work has passed is bounded; nothing is where it needs what others are owed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import nodes
from kit.audits import audit
from kit.packed import Packed, Shape
from kit.scenes import WAITS_S, Scene
from muster.core.quota.claims import RESTS
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.model.quota import WIDTHS_TO_AGE
from muster.told.views.story import Story

HOUR_S = 3600
DAY_S = 24 * HOUR_S
CORES = 32


def waiting(*queues: tuple[str, int]) -> Scene:
    """Eight cores in use by b when a/wide wants all of them."""
    scene = Scene()
    scene.tree_of(*queues)
    scene.lines("synced")
    for index in range(4):
        scene.lines(f"job b/x{index} cpu=2")
        scene.runs(f"b/x{index}")
    scene.lines("job a/wide cpu=8")
    return scene


def aged(*queues: tuple[str, int], waits_s: int = WAITS_S) -> Scene:
    """a/wide has waited, and is passed."""
    scene = waiting(*queues)
    scene.waits(waits_s)
    scene.passed(8, "b/x3", 2)
    return scene


def ended(scene: Scene) -> list[str]:
    return [each.outcome for each in scene.bench.happened(ClaimEnded)]


def test_where_no_job_ages_a_claim_ends() -> None:
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
    """It has waited 4.8 hours. Half of its amounts are idle while others ask for them: that may last 57.6 minutes."""
    scene = aged(("a", 0), ("b", 0))
    assert [each.ref.name for each in scene.bench.happened(ClaimOpened)] == ["wide"]
    scene.lines("job b/late cpu=4")
    for name in ("b/x0", "b/x1"):
        scene.lines(f"finishes {name}", f"gone {name}")
    scene.lines("time +3440s")
    assert ended(scene) == []
    scene.lines("time +10s", "job b/later cpu=1")
    assert "3833m cpu for an hour: at 3840m the claim ends" in said(scene, "a/wide")
    scene.lines("time +10s")
    assert ended(scene) == ["idle"]
    scene.runs("b/late")
    scene.bench.sound()


def test_nothing_is_held_until_a_job_has_waited_ten_times_as_long_as_its_amounts_will_be_idle() -> None:
    """b/x0 and b/x1 began 1,000 s before the other two, and are expected to end so much later: meanwhile half of what
    a/wide asks for is idle, as much as all of it for 500 s.
    """
    scene = waiting(("a", 0), ("b", 0))
    scene.waits(2_000)
    scene.lines("time +1000s", "follow b/x2 cpu=2 times=1")
    scene.passed(8, "b/x3", 2)
    scene.lines("time +1999s", "job b/late cpu=2")
    assert scene.bench.happened(ClaimOpened) == []
    scene.lines("time +1s", "job b/later cpu=2")
    assert [(each.ref.name, each.idles_ms) for each in scene.bench.happened(ClaimOpened)] == [("wide", 500_000)]
    scene.bench.sound()


def test_a_job_whose_claim_ended_is_not_claimed_for_again_during_the_rest() -> None:
    """A tenth of ten minutes is over when half of its amounts were idle for two minutes."""
    scene = aged(("a", 0), ("b", 0), waits_s=600)
    scene.lines("job b/late cpu=4", "finishes b/x0", "gone b/x0", "finishes b/x1", "gone b/x1", "time +120s")
    assert ended(scene) == ["idle"]
    scene.runs("b/late")
    scene.waits(60 * RESTS - 1)
    scene.passed(8, "b/x3", 2)
    assert len(scene.bench.happened(ClaimOpened)) == 1
    scene.lines("time +1s")
    assert [each.ref.name for each in scene.bench.happened(ClaimOpened)] == ["wide", "wide"]
    scene.bench.sound()


@pytest.mark.parametrize(
    ("idles_ms", "noticed"), [(0, False), (WAITS_S * 100, False), (WAITS_S * 100 + 1, True)], ids=str
)
def test_the_audit_notices_amounts_that_may_be_idle_for_more_than_a_tenth_of_the_wait(
    idles_ms: int, *, noticed: bool
) -> None:
    """Earlier builds wrote 0."""
    log = []
    for stored in aged(("a", 0), ("b", 0)).bench.log:
        events = tuple(
            replace(each, idles_ms=idles_ms) if isinstance(each, ClaimOpened) else each for each in stored.commit.events
        )
        log.append(replace(stored, commit=replace(stored.commit, events=events)))
    assert {each.invariant for each in audit(log).violations} == ({"I25"} if noticed else set())


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
    scene.tree_of(("a", 0), ("b", 4), ("c", 0))
    scene.lines("synced", "job c/x cpu=2", "job c/y cpu=6")
    scene.runs("c/x")
    scene.runs("c/y")
    scene.lines("job a/wide cpu=8")
    scene.waits()
    scene.passed(8, "c/x", 2)
    scene.lines("finishes c/y", "gone c/y", "job b/owed cpu=4", "job c/z cpu=2")
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


@pytest.mark.parametrize("kai", [True, False])
@pytest.mark.parametrize(("shape", "sizes", "grown"), [(Shape(1, 4), [2] * 4, 4), (Shape(3, 2), [3, 3], 3)])
def test_nothing_is_held_for_a_job_that_empty_nodes_could_not_take(
    shape: Shape, sizes: list[int], grown: int, *, kai: bool
) -> None:
    """Until there is a node that changes that."""
    cluster = Packed(sizes, {"a": 0, "b": 0}, kai=kai)
    for index in range(sum(sizes)):
        cluster.arrives(f"x{index}", "b", Shape(1, 1))
    cluster.arrives("never", "a", shape)
    cluster.passes(60_000)
    for index in range(WIDTHS_TO_AGE * shape.count * shape.gpus):
        cluster.ends(f"x{index}")
        cluster.arrives(f"x{sum(sizes) + index}", "b", Shape(1, 1))
    assert cluster.bench.happened(ClaimOpened) == []
    cluster.sizes["larger"] = grown
    cluster.bench.facts(nodes.node("larger", cpu=1000, memory=1000, gpu=grown))
    cluster.settle()
    claimed = [each.ref.name for each in cluster.bench.happened(ClaimOpened)]
    assert claimed == ["never"] or "never" in cluster.running
