"""``muster log init``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from msgspec import structs

from muster.bus.cell import open_log
from muster.ports import LogGoneError
from muster.runtime.clock import SystemClock
from muster.runtime.connecting import open_cell
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.options import Bus
from muster_cli.reading import connected, locate
from muster_cli.render.cell import size


async def log_init(
    *,
    replicas: Annotated[
        int | None,
        Parameter(show_default=False, help="Servers each stream is kept on: 3 in production. Without it: 1."),
    ] = None,
    max_bytes: Annotated[
        int | None,
        Parameter(show_default=False, help="Size limit of the log in bytes. Without it: MUSTER_LOG_MAX_BYTES."),
    ] = None,
    bus: Bus | None = None,
) -> None:
    """Create the log of a cell."""
    place = locate(bus)
    config = place.config
    if replicas not in (None, 1, 3, 5):
        raise CliError(f"--replicas is {replicas}; JetStream takes 1, 3 or 5", USAGE)
    config = structs.replace(
        config,
        log_create=True,
        replicas=config.replicas if replicas is None else replicas,
        log_max_bytes=config.log_max_bytes if max_bytes is None else max_bytes,
    )
    out = Output()
    async with connected(place) as js:
        try:
            before = (await open_log(js, config.cell, create=False)).identity
        except LogGoneError:
            before = None
        log = await open_cell(js, config, at=SystemClock().now())
        usage = await log.usage()
    made = log.identity
    verb = "already exists" if before == made else "was created"
    out.line(
        f"The log of cell {made.cell} {verb}: generation {made.generation}, log {made.log_id}, "
        f"{size(usage.bytes)} of {size(usage.max_bytes)} used."
    )
    if made.generation > 1 and before is None:
        out.line(
            "An earlier generation is lost: what runs is adopted from what the cluster says, nothing is restarted."
        )
