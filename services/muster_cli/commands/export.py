"""``muster export``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.bus.log import JetStreamLog
from muster.events.envelope import Stored
from muster.model.language import say
from muster.model.text import counted
from muster.ports import Snapshot
from muster.runtime.logkeeping.archive import SEGMENT_COMMITS
from muster.runtime.logkeeping.archiving import archive
from muster.runtime.logkeeping.logfile import LogWriter
from muster_cli.console import Output
from muster_cli.datafolder import place_of
from muster_cli.exits import USAGE, CliError
from muster_cli.options import Bus
from muster_cli.reading import base_of, commits, locate, opened, tell_which
from muster_cli.sources import watched
from muster_cli.waitbar import counting


async def export(
    *,
    out: Annotated[
        Path | None,
        Parameter(
            show_default=False,
            allow_leading_hyphen=True,
            help="File to write; compressed when its name ends in .gz; - for stdout.",
        ),
    ] = None,
    segments: Annotated[
        Path | None,
        Parameter(show_default=False, help="Folder to write segments to, or to go on with: an archive."),
    ] = None,
    segment_commits: Annotated[int, Parameter(help="Commits of a segment, of a new archive.")] = SEGMENT_COMMITS,
    data: Annotated[
        Path | None, Parameter(show_default=False, help="Data directory of a `muster up --data DIR`, running or not.")
    ] = None,
    bus: Bus | None = None,
) -> None:
    """Copy a log to a file, or to an archive."""
    shown = Output()
    if data is not None and bus is not None and bus.url is not None:
        raise CliError(say("--data and --url both say where the log is; give one of them"), USAGE)
    if (out is None) == (segments is None):
        raise CliError(say("say where to: either --out FILE or --segments DIR"), USAGE)
    if segment_commits < 1:
        raise CliError(
            say("--segment-commits is {segment_commits}: a segment has at least one", segment_commits=segment_commits),
            USAGE,
        )
    async with contextlib.AsyncExitStack() as stack:
        if data is None:
            place = locate(bus)
            tell_which(shown, place)
        else:
            place = await stack.enter_async_context(place_of(data, bus.cell if bus is not None else None))
        reading = await stack.enter_async_context(opened(place))
        identity = reading.log.identity
        which = say(
            "of cell {cell} generation {generation} (log {log_id})",
            cell=identity.cell,
            generation=identity.generation,
            log_id=identity.log_id,
        )
        if segments is not None:
            shown.note(
                say(
                    "{archived}, {which}, in {folder}",
                    archived=await _archive(segments, reading.log, segment_commits),
                    which=which,
                    folder=segments,
                )
            )
        elif out is not None:
            base = await base_of(reading)
            with counting("Exporting", await reading.log.end(), "commits") as bar:
                count, last = await _write(out, base, watched(commits(reading.log, whole=False), bar))
            begins = say(" (with the states of {stages} before it)", stages=counted(len(base), "stage")) if base else ""
            shown.note(
                say(
                    "exported {count} commits, sequence {origin}{begins} to {last}, {which} to {out}",
                    count=count,
                    origin=identity.origin,
                    begins=begins,
                    last=last,
                    which=which,
                    out=out,
                )
            )


async def _archive(folder: Path, log: JetStreamLog, size: int) -> str:
    """Write the part of the log that an archive lacks; returns a report."""
    try:
        with counting("Archiving", await log.end(), "commits") as bar:
            done = await archive(folder, log, commits=size, progress=bar)
    except OSError as err:
        raise CliError(say("cannot write {folder}: {error}", folder=folder, error=err.strerror or err)) from err
    manifest = done.manifest
    if done.last <= done.begun:
        return say(
            "nothing new: {segments}, sequence 1 to {end}",
            segments=counted(len(manifest.segments), "segment"),
            end=manifest.end,
        )
    return say(
        "archived sequence {first} to {last}: {segments}, {size} bytes",
        first=done.first,
        last=done.last,
        segments=counted(len(manifest.segments), "segment"),
        size=sum(segment.size for segment in manifest.segments),
    )


async def _write(path: Path, base: Sequence[Snapshot], stored_commits: AsyncIterator[Stored]) -> tuple[int, int]:
    """Write the base and the commits; returns the number of commits, and the last sequence.

    After a failure no part of the file is left.
    """
    last = 0
    if str(path) == "-":
        writer = LogWriter(sys.stdout.buffer)
        writer.begin_with(base)
        async for stored in stored_commits:
            writer.write(stored)
            last = stored.seq
        sys.stdout.buffer.flush()
        return writer.count, last
    part = path.with_name(f".{path.name}.part{path.suffix}")
    try:
        with LogWriter.to(part) as writer:
            writer.begin_with(base)
            async for stored in stored_commits:
                writer.write(stored)
                last = stored.seq
        part.replace(path)
    except OSError as err:
        raise CliError(say("cannot write {path}: {error}", path=path, error=err.strerror or err)) from err
    finally:
        part.unlink(missing_ok=True)
    return writer.count, last
