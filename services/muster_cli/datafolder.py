"""The log in the data directory of a ``muster up --data DIR``, whether that runs or not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.bus.server import EmbeddedServer
from muster.model.language import say
from muster.runtime.config import load
from muster_cli import instances
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.reading import LogPlace

NATS_FOLDER = "nats"
"""Where below its data directory `muster up` keeps the store of its nats-server."""


@contextlib.asynccontextmanager
async def place_of(data: Path, cell: str | None) -> AsyncIterator[LogPlace]:
    """The log of a data directory: of the instance that runs there, else of a server started for the command."""
    given: dict[str, Any] = {} if cell is None else {"cell": cell}
    config = load(**given)
    home = data.resolve()  # noqa: ASYNC240 -- one look at the disk, before anything runs
    for instance in instances.running():
        if Path(instance.home) == home:
            yield LogPlace(replace(config, nats_url=instance.url, cell=cell or instance.cell), instance)
            return
    store = home / NATS_FOLDER
    if not (store / "jetstream").is_dir():
        raise CliError(
            say("there is no log in {data}: no `muster up --data {data}` has run there", data=data), NOT_FOUND
        )
    if not os.access(store, os.W_OK):
        raise CliError(say("cannot open the log in {data}: nats-server has to write there, and you may not", data=data))
    server = EmbeddedServer(data=store, data_option="--data")
    await server.start()
    try:
        yield LogPlace(replace(config, nats_url=server.url))
    finally:
        await server.stop()
