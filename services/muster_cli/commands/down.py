"""``muster down``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from muster_cli import instances
from muster_cli.console import Output
from muster_cli.exits import CliError

LIMIT_S = 15.0
LOOK_S = 0.05


async def down() -> None:
    """End what runs."""
    out = Output()
    running = instances.running()
    if not running:
        out.line("No `muster up` of yours is running.")
        return
    for instance in running:
        # Its run file is locked by a living process, so the number does not belong to another process meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(instance.pid, signal.SIGTERM)
    pids = {instance.pid for instance in running}
    try:
        async with asyncio.timeout(LIMIT_S):
            while left := pids & {instance.pid for instance in instances.running()}:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise CliError(f"process {min(left)} has not ended in {LIMIT_S:g} s; see its terminal, or kill it") from None
    for instance in running:
        kept = "" if instance.temporary else f"; its log and cluster are kept in {instance.home}"
        out.line(f"Ended process {instance.pid} at {instance.url}{kept}.")
