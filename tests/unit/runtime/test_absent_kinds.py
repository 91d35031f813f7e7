"""A kind that the API server does not have: most clusters lack some; one whose objects were known is warned of."""

from __future__ import annotations

import pytest

from kit.alone import reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from kit.shell import LoopClock
from muster.fakecluster.world import SimCluster
from muster.kube.deltas import Absent, Delta, ListSynced
from muster.ports import LogIdentity
from muster.runtime.runners.hooks import Level, NoHooks
from muster.runtime.runners.watching import WatcherRunner


class Notes(NoHooks):
    def __init__(self) -> None:
        self.levels: list[Level] = []

    def note(self, level: Level, event: str, **values: object) -> None:
        assert (event, values) == ("resource_absent", {"resource": "tfjobs.kubeflow.org"})
        self.levels.append(level)


LISTED, LACKING, GONE = ListSynced(count=2, relist=False), Absent(known=0), Absent(known=2)


@pytest.mark.parametrize(
    ("seen", "levels"),
    (((LACKING,), ["info"]), ((LACKING, LACKING), ["info"]), ((LISTED, GONE, LISTED, GONE), ["warning"] * 2)),
)
async def test_it_is_noted_once_and_warned_of_where_it_was_there(seen: tuple[Delta, ...], levels: list[Level]) -> None:
    notes, clock = Notes(), LoopClock()
    runner = WatcherRunner(
        "tfjobs",
        SimCluster({}).transport(),
        log=reader_of(MemoryLog(LogIdentity("main", "0" * 16, 1))),
        lease=MemoryLeases().lease("watcher", "tfjobs", "p"),
        snapshots=None,
        clock=clock,
        process="p",
        hooks=notes,
    )
    for delta in seen:
        await runner._take(delta)
    assert notes.levels == levels
