"""A job that waits for nodes is not tried while what becomes free is kept for another: who asks learns that."""

from __future__ import annotations

from kit.scenes import Scene
from muster.core.cell.seats import Seat
from muster.events.gangs import NodesClaimEnded
from muster.model.quota import WIDTHS_TO_AGE
from muster.model.workload import Wishes
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.touched import Touched
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator
from muster.told.wording.jobs import reason, text


def crowded() -> Scene:
    """Two nodes of four cores, both in use; ``big`` wants both whole, and ``late`` two cores of one. On a small node
    jobs pass ``big``, all but one of those that it takes for it to age.
    """
    scene = Scene()
    scene.lines("tree", "placement pack hold=36000", "node n1 cpu=4", "node n2 cpu=4", "node n3 cpu=1", "synced")
    scene.lines("gang s1 head=4 workers=0x0", "gang s2 head=4 workers=0x0")
    scene.lines("gang big head=2 workers=1x4", "time +1000s", "gang tiny head=1 workers=0x0")
    scene.lines(f"follow tiny head=1 workers=0x0 times={6 * WIDTHS_TO_AGE - 2}", "gang late head=2 workers=0x0")
    return scene


def ages(scene: Scene) -> None:
    """``big`` claims both nodes."""
    scene.lines("time +20s", "follow tiny head=1 workers=0x0 times=1")


def told(scene: Scene, name: str) -> tuple[str, str]:
    """(what people read, what its QueueUnit shows)."""
    narrator = Narrator()
    for stored in scene.bench.log:
        narrator.feed(stored)
    status = job_status(narrator.state, scene.jobs[name].ref.uid)
    assert status.code == "GangUnschedulable", status
    return text(status, scene.bench.now), reason(status).text


def test_it_learns_that_what_is_free_now_is_kept_for_another() -> None:
    scene = crowded()
    assert "kept" not in told(scene, "late")[0]
    ages(scene)
    before = len(scene.bench.log)
    scene.lines("gone s1", "time +60s")
    assert not any(
        getattr(event, "ref", None) == scene.jobs["late"].ref
        for stored in scene.bench.log[before:]
        for event in stored.commit.events
    ), "it waits without a commit"
    said, shown = told(scene, "late")
    assert "It was evaluated last 1 min 20 s ago" in said, said
    assert "The free places on n1, n2 are kept for video/big, which has claimed these nodes" in said
    assert "kept" not in shown, "its QueueUnit is not written again for it"
    assert "Places that become free on n1, n2 are kept for it" in told(scene, "big")[0]


def test_who_was_refused_for_a_claim_is_shown_again_when_that_is_over() -> None:
    scene = crowded()
    ages(scene)
    scene.lines("gone s1", "gang later head=2 workers=0x0")
    assert "kept for video/big" in told(scene, "later")[1]
    touched = Touched()
    seat = Seat(ReadModel(touched))
    for stored in scene.bench.log:
        seat.fold(stored)
    touched.jobs.clear()
    read = len(scene.bench.log)
    scene.change("big", wishes=Wishes(hold=True, by="ann"))
    for stored in scene.bench.log[read:]:
        seat.fold(stored)
    assert scene.bench.happened(NodesClaimEnded)
    assert scene.jobs["later"].ref.uid in touched.jobs
    assert not any(short.kept_for for short in seat.state.shortages.values())
    assert not seat.state.nodes_kept
