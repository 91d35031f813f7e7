"""``muster log info``."""

from __future__ import annotations

from muster_cli.console import Output
from muster_cli.options import Bus, Document
from muster_cli.reading import locate, opened, tell_which
from muster_cli.render.cell import cell_lines, cell_record
from muster_cli.state import cell_state


async def log_info(*, output: Document = "text", bus: Bus | None = None) -> None:
    """Show a log and its leaders."""
    place = locate(bus)
    out = Output()
    tell_which(out, place)
    async with opened(place) as reading:
        state = await cell_state(reading)
    if output == "text":
        out.lines(cell_lines(state))
    else:
        out.data(cell_record(state), output)
