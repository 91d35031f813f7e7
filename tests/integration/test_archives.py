"""Archives of a real log: taken piece by piece, brought back byte by byte, and refused where there is a log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli import Cli
from kit.nats import SMALL, commit, new_cell
from kit.proxy import Proxy
from kit.snapshots import loaded
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.importing import OccupiedError, import_log
from muster.bus.jetstream import JetStream
from muster.bus.log import Body, JetStreamLog
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.events.subjects import log_stream
from muster.ports import Snapshot
from muster.runtime.logkeeping.archive import read_manifest

MIB = str(16 << 20)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


async def grow(log: JetStreamLog, numbers: range, before: int) -> int:
    for number in numbers:
        headers = {"traceparent": TRACE} if number % 3 == 0 else None
        before = await log.append(commit(number), expected=before, headers=headers)
    return before


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def bodies(log: JetStreamLog) -> list[Body]:
    return [body async for body in log.bodies(0)]


async def test_an_archive_grows_with_its_log_and_comes_back_byte_by_byte(
    cli: Cli, nats_server: EmbeddedServer, cell: str, js: JetStream, tmp_path: Path
) -> None:
    where, folder = ("--url", nats_server.url, "--cell"), tmp_path / "archive"
    (await cli.run("log", "init", "--max-bytes", MIB, *where, cell)).ok()
    log = await open_log(js, cell)
    last = await grow(log, range(1, 8), 0)
    export = ("export", "--segments", str(folder), "--segment-commits", "5")
    first = (await cli.run(*export, *where, cell)).ok()
    assert "archived sequence 1 to 8: 2 segments" in first.err
    await grow(log, range(8, 24), last)
    again = (await cli.run(*export, *where, cell)).ok()
    assert "archived sequence 6 to 24: 5 segments" in again.err
    taken = files(folder)
    assert "nothing new: 5 segments, sequence 1 to 24" in (await cli.run(*export, *where, cell)).ok().err
    assert files(folder) == taken
    assert (await cli.run("log", "verify", "--log", str(folder))).ok().lines[-1] == "whole: nothing is missing"

    other = new_cell()
    told = (await cli.run("import", "--segments", str(folder), "--max-bytes", MIB, *where, other)).ok()
    assert told.out == f"Imported sequence 1 to 24 of log {log.identity.log_id}: generation 1 of cell {other}.\n"
    brought = await open_log(js, other)
    assert await bodies(brought) == await bodies(log)
    assert any(body.trace == TRACE for body in await bodies(brought))
    back = tmp_path / "back"
    (await cli.run("export", "--segments", str(back), "--segment-commits", "5", *where, other)).ok()
    assert read_manifest(back).segments == read_manifest(folder).segments

    for occupied in (other, cell):
        stored = await bodies(await open_log(js, occupied))
        refused = await cli.run("import", "--segments", str(folder), "--max-bytes", MIB, *where, occupied)
        assert refused.code == 1
        assert "a log is imported into an empty one" in refused.err
        assert await bodies(await open_log(js, occupied)) == stored

    foreign = new_cell()
    (await cli.run("log", "init", "--max-bytes", MIB, *where, foreign)).ok()
    refused = await cli.run("import", "--segments", str(folder), *where, foreign)
    assert refused.code == 1
    assert f"cell {foreign} has log " in refused.err
    await js.delete(log_stream(other, 1))
    (await cli.run("import", "--segments", str(folder), "--max-bytes", MIB, *where, other)).ok()
    assert await bodies(await open_log(js, other)) == await bodies(log), "this very log was lost, and is back"


async def test_an_import_that_breaks_off_puts_nothing_in_force(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True)
    await grow(log, range(1, 5), 0)
    whole, other = await bodies(log), new_cell()

    def broken():
        yield from whole[:3]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        await import_log(js, other, broken())
    with pytest.raises(OccupiedError, match="has 1 messages"):
        await import_log(js, other, whole)
    from muster.ports import LogGoneError

    with pytest.raises(LogGoneError):
        await open_log(js, other)
    await js.delete(log_stream(other, 1))
    assert await bodies(await import_log(js, other, whole)) == whole


async def test_snapshots_of_the_lost_log_do_not_outlive_an_import(js: JetStream, cell: str) -> None:
    """The archive may end before the log did: what was kept after that is of a history that never was."""
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL)
    await grow(log, range(1, 20), 0)
    end, archived = await log.end(), (await bodies(log))[:10]
    kept = JetStreamSnapshots(js, log.identity, warn=lambda _: None)
    for stage in ("preemptor", "watcher"):
        assert await kept.save(Snapshot(log.identity.log_id, stage, "0", end, "schema", b"state"))
    await js.delete(log_stream(cell, 1))
    brought = await import_log(js, cell, archived, limits=SMALL)
    assert brought.identity.log_id == log.identity.log_id
    assert [await loaded(kept, stage, "0") for stage in ("preemptor", "watcher")] == [None, None]
    assert await kept.save(Snapshot(log.identity.log_id, "watcher", "pods", await brought.end(), "schema", b"state"))


async def test_an_import_during_which_the_connection_breaks_is_whole(
    nats_server: EmbeddedServer, js: JetStream, cell: str
) -> None:
    """Whatever was on its way is asked about and sent again, each at its place."""
    log = await open_log(js, cell, create=True, limits=SMALL)
    await grow(log, range(1, 900), 0)
    whole, other = await bodies(log), new_cell()
    async with Proxy(nats_server.port) as proxy:
        far = await connect(proxy.url, name="far")
        try:

            def breaking() -> Iterator[Body]:
                for body in whole:
                    if body.seq in (300, 700):
                        proxy.cut()
                    yield body

            brought = await import_log(JetStream(far), other, breaking(), limits=SMALL)
            assert brought.identity.log_id == log.identity.log_id
        finally:
            await far.close()
    assert await bodies(await open_log(js, other)) == whole
