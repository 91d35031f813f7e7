"""A snapshot is kept every so many commits, and less often where it is large: keeping costs as much as following."""

import asyncio
from typing import Any

import pytest

from kit.alone import reader_of
from kit.doubles.log import MemoryLog
from kit.snapshots import IDENTITY, STAGE
from kit.waiting import until
from muster.events.envelope import Commit
from muster.events.system import TimeReached
from muster.ports import Snapshot
from muster.runtime.clock import SystemClock
from muster.runtime.runners import follower as module
from muster.runtime.runners.follower import Follower

pytestmark = pytest.mark.looptime


class Kept:
    """Snapshots that notes where each was made."""

    def __init__(self) -> None:
        self.seqs: list[int] = []

    async def save(self, snapshot: Snapshot, end: int = 0) -> bool:
        self.seqs.append(snapshot.seq)
        return True

    async def each(self, stage: str, shard: str) -> Any:
        for nothing in ():
            yield nothing


@pytest.mark.parametrize(("bytes_a_commit", "count"), [(10_000, range(10, 21)), (1, range(1, 2))])
async def test_a_large_state_is_kept_less_often(
    bytes_a_commit: int, count: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_A_COMMIT", bytes_a_commit)
    log, kept, last = MemoryLog(IDENTITY), Kept(), 0
    shared = reader_of(log)
    await shared.begin()
    follower = Follower(STAGE, log=shared, snapshots=kept, clock=SystemClock(), every=10)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(shared.pump()), tasks.create_task(follower.run())]
        for number in range(1, 200):
            said = (TimeReached(at=number),)
            commit = Commit(commit_id=f"{number}", stage="watcher", shard="pods", kind="input", at=number, events=said)
            last = await log.append(commit, expected=last)
            await until(lambda end=last: follower.state.seq >= end or any(each.done() for each in running))
        for each in running:
            each.cancel()
    spaces = [after - before for before, after in zip(kept.seqs, kept.seqs[1:], strict=False)]
    assert len(kept.seqs) in count
    assert all(10 <= space <= 20 for space in spaces)
