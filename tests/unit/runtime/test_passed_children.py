"""A child that came and went between two reports: its end is reported, for a charge waits for that proof."""

from __future__ import annotations

import json

import pytest

from kit import facts, ray
from kit.alone import reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from kit.shell import LoopClock
from muster.events.facts import ChildGone, ChildObserved
from muster.fakecluster.world import SimCluster
from muster.kube.deltas import Delete, Upsert
from muster.kube.objects import decode_meta
from muster.ports import LogIdentity
from muster.runtime.runners.watching import WatcherRunner

OWNER = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "uid-video-j", "controller": True}


@pytest.mark.parametrize("seen", [True, False], ids=["put off until its parent is known", "deleted at first sight"])
async def test_the_end_of_an_unreported_child_is_reported(seen: bool) -> None:
    runner = WatcherRunner(
        "rayclusters",
        SimCluster({}).transport(),
        log=reader_of(MemoryLog(LogIdentity("main", "0" * 16, 1))),
        lease=MemoryLeases().lease("watcher", "rayclusters", "p"),
        snapshots=None,
        clock=LoopClock(),
        process="p",
    )
    runner.state.listed["rayclusters"] = 1
    runner.state.parents.observed(facts.job("j", suspended=True, phase="waiting"))
    states = [ray.raycluster(meta={"ownerReferences": [OWNER], "resourceVersion": str(rv)}) for rv in (7, 9)]
    raws = [json.dumps(state).encode() for state in states]
    if seen:
        await runner._take(Upsert(decode_meta(raws[0]), raws[0]))
        assert runner._take_pending() == [], "its parent does not know it yet"
    await runner._take(Delete(decode_meta(raws[1]), raws[1]))
    observed, gone = runner._take_pending()
    assert isinstance(observed, ChildObserved) and observed.child.owner_uid == "uid-video-j"
    assert isinstance(gone, ChildGone) and (gone.ref, gone.rv) == (observed.child.ref, 9)
    assert runner._take_pending() == []
