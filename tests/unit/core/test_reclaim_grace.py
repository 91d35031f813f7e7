"""Reclaim grace: who is owed quota waits for a time before others are evicted for it: some may end meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from kit import facts
from kit.scenes import Scene
from kit.traces import run, starts, trace
from muster.events.decisions import EvictionOrdered, ReclaimDeferred
from muster.tracesim.model import Trace

MINUTE = 60_000


def borrowed(grace: str = "5m", cpu: int = 4) -> Scene:
    """Eight cores, all of them borrowed by jobs of b that run; a is guaranteed four."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0), **({"reclaim_grace": grace} if grace else {}))
    scene.lines("synced")
    for index in range(8 // cpu):
        scene.lines(f"job b/x{index} cpu={cpu}")
        scene.runs(f"b/x{index}")
    return scene


def orders(scene: Scene) -> list[str]:
    found = (event for stored in scene.bench.log for event in stored.commit.events)
    return [event.ref.key for event in found if isinstance(event, EvictionOrdered)]


def deferrals(scene: Scene) -> list[tuple[str, str]]:
    found = (event for stored in scene.bench.log for event in stored.commit.events)
    return [(event.ref.key, event.reason) for event in found if isinstance(event, ReclaimDeferred)]


def passes(scene: Scene, ms: int) -> None:
    scene.bench.pass_time(ms)
    scene.settle()


def test_nobody_is_evicted_before_the_grace_is_over() -> None:
    scene = borrowed()
    scene.lines("job a/owed cpu=4")
    assert deferrals(scene) == [("a/owed", "grace")]
    passes(scene, 5 * MINUTE - 1)
    assert orders(scene) == []
    passes(scene, 1)
    assert orders(scene) == ["a/owed"]
    scene.bench.sound()


def test_who_ends_meanwhile_saves_an_eviction() -> None:
    scene = borrowed()
    scene.lines("job a/owed cpu=4")
    passes(scene, 2 * MINUTE)
    scene.lines("finishes b/x0", "gone b/x0")
    passes(scene, 10 * MINUTE)
    assert orders(scene) == []
    scene.bench.sound()


def test_the_grace_of_many_jobs_passes_at_the_same_time() -> None:
    scene = borrowed(cpu=2)
    for name in ("one", "two"):
        scene.lines(f"job a/{name} cpu=2")
    passes(scene, 5 * MINUTE)
    assert orders(scene) == ["a/one", "a/two"]
    assert deferrals(scene) == [("a/one", "grace")], "once for all that ask for the same"


def test_who_comes_later_waits_for_a_grace_of_its_own() -> None:
    scene = borrowed(cpu=2)
    scene.lines("job a/one cpu=2")
    passes(scene, 4 * MINUTE)
    scene.lines("job a/two cpu=2")
    passes(scene, MINUTE)
    assert orders(scene) == ["a/one"]
    passes(scene, 4 * MINUTE)
    assert orders(scene) == ["a/one", "a/two"]
    scene.bench.sound()


def test_the_grace_begins_when_the_queue_is_below_its_guarantee() -> None:
    """a has what it is guaranteed, and a job waits beyond that for an hour: it is owed nothing in that time."""
    scene = borrowed()
    scene.lines("finishes b/x0", "gone b/x0", "job a/mine cpu=4")
    scene.runs("a/mine")
    scene.lines("job a/more cpu=4", "job b/more cpu=4")
    passes(scene, 60 * MINUTE)
    assert orders(scene) == []
    scene.change("a/mine", need={"ack": facts.vector(cpu=4), "full": facts.vector(cpu=4)})
    scene.lines("finishes a/mine", "gone a/mine")
    assert orders(scene) == [], "it fits now, or its grace begins"
    scene.bench.sound()


def test_a_job_may_ask_for_longer_and_not_for_less() -> None:
    for own, minutes in (("20m", 20), ("1s", 5), ("soon", 5)):
        scene = borrowed()
        scene.line("job a/owed cpu=4")
        job = scene.jobs["a/owed"]
        scene.change("a/owed", labels={**job.labels, "muster.dev/reclaim-grace": own})
        passes(scene, minutes * MINUTE - 1)
        assert orders(scene) == []
        passes(scene, 1)
        assert orders(scene) == ["a/owed"], own


def test_a_job_alone_may_ask_for_one() -> None:
    scene = borrowed("")
    scene.line("job a/owed cpu=4")
    job = scene.jobs["a/owed"]
    scene.change("a/owed", labels={**job.labels, "muster.dev/reclaim-grace": "2m"})
    assert orders(scene) == []
    passes(scene, 2 * MINUTE)
    assert orders(scene) == ["a/owed"]


def small(tmp_path, grace: str) -> Trace:
    """b borrows all eight GPUs for an hour; a is owed four of them after ten seconds."""
    queues: dict[str, dict[str, int]] = {"a": {"min": 4, "max": 8}, "b": {"min": 4, "max": 8}}
    made = trace(
        tmp_path,
        {"nodes": [{"count": 1, "gpus": 8}], "queues": queues},
        """
        b1,b,4,0,3600
        b2,b,4,1,3600
        a1,a,4,10,100
        """,
    )
    return Trace(replace(made.cluster, rules={"reclaim-grace": grace}), made.jobs)


def test_a_trace_is_simulated_with_the_grace(tmp_path) -> None:
    at_once, later = (starts(run(small(tmp_path, grace)).history)["a1"] for grace in ("0", "5m"))
    assert (at_once, later) == (10, 310)
