"""``muster log delete``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import open_log
from muster.model.language import say
from muster.runtime.logkeeping.pruning import Sealed, deletable, delete
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.options import Bus
from muster_cli.reading import LogPlace, connected, locate, tell_which
from muster_cli.render.cell import size


async def log_delete(
    generation: Annotated[int, Parameter(help="Which one: the oldest that is still there.")],
    /,
    *,
    archive: Annotated[
        Path | None,
        Parameter(show_default=False, help="The archive that has it. Without it: MUSTER_LOG_ARCHIVE."),
    ] = None,
    yes: Annotated[
        bool, Parameter(negative="", help="Do it. Without it: only check, and say what it would do.")
    ] = False,
    bus: Bus | None = None,
) -> None:
    """Delete a sealed generation of a log."""
    place, out = locate(bus), Output()
    folder = archive_of(place, archive)
    tell_which(out, place)
    async with connected(place) as js:
        log = await open_log(js, place.config.cell)
        sealed = await deletable(js, log, generation, folder)
        if yes:
            await delete(js, log, sealed)
    out.line(told(sealed, folder, yes))
    if not yes:
        out.line(say("Nothing was deleted: say --yes to do it."))


def archive_of(place: LogPlace, given: Path | None) -> Path:
    """Where the archive is. Raises CliError."""
    folder = given or (Path(place.config.log_archive) if place.config.log_archive else None)
    if folder is None:
        raise CliError(
            say("say where the archive of the log is, with --archive DIR; `muster export --segments DIR` makes one"),
            USAGE,
        )
    return folder


def told(sealed: Sealed, folder: Path, done: bool) -> str:
    """What was deleted, or may be."""
    named = say(
        "generation {generation}, sequence {first} to {last}, {size}",
        generation=sealed.generation,
        first=sealed.first,
        last=sealed.last,
        size=size(sealed.size),
    )
    return say(
        "Deleted {named}; every commit of it is in {folder}, byte for byte."
        if done
        else "May be deleted: {named}; every commit of it is in {folder}, byte for byte.",
        named=named,
        folder=folder,
    )
