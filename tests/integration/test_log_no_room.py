"""A real nats-server without room for the next generation of a log: nothing is sealed, and the log goes on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.cli import Cli
from kit.keeping import Notes, keeper_of
from kit.nats import commit
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.errors import NoRoomError
from muster.bus.fills import reserves
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.streams import Limits
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.archive import read_manifest
from muster.runtime.logkeeping.pruning import sealed
from muster.runtime.logkeeping.rolling import roll
from muster.runtime.runners.keeping import LogKeeper

LOG = Limits(max_bytes=64 << 20)
STORE = 'jetstream {{ store_dir: "{}", max_file_store: {} }}\n'
FIXED = reserves("main", LOG) - 2 * LOG.max_bytes
"""What the streams beside the log reserve."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """With room for one generation, and half of another."""
    config = STORE.format(tmp_path / "store", FIXED + LOG.max_bytes * 3 // 2)
    async with EmbeddedServer(config=config) as server:
        yield server


@pytest.fixture
async def js(server: EmbeddedServer) -> AsyncIterator[JetStream]:
    connection = await connect(server.url, name="test")
    js = JetStream(connection)
    await open_stores(js, "main", create=True, limits=LOG)
    await open_log(js, "main", create=True, limits=LOG, at=1)
    yield js
    await connection.close()


async def more_room(server: EmbeddedServer, tmp_path: Path) -> None:
    server.config = STORE.format(tmp_path / "store", FIXED + LOG.max_bytes * 4)
    await server.restart()


async def test_a_log_whose_successor_has_no_place_is_not_sealed(
    server: EmbeddedServer, js: JetStream, tmp_path: Path
) -> None:
    log = await open_log(js, "main")
    with pytest.raises(NoRoomError, match="no room in NATS for the next generation of the log of cell main"):
        await roll(JetStreamGenerations(js, "main"), clock=SystemClock())
    assert not (await log.usage()).sealed
    assert await log.append(commit(1), expected=0) == 2
    await more_room(server, tmp_path)
    rolled = await roll(JetStreamGenerations(js, "main"), clock=SystemClock())
    assert (rolled.after.generation, rolled.after.first) == (2, 3)


async def test_founding_a_log_says_that_its_next_generation_has_no_room(
    server: EmbeddedServer, js: JetStream, tmp_path: Path
) -> None:
    told = await Cli(tmp_path).run("log", "init", "--url", server.url)
    assert told.code != 0
    assert "no room in NATS for the next generation" in told.err
    await more_room(server, tmp_path)
    (await Cli(tmp_path).run("log", "init", "--url", server.url)).ok()
    # From now on that room is the log's: another cell cannot have it.
    assert (await js.info("MUSTER_NEXT_main")) is not None


async def keeper(js: JetStream, folder: Path, notes: Notes, percent: int) -> LogKeeper:
    return keeper_of(js, await open_log(js, "main"), hooks=notes, percent=percent, folder=folder, keep=1)


async def test_the_keeper_archives_and_deletes_so_that_twelve_generations_fit_in_four(
    server: EmbeddedServer, js: JetStream, tmp_path: Path
) -> None:
    notes = Notes()
    one = await keeper(js, tmp_path / "archive", notes, percent=1)
    log = await open_log(js, "main")
    junk = bytes(400_000)
    for _ in range(2):
        await js.publish("muster.log.main.1.preemptor.0", junk, {})
    await one._look()
    assert "log_has_no_room" in notes.noted
    assert not (await log.usage()).sealed
    await more_room(server, tmp_path)
    for generation in range(2, 13):
        log = await open_log(js, "main")
        for _ in range(2):
            await js.publish(f"muster.log.main.{log.identity.generation}.preemptor.0", junk, {})
        one = await keeper(js, tmp_path / "archive", notes, percent=1)
        await one._look()
        log = await open_log(js, "main")
        assert log.identity.generation == generation
        assert len(await sealed(js, log.identity)) <= 1
    assert notes.noted.count("log_not_pruned") == 1, "the first time, when there was no room"
    assert "log_not_archived" not in notes.noted
    manifest = read_manifest(tmp_path / "archive")
    assert manifest.end == await log.end(), "the archive has all of it, over generations that are gone"
