"""``muster export``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import replace

from muster.bus.server import EmbeddedServer
from muster.events.envelope import Stored
from muster.runtime.config import load
from muster.runtime.logfile import LogWriter
from muster_cli import instances
from muster_cli.commands.tail import tell_which
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.options import Bus
from muster_cli.reading import Place, commits, locate, opened

NATS_FOLDER = "nats"
"""Where below its data directory `muster up` keeps the store of its nats-server."""


async def export(
    *,
    out: Annotated[
        Path,
        Parameter(allow_leading_hyphen=True, help="File to write; compressed when its name ends in .gz; - for stdout."),
    ],
    data: Annotated[
        Path | None, Parameter(show_default=False, help="Data directory of a `muster up --data DIR`, running or not.")
    ] = None,
    bus: Bus | None = None,
) -> None:
    """Copy a log to a file."""
    shown = Output()
    if data is not None and bus is not None and bus.url is not None:
        raise CliError("--data and --url both say where the log is; give one of them", USAGE)
    async with contextlib.AsyncExitStack() as stack:
        if data is None:
            place = locate(bus)
            tell_which(shown, place)
        else:
            place = await stack.enter_async_context(place_of(data, bus.cell if bus is not None else None))
        reading = await stack.enter_async_context(opened(place))
        identity = reading.log.identity
        count, last = await _write(out, commits(reading.log))
    shown.note(
        f"exported {count} commits, sequence 1 to {last}, of cell {identity.cell} generation {identity.generation} "
        f"(log {identity.log_id}) to {out}"
    )


async def _write(path: Path, found: AsyncIterator[Stored]) -> tuple[int, int]:
    """Write the commits; returns how many, and the last sequence. Nothing of the file is left when that fails."""
    last = 0
    if str(path) == "-":
        writer = LogWriter(sys.stdout.buffer)
        async for stored in found:
            writer.write(stored)
            last = stored.seq
        sys.stdout.buffer.flush()
        return writer.count, last
    part = path.with_name(f".{path.name}.part{path.suffix}")
    try:
        with LogWriter.to(part) as writer:
            async for stored in found:
                writer.write(stored)
                last = stored.seq
        part.replace(path)
    except OSError as err:
        raise CliError(f"cannot write {path}: {err.strerror or err}") from err
    finally:
        part.unlink(missing_ok=True)
    return writer.count, last


@contextlib.asynccontextmanager
async def place_of(data: Path, cell: str | None) -> AsyncIterator[Place]:
    """The log of a data directory: of the instance that runs on it, else of a server started for the while."""
    given: dict[str, Any] = {} if cell is None else {"cell": cell}
    config = load(**given)
    home = data.resolve()  # noqa: ASYNC240 -- one look at the disk, before anything runs
    for instance in instances.running():
        if Path(instance.home) == home:
            yield Place(replace(config, nats_url=instance.url, cell=cell or instance.cell), instance)
            return
    store = home / NATS_FOLDER
    if not (store / "jetstream").is_dir():
        raise CliError(f"there is no log in {data}: no `muster up --data {data}` has run there", NOT_FOUND)
    if not os.access(store, os.W_OK):
        raise CliError(f"cannot open the log in {data}: nats-server has to write there, and you may not")
    server = EmbeddedServer(data=store, data_option="--data")
    await server.start()
    try:
        yield Place(replace(config, nats_url=server.url))
    finally:
        await server.stop()
