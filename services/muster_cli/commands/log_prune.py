"""``muster log prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import open_log
from muster.model.language import say
from muster.model.text import counted
from muster.runtime.logkeeping.pruning import deletable, delete, sealed, surplus
from muster_cli.commands.log_delete import archive_of, told
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.options import Bus
from muster_cli.reading import connected, locate, tell_which


async def log_prune(
    *,
    keep: Annotated[int, Parameter(help="How many sealed generations stay in NATS, besides the one in force.")],
    archive: Annotated[
        Path | None,
        Parameter(show_default=False, help="The archive that has them. Without it: MUSTER_LOG_ARCHIVE."),
    ] = None,
    yes: Annotated[bool, Parameter(negative="", help="Do it. Without it: only check the oldest, and say so.")] = False,
    bus: Bus | None = None,
) -> None:
    """Delete the oldest sealed generations of a log."""
    if keep < 0:
        raise CliError(say("--keep is {keep}; take 0 or more", keep=keep), USAGE)
    place, out = locate(bus), Output()
    folder = archive_of(place, archive)
    tell_which(out, place)
    async with connected(place) as js:
        log = await open_log(js, place.config.cell)
        there = await sealed(js, log.identity)
        over = surplus(there, keep)
        for generation in over:
            oldest = await deletable(js, log, generation.generation, folder)
            if yes:
                await delete(js, log, oldest)
                log = await open_log(js, place.config.cell)
            out.line(told(oldest, folder, yes))
            if not yes:
                break
    if not over:
        out.line(
            say(
                "{sealed_generations} in NATS, and {keep} may stay: nothing to delete.",
                sealed_generations=counted(len(there), "sealed generation"),
                keep=keep,
            )
        )
    elif not yes:
        rest = len(over) - 1
        more = (
            say(
                " (and {more_generations} after it, if all is well with them)",
                more_generations=counted(rest, "more generation"),
            )
            if rest
            else ""
        )
        out.line(say("Nothing was deleted{more}: say --yes to do it.", more=more))
