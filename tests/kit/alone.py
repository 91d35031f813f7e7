"""A runner alone in its process: the reader of the log runs beside it, as in the process of a service."""

import asyncio
from typing import Any, cast

from muster.ports import Log
from muster.runtime.runners.follower import AnyFollower
from muster.runtime.runners.shared import MeasuredLog, SharedLog


def reader_of(log: Log) -> SharedLog:
    """What a runner follows; no test of one asks how full the log is."""
    return SharedLog(cast("MeasuredLog", log))


async def alone(*runners: AnyFollower) -> None:
    """Run them, and the reader that they share, until cancelled."""
    log: Any = runners[0].log
    await log.begin()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(log.pump())
        for runner in runners:
            tasks.create_task(runner.run())
