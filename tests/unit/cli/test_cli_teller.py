"""What `muster up` counts: jobs, and not how often they were queued."""

from __future__ import annotations

from kit.scenes import Scene
from muster.told.views.narrator import Narrator
from muster_cli.local.teller import Teller


def test_a_job_that_is_queued_again_is_no_further_job() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job two", "job one", "job three", "edit one cpu=13", "edit one cpu=14")
    told = Teller(None, "", 0, lambda _: None)  # type: ignore[arg-type]
    narrator, queued = Narrator(), 0
    for stored in scene.bench.log:
        for entry in narrator.feed(stored):
            queued += entry.what == "workload_queued"
            told._count(entry)
    assert queued == 5
    assert told.counts.queued == 3
