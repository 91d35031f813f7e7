"""A state that was kept beyond the end of its log: the log lost commits, and nobody goes on as if it had not."""

import asyncio

import pytest

from kit.alone import alone
from kit.doubles.log import MemoryLeases, MemoryLog, MemorySnapshots
from muster.bus.log import LogUsage
from muster.core.cell.deciders import DECIDERS
from muster.ports import LogGoneError, LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.runtime.runners.leader import Leader
from muster.runtime.runners.shared import SharedLog

pytestmark = pytest.mark.looptime

STAGE = "quota_accountant"


class Measured(MemoryLog):
    async def usage(self) -> LogUsage:
        return LogUsage(await self.end(), 0, 0, 0, 0)


async def test_nothing_is_appended_after_a_state_that_the_log_does_not_reach() -> None:
    identity = LogIdentity(cell="main", log_id="log", generation=1)
    log, snapshots, stage = Measured(identity), MemorySnapshots(identity), DECIDERS[STAGE]()
    state = stage.initial()
    state.seq = 5
    await snapshots.save(make_snapshot(identity, STAGE, "0", state))
    leader = Leader(
        stage,
        log=SharedLog(log),
        lease=MemoryLeases().lease(STAGE, "0", "p"),
        snapshots=snapshots,
        clock=SystemClock(),
        process="p",
    )

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(30.0):
            await alone(leader)
    assert caught.group_contains(LogGoneError, match=r"ends at 1 .*lost commits")
    assert await log.end() == 1
