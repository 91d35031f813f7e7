"""A log that lost its newest commits, on a real server whose store goes back to what it was: nobody builds on it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.cli import Cli
from kit.doubles.log import MemoryLeases, MemorySnapshots
from kit.keeping import keeper_of
from kit.nats import SMALL, commit
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.marks import JetStreamMarks, Mark, give_up, hear_marks
from muster.bus.server import EmbeddedServer
from muster.core.cell.deciders import DECIDERS
from muster.events import subjects
from muster.events.system import TimeReached
from muster.ports import LogGoneError, LogLostError, LogSealedError
from muster.runtime.clock import SystemClock
from muster.runtime.runners.leader import AnyLeader, Leader


class Scene:
    """A server, a log of a few commits, and a copy of the store as it is then."""

    def __init__(self, server: EmbeddedServer, js: JetStream, log: JetStreamLog, folder: Path) -> None:
        self.server, self.js, self.log, self.folder = server, js, log, folder
        self.last = 0

    async def say(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.last = await self.log.append(commit(number), expected=self.last)

    async def copy(self) -> None:
        await self.server.kill()
        shutil.copytree(self.server.directory, self.folder / "copy")
        await self.server.restart()
        await self.log.end()

    async def lose(self) -> None:
        """The store is as it was when it was copied."""
        await self.server.kill()
        shutil.rmtree(self.server.directory / "jetstream", ignore_errors=True)
        shutil.copytree(self.folder / "copy", self.server.directory, dirs_exist_ok=True)
        await self.server.restart()

    async def lose_all(self) -> None:
        """As after a crash: what the server wrote to the log is not on its disk, and the log is."""
        await self.server.kill()
        for block in self.server.directory.glob(f"**/{subjects.log_stream('main', 1)}/msgs/*.blk"):
            block.write_bytes(b"")
        await self.server.restart()

    async def digest(self, seq: int) -> bytes:
        async for batch in self.log.follow(seq - 1):
            return batch[0].digest
        raise AssertionError("nothing there")

    async def mark(self, service: str, seq: int, digest: bytes = b"\x01" * 16) -> None:
        await JetStreamMarks(self.js, "main").put(Mark(service, self.log.identity.log_id, seq, digest.hex()))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with EmbeddedServer() as server:
        connection = await connect(server.url, name="test")
        js = JetStream(connection)
        await open_stores(js, "main", create=True, limits=SMALL)
        made = Scene(server, js, await open_log(js, "main", create=True, limits=SMALL, at=1), tmp_path)
        await made.say(5)
        yield made
        await connection.close()


@asynccontextmanager
async def led(scene: Scene) -> AsyncIterator[tuple[AnyLeader, "asyncio.Task[None]"]]:
    leader: AnyLeader = Leader(
        DECIDERS["preemptor"](),
        log=scene.log,
        lease=MemoryLeases().lease("preemptor", "0", "p"),
        snapshots=MemorySnapshots(scene.log.identity),
        clock=SystemClock(),
        process="p",
    )
    task = asyncio.ensure_future(leader.run())
    await until(lambda: task.done() or leader.leading())
    yield leader, task
    task.cancel()
    await asyncio.wait({task})


async def test_a_reader_notices_at_once_that_the_end_is_gone_and_keeps_nothing(scene: Scene) -> None:
    await scene.copy()
    async with led(scene) as (leader, task):
        leader.announce(TimeReached(at=1))
        await until(lambda: leader.state.seq == 8)
        await scene.lose()
        await until(task.done, timeout_s=30)
        error = task.exception()
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, LogLostError)
        assert "it lost commits, and nothing more is built on it" in str(error)
        with pytest.raises(LogLostError):
            await leader.keep_snapshot()
        await leader.stop()
        assert await leader.snapshots.load("preemptor", "0") is None


async def test_a_tail_that_grew_again_is_another_log_under_the_name(scene: Scene) -> None:
    await scene.copy()
    await scene.say(4, 100)
    seq, kept = scene.last, scene.last - 4
    digest = await scene.digest(seq)
    await scene.lose()
    scene.last = kept
    again = await open_log(scene.js, "main")
    for number in range(200, 206):
        scene.last = await again.append(commit(number), expected=scene.last)
    with pytest.raises(LogLostError, match=f"holds another commit at {seq} than was read there"):
        async for _ in again.follow(seq, digest):
            pass


async def test_where_two_services_miss_commits_the_next_generation_is_founded(scene: Scene) -> None:
    good = await scene.digest(3)
    await scene.mark("watcher", 3, good)
    await scene.mark("preemptor", 40)
    marks = JetStreamMarks(scene.js, "main")
    alone = await hear_marks(scene.log, await marks.all())
    assert ([each.service for each in alone.lost], alone.agrees) == (["preemptor"], False)
    await scene.mark("actuator", 41)
    found = await hear_marks(scene.log, await marks.all())
    assert found.agrees
    made = await give_up(scene.js, scene.log.identity, 1, by="the keeper")
    assert await give_up(scene.js, scene.log.identity, 1, by="another") == made
    after = await open_log(scene.js, "main")
    assert (after.identity.generation, after.identity.first, after.identity.earlier) == (2, 1, ())
    with pytest.raises(LogSealedError):
        await scene.log.append(commit(9), expected=scene.last)
    assert (await hear_marks(after, await marks.all())).lost == ()


@pytest.mark.parametrize("junk", [False, True])
async def test_a_log_that_lost_its_first_commit_is_given_up_without_a_witness(scene: Scene, junk: bool) -> None:
    """What is written to it meanwhile changes nothing, and no service appends to it."""
    await scene.lose_all()
    log = await open_log(scene.js, "main")
    with pytest.raises(LogGoneError):
        await log.append(commit(9), expected=0)
    if junk:
        await scene.js.publish(subjects.log_subject("main", 1, "preemptor", "0"), b"junk", {})
    with pytest.raises(LogSealedError):
        await keeper_of(scene.js, log)._look()
    after = await open_log(scene.js, "main")
    assert (after.identity.generation, after.identity.first) == (2, 1)


async def test_a_person_gives_up_a_log_that_lost_its_first_commit(scene: Scene, tmp_path: Path) -> None:
    await scene.lose_all()
    cli, where = Cli(tmp_path), ("--url", scene.server.url)
    asked = await cli.run("log", "recover", *where)
    assert asked.code == 1
    assert "the log does not have its first commit" in asked.out
    assert "Generation 2 of cell main" in (await cli.run("log", "recover", "--yes", *where)).ok().out


async def test_where_one_service_misses_commits_a_person_decides(scene: Scene, tmp_path: Path) -> None:
    cli, where = Cli(tmp_path), ("--url", scene.server.url)
    assert "nothing to recover" in (await cli.run("log", "recover", *where)).ok().out
    await scene.mark("watcher", 3, await scene.digest(3))
    await scene.mark("preemptor", 2, b"\x02" * 16)
    asked = await cli.run("log", "recover", *where)
    assert asked.code == 1
    assert "preemptor has read the log up to sequence 2, and that is not in it" in asked.out
    done = (await cli.run("log", "recover", "--yes", *where)).ok()
    assert "Generation 2 of cell main" in done.out
