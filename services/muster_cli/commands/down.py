"""``muster down``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from muster.model.language import say
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
        out.line(say("No `muster up` of yours is running."))
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
        raise CliError(
            say(
                "process {left} has not ended in {limit_s:g} s; see its terminal, or kill it",
                left=min(left),
                limit_s=LIMIT_S,
            )
        ) from None
    for instance in running:
        kept = "" if instance.temporary else say("; its log and cluster are kept in {home}", home=instance.home)
        out.line(say("Ended process {pid} at {url}{kept}.", pid=instance.pid, url=instance.url, kept=kept))
