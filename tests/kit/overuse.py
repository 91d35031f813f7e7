"""Scenes of jobs that run beyond what was admitted."""

from __future__ import annotations

from kit.scenes import TWO, Scene


def overuse(*, left: bool = False) -> tuple[Scene, str]:
    """A job that waits for a quota of 8 cores is started by another client, and runs for longer than a minute.

    ``left``: it has been suspended, and its pods are gone.
    """
    scene = Scene()
    scene.tree_of(*TWO, overuse_timeout="1m")
    scene.lines("synced", "job a/mine cpu=6")
    scene.runs("a/mine")
    scene.lines("job a/first cpu=3", "runs a/first", "time +61s")
    if left:
        scene.suspended("a/first")
    return scene, "a/first"
