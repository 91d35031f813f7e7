"""Scenes in which a claim ends without an admission, or a victim is left to end."""

from __future__ import annotations

from kit import facts, nodes
from kit.scenes import TWO, Scene, claimed
from muster.model.workload import Wishes


def claim_ended(outcome: str) -> tuple[Scene, str]:
    if outcome == "idle":
        return idle_for_age()
    scene = claimed()
    match outcome:
        case "gone":
            scene.lines("gone a/owed")
        case "changed":
            scene.lines("edit a/owed cpu=4")
        case "expired":
            # What b/greedy gives back is taken by one that was started around the queue and cannot be suspended.
            around = facts.job("around", "b", cpu=5, memory=0, suspended=False, phase="running", busy=True)
            scene.do(facts.seen(around))
            scene.suspended("b/greedy")
            scene.lines("time +86400s")
        case "held":
            scene.change("a/owed", wishes=Wishes(hold=True, by="ann", reason="waits for data"))
        case "moved":
            scene.change("a/owed", labels={"quota.scheduling.alibabacloud.com/name": "b"})
        case "paused":
            scene.tree_of(*TWO, paused="admissions")
        case "unsatisfiable":
            scene.tree_of(("a", 4), ("b", 4))
    return scene, "a/owed"


def idle_for_age() -> tuple[Scene, str]:
    """Half of the node is idle for an hour for an aged job, and another asks for it."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0))
    scene.lines("synced", "job b/x cpu=4", "job b/y cpu=4")
    scene.runs("b/x")
    scene.runs("b/y")
    scene.lines("job a/wide cpu=8")
    scene.waits()
    scene.passed(8, "b/y", 4)
    scene.lines("job b/next cpu=4", "finishes b/x", "gone b/x", "time +3500s")
    return scene, "a/wide"


def about_to_end(
    *, ran_s: int, before: int = 6, cpu: int = 8, lasts_s: int = 30, write_s: int = 8, run: str = "", apart_s: int = 0
) -> Scene:
    """b borrows all there is, and a/owed claims it: b/x0 has run for so long.

    ``before``: such jobs that ended after ``lasts_s``. ``write_s``: so long each of them waited to be resumed.
    ``apart_s``: with several of b, so long before the next of them, and the claimant, each of them started.
    """
    scene = Scene()
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    scene.lines("synced")
    for index in range(before):
        name = f"b/x{90 + index}"
        scene.lines(f"job {name} cpu={cpu}", f"time +{write_s}s")
        scene.runs(name)
        scene.lines(f"time +{lasts_s}s", f"finishes {name}")
    declared = f" run={run}" if run else ""
    for index in range(8 // cpu):
        scene.lines(f"job b/x{index} cpu={cpu}{declared}")
    for index in range(8 // cpu):
        scene.runs(f"b/x{index}")
        if apart_s:
            scene.lines(f"time +{apart_s}s")
    scene.lines(f"time +{ran_s}s", f"job a/owed cpu={cpu}")
    return scene


def victim_stays(reason: str) -> tuple[Scene, str]:
    if reason == "not_ended":
        scene = about_to_end(ran_s=28)
        scene.lines("time +21s")
        return scene, "b/x0"
    scene = claimed()
    scene.lines("evicted b/greedy")
    if reason == "node_lost":
        scene.do(facts.cluster("greedy", "b"), facts.pod("greedy", 0, "b", node="n1"))
        scene.do(nodes.node("n1", ready=False))
        return scene, "b/greedy"
    scene.lines("time +3700s" if reason == "overdue" else "starts b/greedy")
    return scene, "b/greedy"
