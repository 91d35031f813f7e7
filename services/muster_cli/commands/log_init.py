"""``muster log init``."""

from __future__ import annotations

from msgspec import structs

from muster.bus.cell import open_log
from muster.bus.generations import JetStreamGenerations
from muster.ports import LogGoneError
from muster.runtime.clock import SystemClock
from muster.runtime.connecting import open_cell
from muster_cli.console import Output
from muster_cli.options import Bus, Room
from muster_cli.reading import connected, locate
from muster_cli.render.cell import size


async def log_init(
    *,
    room: Room | None = None,
    bus: Bus | None = None,
) -> None:
    """Create the log of a cell."""
    place = locate(bus)
    config = structs.replace((room or Room()).applied(place.config), log_create=True)
    out = Output()
    async with connected(place) as js:
        try:
            before = (await open_log(js, config.cell, create=False)).identity
        except LogGoneError:
            before = None
        log = await open_cell(js, config, at=SystemClock().now())
        usage = await log.usage()
        await JetStreamGenerations(js, config.cell).reserve(log.identity)
    made = log.identity
    verb = "already exists" if before == made else "was created"
    out.line(
        f"The log of cell {made.cell} {verb}: generation {made.generation}, log {made.log_id}, "
        f"{size(usage.bytes)} of {size(usage.max_bytes)} used."
    )
    if made.generation > 1 and before is None:
        out.line("An earlier generation is lost: running jobs are adopted from the cluster, nothing is restarted.")
