"""A real NATS server for tests: one per session, and cells of their own for every test."""

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from muster.bus.connection import Connection, connect
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.streams import Limits
from muster.events import subjects
from muster.events.envelope import Commit
from muster.events.system import TimeReached

SMALL = Limits(max_bytes=64 << 20)
"""Streams reserve their size: many cells have to fit on one disk."""

_cells = itertools.count(1)


@pytest.fixture(scope="session")
def nats_server() -> Iterator[EmbeddedServer]:
    """A running server. Tests that stop or break it start one of their own."""
    server = EmbeddedServer()
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def connection(nats_server: EmbeddedServer) -> AsyncIterator[Connection]:
    """A connection to it."""
    connection = await connect(nats_server.url, name="test")
    yield connection
    await connection.close()


@pytest.fixture
def js(connection: Connection) -> JetStream:
    """JetStream over that connection."""
    return JetStream(connection)


@pytest.fixture
async def cell(nats_server: EmbeddedServer) -> AsyncIterator[str]:
    """A cell nobody else has."""
    name = new_cell()
    yield name
    await forget(nats_server.url, name)


def new_cell() -> str:
    return f"t{os.getpid()}-{next(_cells)}"


async def forget(nats_url: str, cell: str) -> None:
    """Delete every stream of a cell: what they reserve is part of the disk of all tests of a session."""
    connection = await connect(nats_url, name="forget")
    try:
        js = JetStream(connection)
        for name in await js.names(">"):
            if re.search(rf"_{cell}(_|$)", name):
                await js.delete(name)
    finally:
        await connection.close()


def commit(number: int, *, stage: str = "watcher", shard: str = "", at: int | None = None) -> Commit:
    """A small commit; equal numbers give equal commits. ``shard``: that of pods of the watcher, 0 of any other."""
    return Commit(
        commit_id=f"{stage}-{number}",
        stage=stage,
        shard=shard or ("pods" if stage == "watcher" else "0"),
        kind="input",
        at=number if at is None else at,
        events=(TimeReached(at=number),),
    )


async def leases_last(js: JetStream, cell: str, lease_s: float) -> None:
    """Let the leases and the announced replicas run out after another time, also what is there already.

    So that a test is held up as long as it may be, and only then waits for something to run out.
    """
    for bucket in (subjects.lease_bucket(cell), subjects.replica_bucket(cell)):
        info = await js.info(f"KV_{bucket}")
        if info is None:
            continue
        config = {**info.config, "max_age": int(lease_s * 1_000_000_000)}
        config["duplicate_window"] = min(config["duplicate_window"], config["max_age"])
        await js.ask(f"STREAM.UPDATE.KV_{bucket}", config)


class Notices:
    """Collects what a connection tells."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, fields: Mapping[str, object]) -> None:
        self.told.append((event, dict(fields)))

    def of(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.told if name == event]
