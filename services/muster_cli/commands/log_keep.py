"""``muster log keep``: the keeper of the log, a service like the others."""

from __future__ import annotations


async def log_keep() -> int:
    """Run the keeper of a log."""
    # Its telemetry takes a second to import, which `muster log keep --help` need not wait for.
    from muster.runtime.process import Process
    from muster.runtime.service import run_service

    async def build(process: Process) -> None:
        process.add_keeper()

    return await run_service("keeper", build, keeping=True)
