"""``muster import``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.bus.importing import import_log as store
from muster.bus.log import Body
from muster.bus.streams import Limits
from muster.model.language import say
from muster.runtime.logkeeping.archive import ArchiveManifest, read_lines, read_manifest
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.options import Bus, Room
from muster_cli.reading import connected, locate
from muster_cli.waitbar import counting


async def import_log(
    *,
    segments: Annotated[Path, Parameter(help="Folder of segments, as `muster export --segments` writes it.")],
    room: Room | None = None,
    bus: Bus | None = None,
) -> None:
    """Bring an archived log back into an empty stream."""
    if not segments.exists():
        raise CliError(
            say("there is no folder {segments}; `muster export --segments {segments}` makes one", segments=segments),
            NOT_FOUND,
        )
    manifest = read_manifest(segments)
    if not manifest.segments:
        raise CliError(say("{segments} holds no segment: there is nothing to import", segments=segments))
    place = locate(bus)
    config = (room or Room()).applied(place.config)
    limits = Limits(max_bytes=config.log_max_bytes, replicas=config.replicas)
    async with connected(place) as js:
        with counting("Importing", manifest.end, "commits") as shown:
            log = await store(
                js,
                config.cell,
                _bodies(segments, manifest),
                limits=limits,
                progress=shown or (lambda _seq: None),
            )
    made = log.identity
    Output().line(
        say(
            "Imported sequence 1 to {end} of log {log_id}: generation {generation} of cell {cell}.",
            end=manifest.end,
            log_id=made.log_id,
            generation=made.generation,
            cell=made.cell,
        )
    )


def _bodies(folder: Path, manifest: ArchiveManifest) -> Iterator[Body]:
    for line in read_lines(folder, manifest):
        yield Body(line.seq, line.body, line.trace, line.subject, line.stored_at)
