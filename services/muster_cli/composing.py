"""The services of one process, built as by the entry points: for ``muster run`` and ``muster up``."""

from __future__ import annotations

from importlib import import_module

from muster.runtime.layouts import KEEPER
from muster.runtime.process import Process


async def add(process: Process, service: str) -> None:
    """Add the runners of a service to a process."""
    if service == KEEPER:
        process.add_keeper()
    else:
        await import_module(f"muster_{service}.__main__").build(process)
