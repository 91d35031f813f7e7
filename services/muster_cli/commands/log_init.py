"""``muster log init``."""

from __future__ import annotations

from msgspec import structs

from muster.bus.cell import open_log
from muster.bus.generations import JetStreamGenerations
from muster.model.language import say
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
    verb = say("already exists") if before == made else say("was created")
    out.line(
        say(
            "The log of cell {cell} {verb}: generation {generation}, log {log_id}, {bytes} of {max_bytes} used.",
            cell=made.cell,
            verb=verb,
            generation=made.generation,
            log_id=made.log_id,
            bytes=size(usage.bytes),
            max_bytes=size(usage.max_bytes),
        )
    )
    if made.generation > 1 and before is None:
        out.line(say("An earlier generation is lost: running jobs are adopted from the cluster, nothing is restarted."))
