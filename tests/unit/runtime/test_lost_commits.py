"""A state that its log cannot show is no state to go on from, and no word against the log: marks alone are that."""

import asyncio

import pytest

from kit.alone import reader_of
from kit.doubles.log import MemoryLog
from kit.keeping import Notes
from kit.snapshots import IDENTITY, STAGE, Few, at
from kit.waiting import until
from muster.events.envelope import Commit
from muster.events.system import TimeReached
from muster.ports import Snapshot
from muster.runtime.clock import SystemClock
from muster.runtime.runners.follower import Follower

pytestmark = pytest.mark.looptime


async def log_of(commits: int) -> MemoryLog:
    log = MemoryLog(IDENTITY)
    last = 0
    for number in range(1, commits):
        said = (TimeReached(at=number),)
        commit = Commit(commit_id=f"{number}", stage="watcher", shard="pods", kind="input", at=number, events=said)
        last = await log.append(commit, expected=last)
    return log


async def begins_at(snapshots: Few) -> tuple[int, object]:
    """Where a follower of a log of ten commits goes on from, and how it came to that; it folds the log to its end."""
    shared, notes = reader_of(await log_of(10)), Notes()
    await shared.begin()
    follower = Follower(STAGE, log=shared, snapshots=snapshots, clock=SystemClock(), hooks=notes)
    async with asyncio.timeout(30.0), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(shared.pump()), tasks.create_task(follower.run())]
        await until(lambda: follower.state.seq == 10 or any(each.done() for each in running))
        for each in running:
            each.cancel()
    (found,) = notes.of("state_restored")
    return int(str(found["seq"])), found["how"]


@pytest.mark.parametrize(
    "forged", [at(1_000_000), at(7, b"x" * 16), at(11)], ids=["far beyond the end", "another commit", "just beyond it"]
)
async def test_a_snapshot_that_the_log_cannot_show_is_passed_over(forged: Snapshot) -> None:
    assert await begins_at(Few(forged)) == (0, "not_in_log")
    assert await begins_at(Few(forged, at(5))) == (5, "restored")


async def test_the_newest_that_the_log_can_show_is_used() -> None:
    assert await begins_at(Few(at(7), at(5))) == (7, "restored")
