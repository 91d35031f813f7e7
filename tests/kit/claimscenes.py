"""Scenes in which a claim ends without an admission."""

from __future__ import annotations

from kit import facts
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
    """Half of the node is idle for an hour for a job that has waited too long, and another asks for it."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0), age_limit="10m")
    scene.lines("synced", "job b/x cpu=4", "job b/y cpu=4")
    scene.runs("b/x")
    scene.runs("b/y")
    scene.lines("job a/wide cpu=8", "time +700s", "job b/next cpu=4", "finishes b/x", "gone b/x", "time +3600s")
    return scene, "a/wide"
