"""A log that lost its newest commits, on a real server whose store goes back to what it was: nobody builds on it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from kit.alone import alone, reader_of
from kit.cli import Cli
from kit.doubles.log import MemoryLeases, MemorySnapshots
from kit.keeping import keeper_of
from kit.nats import SMALL, commit
from kit.snapshots import loaded
from kit.waiting import until
from muster.bus.cell import POINTER, open_log, open_stores, own_genesis, pointer_of
from muster.bus.connection import connect
from muster.bus.errors import BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.marks import MARKS, JetStreamMarks, Mark, Testimony, give_up, hear_marks
from muster.bus.public import CE_ID, PublicPublisher
from muster.bus.server import EmbeddedServer
from muster.bus.vouching import Vouches
from muster.core.cell.deciders import DECIDERS
from muster.events import subjects
from muster.events.envelope import encode_commit, genesis_commit
from muster.events.registry import encode
from muster.events.system import Genesis, TimeReached
from muster.ports import LogGoneError, LogIdentity, LogLostError, LogSealedError
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.layouts import KEEPER, LAYOUTS, SERVICES, USERS
from muster.runtime.logkeeping.rolling import roll
from muster.runtime.pairing import record_cluster
from muster.runtime.process import Process
from muster.runtime.runners.leader import AnyLeader, Leader
from muster.runtime.service import open_process


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

    async def mark(self, user: str, seq: int, digest: bytes = b"\x01" * 16) -> None:
        """Write one as its key may, whatever was there."""
        bucket, key = KvBucket(self.js, subjects.state_bucket("main")), f"{MARKS}.{user}"
        before = await bucket.get(key)
        said = encode(Mark(self.log.identity.log_id, seq, digest.hex()))
        await bucket.set(key, said, revision=before.revision if before is not None else 0)

    async def marks(self) -> dict[str, int]:
        found = await JetStreamMarks(self.js, "main").of(self.log.identity)
        return {user: mark.seq for user, mark in found.items()}

    async def hear(self) -> Testimony:
        return await hear_marks(self.js, self.log, USERS)


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
        log=reader_of(scene.log),
        lease=MemoryLeases().lease("preemptor", "0", "p"),
        snapshots=MemorySnapshots(scene.log.identity),
        clock=SystemClock(),
        process="p",
    )
    task = asyncio.ensure_future(alone(leader))
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
        assert await loaded(leader.snapshots, "preemptor", "0") is None


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
    alone = await scene.hear()
    assert ([*alone.lost], alone.agrees) == (["preemptor"], False)
    await scene.mark("actuator", 41)
    assert (await scene.hear()).agrees
    made = await give_up(scene.js, scene.log.identity, 1, by="the keeper")
    assert await give_up(scene.js, scene.log.identity, 1, by="another") == made
    after = await open_log(scene.js, "main")
    assert (after.identity.generation, after.identity.first, after.identity.earlier) == (2, 1, ())
    with pytest.raises(LogSealedError):
        await scene.log.append(commit(9), expected=scene.last)
    assert not (await hear_marks(scene.js, after, USERS)).lost


async def test_a_snapshot_is_kept_behind_the_mark(scene: Scene) -> None:
    """So what is lost of it is missed, although nobody believes a snapshot that the log cannot show."""
    async with AsyncExitStack() as stack:
        process = await open_process(Config(nats_url=scene.server.url), "queue-sorter", stack)
        process.add_decider(DECIDERS["queue_sorter"])
        (runner,) = process.runners
        running = asyncio.ensure_future(alone(runner))
        await until(lambda: runner.caught_up or running.done())
        running.cancel()
        await asyncio.wait({running})
        await runner.keep_snapshot()
        kept = await loaded(process.opened("queue_sorter").snapshots, "queue_sorter", "0")
        assert kept is not None
        assert kept.seq == (await scene.marks())["queue_sorter"] == runner.state.seq


@pytest.mark.parametrize("layout", ["all", "deciders"])
async def test_a_layout_is_no_witness_of_what_was_read_after_it(scene: Scene, layout: str) -> None:
    """Each service left a mark before it went into a process of several; then the log loses what that one read."""
    good = await scene.digest(3)
    for service in (each for each in SERVICES if each != KEEPER):
        await scene.mark(service, 3, good)
    now = [each for each in LAYOUTS[layout] if each != KEEPER]
    for process in now:
        await scene.mark(process, 40)
    found = await scene.hear()
    assert sorted(found.lost) == sorted(now)
    assert found.agrees


async def test_a_key_of_the_layout_before_is_one_witness(scene: Scene) -> None:
    good = await scene.digest(5)
    for process in LAYOUTS["deciders"]:
        await scene.mark(process, 5, good)
    await scene.mark("queue_sorter", 40)
    found = await scene.hear()
    assert ([*found.lost], found.agrees) == (["queue_sorter"], False)


async def test_a_process_asks_for_what_its_services_read_in_the_layout_before(scene: Scene) -> None:
    await scene.mark("queue_sorter", 40)
    async with AsyncExitStack() as stack:
        opening = asyncio.ensure_future(open_process(Config(nats_url=scene.server.url), "deciders", stack))
        other = await open_process(Config(nats_url=scene.server.url), "actuator", stack)
        assert other.log.identity == scene.log.identity
        await give_up(scene.js, scene.log.identity, 1, by="a person")
        assert (await opening).log.identity.generation == 2


async def test_a_replica_that_lags_leaves_the_mark_of_the_one_ahead(scene: Scene) -> None:
    """They share it. The one that lags sees nothing amiss in what it read itself."""
    marks, log_id = JetStreamMarks(scene.js, "main"), scene.log.identity.log_id
    third, fifth = (await scene.digest(3)).hex(), (await scene.digest(5)).hex()
    assert await marks.put(scene.log, "preemptor", Mark(log_id, 5, fifth))
    assert await marks.put(scene.log, "preemptor", Mark(log_id, 3, third))
    assert await scene.marks() == {"preemptor": 5}
    assert await marks.put(scene.log, "preemptor", Mark(log_id, 3, "02" * 16)), "a word against the log is kept"
    assert await scene.marks() == {"preemptor": 3}
    with pytest.raises(LogLostError):
        await marks.put(scene.log, "preemptor", Mark(log_id, 5, fifth))
    assert await scene.marks() == {"preemptor": 3}


async def test_a_replica_of_a_generation_before_leaves_the_mark_of_the_one_ahead(scene: Scene) -> None:
    marks, before = JetStreamMarks(scene.js, "main"), scene.log.identity
    said = Mark(before.log_id, 5, (await scene.digest(5)).hex())
    await roll(JetStreamGenerations(scene.js, "main"), clock=SystemClock())
    log = await open_log(scene.js, "main")
    genesis = (await anext(log.follow(log.identity.first - 1)))[0]
    ahead = Mark(log.identity.log_id, genesis.seq, genesis.digest.hex())
    assert await marks.put(log, "preemptor", ahead)
    assert not await marks.put(scene.log, "preemptor", said)
    assert await marks.of(log.identity) == {"preemptor": ahead}


@asynccontextmanager
async def publishing(scene: Scene) -> AsyncIterator["asyncio.Task[None]"]:
    """A publisher as the service has it; done when it ends, or has caught up."""
    async with AsyncExitStack() as stack:
        process = await open_process(Config(nats_url=scene.server.url, health_port=-1), "publisher", stack)
        process.add_publisher()
        running = asyncio.ensure_future(process.run())
        await until(lambda: running.done() or process.publishers[0].caught_up)
        yield running
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("purged", [False, True])
async def test_a_log_that_lacks_what_outsiders_have_read_is_not_published_on(scene: Scene, purged: bool) -> None:
    """It is published before it is written down that it was read."""
    outlet = PublicPublisher(scene.js, "main")
    await outlet.resume()
    for index, digest in enumerate((await scene.digest(5), b"\x02" * 16)):
        event = f"main-1-5-{index}"
        await outlet.publish(subjects.public_subject("main", "e", "n", "m"), {CE_ID: event}, b"{}", digest.hex())
        await outlet.settle()
        if not index:
            async with publishing(scene) as running:
                assert not running.done(), "the log holds what was published"
    if purged:
        await outlet.keep()
        await scene.js.ask(f"STREAM.PURGE.{subjects.PUBLIC_STREAM}")
    await scene.js.ask(f"STREAM.PURGE.KV_{subjects.lease_bucket('main')}")
    async with publishing(scene) as running:
        with pytest.raises(LogLostError, match="holds another commit at 5"):
            await asyncio.wait_for(running, 30.0)
    assert await scene.marks() == {"publisher": 5}
    assert not (await scene.hear()).whole


@asynccontextmanager
async def preempting(scene: Scene) -> AsyncIterator[tuple[Process, "asyncio.Task[None]"]]:
    """A process as the service has it, which has read all there is."""
    async with AsyncExitStack() as stack:
        process = await open_process(Config(nats_url=scene.server.url, health_port=-1), "preemptor", stack)
        process.add_decider(DECIDERS["preemptor"])
        running = asyncio.ensure_future(process.run())
        await until(lambda: running.done() or process.runners[0].caught_up)
        yield process, running
        running.cancel()
        await asyncio.wait({running})


async def test_a_replica_that_lags_appends_nothing_on_a_new_connection(scene: Scene) -> None:
    """Another has read further, and the log lost that: found before this one reads or writes."""
    async with preempting(scene) as (process, running):
        await scene.mark("preemptor", 40)
        await scene.server.kill()
        await scene.server.restart()
        with pytest.raises(LogLostError, match=r"mark of preemptor; .*recover --distrust preemptor`"):
            await asyncio.wait_for(running, 30.0)
        assert process.runners[0].state.seq == await scene.log.end()
        assert await scene.marks() == {"preemptor": 40}


async def test_a_replica_that_lags_finds_what_another_says_without_a_new_connection(scene: Scene) -> None:
    async with preempting(scene) as (process, running):
        await scene.mark("preemptor", 40)
        with pytest.raises(LogLostError):
            await process.marking.keep()
        with pytest.raises(LogLostError):
            await asyncio.wait_for(running, 30.0)
        assert await scene.marks() == {"preemptor": 40}


@pytest.mark.parametrize("seq", [10**12, 2**64])
async def test_a_false_mark_is_withdrawn_and_the_log_goes_on(scene: Scene, tmp_path: Path, seq: int) -> None:
    """Also one at what no server takes for a sequence."""
    await scene.mark("watcher", 3, await scene.digest(3))
    await scene.mark("preemptor", seq)
    cli, where = Cli(tmp_path), ("--url", scene.server.url)
    told = await cli.run("log", "recover", "--distrust", "actuator", *where)
    assert (told.code, "There are those of: preemptor, watcher." in told.out) == (1, True)
    async with AsyncExitStack() as stack:
        opening = asyncio.ensure_future(open_process(Config(nats_url=scene.server.url), "preemptor", stack))
        await open_process(Config(nats_url=scene.server.url), "actuator", stack)
        assert not opening.done()
        told = (await cli.run("log", "recover", "--distrust", "preemptor", *where)).ok()
        assert f"The mark of preemptor, at sequence {seq}, is withdrawn." in told.out
        assert (await opening).log.identity == scene.log.identity
    assert await scene.marks() == {"watcher": 3}


MINE = encode_commit(genesis_commit(Genesis(log_id="mine", generation=1, own_time=True), 1))


@pytest.mark.parametrize("junk", [b"", b"junk", MINE])
async def test_a_log_that_lost_its_first_commit_is_given_up_without_a_witness(scene: Scene, junk: bytes) -> None:
    """What is written to it meanwhile changes nothing, and no service appends to it."""
    await scene.lose_all()
    log = await open_log(scene.js, "main")
    with pytest.raises(LogGoneError):
        await log.append(commit(9), expected=0)
    if junk:
        await scene.js.publish(subjects.log_subject("main", 1, "preemptor", "0"), junk, {})
    with pytest.raises(LogSealedError):
        await keeper_of(scene.js, log)._look()
    after = await open_log(scene.js, "main")
    assert (after.identity.generation, after.identity.first) == (2, 1)
    begun = await own_genesis(scene.js, "main", 2, 1)
    assert begun is not None
    assert not begun.own_time


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


async def test_a_generation_says_who_was_not_heard_when_it_began(scene: Scene) -> None:
    """One witness alone may be a key in other hands, so the log still rolls over."""
    await scene.mark("preemptor", 2, b"\x02" * 16)
    await JetStreamGenerations(scene.js, "main").seal(scene.log.identity)
    await keeper_of(scene.js, scene.log)._look()
    begun = await own_genesis(scene.js, "main", 2, scene.last + 1)
    assert begun is not None
    assert begun.reason == "it was already sealed; it lacks what was read by preemptor at 2"


async def sealed_and_lost(scene: Scene) -> JetStreamLog:
    """A roll-over broke off behind the seal, and the server lost what two services have read."""
    await scene.copy()
    await scene.say(4, 100)
    end, digest = scene.last, await scene.digest(scene.last)
    await scene.lose()
    await scene.mark("watcher", end, digest)
    await scene.mark("preemptor", end, digest)
    log = await open_log(scene.js, "main")
    await JetStreamGenerations(scene.js, "main").seal(log.identity)
    return log


async def test_a_sealed_log_that_lost_commits_is_given_up_and_not_rolled_over(scene: Scene, tmp_path: Path) -> None:
    log = await sealed_and_lost(scene)
    told = await Cli(tmp_path).run("log", "roll", "--complete", "--url", scene.server.url)
    assert (told.code, "muster log recover" in told.out) == (1, True)
    with pytest.raises(LogSealedError):
        await keeper_of(scene.js, log)._look()
    after = (await open_log(scene.js, "main")).identity
    assert (after.generation, after.first, after.earlier) == (2, 1, ())


async def test_a_keeper_that_starts_gives_up_a_sealed_log_that_lost_commits(scene: Scene) -> None:
    await sealed_and_lost(scene)
    async with AsyncExitStack() as stack:
        await open_process(Config(nats_url=scene.server.url, health_port=-1), "keeper", stack, keeping=True)
        after = (await open_log(scene.js, "main")).identity
    assert (after.generation, after.first, after.earlier) == (2, 1, ())


async def test_a_roll_over_that_founded_its_successor_before_the_loss_is_completed(scene: Scene) -> None:
    """The states it begins with were made of the whole log: the pointer alone is missing."""
    pointer = await KvBucket(scene.js, subjects.state_bucket("main")).get(POINTER)
    assert pointer is not None
    rolled = await roll(JetStreamGenerations(scene.js, "main"), clock=SystemClock())
    state = KvBucket(scene.js, subjects.state_bucket("main"))
    moved = await state.get(POINTER)
    assert moved is not None
    await state.set(POINTER, pointer.value or b"", revision=moved.revision)
    for service in ("watcher", "preemptor"):
        await scene.mark(service, 40)
    log = await open_log(scene.js, "main")
    await keeper_of(scene.js, log)._look()
    after = (await open_log(scene.js, "main")).identity
    assert (after.log_id, after.first) == (rolled.after.log_id, rolled.end + 1)


@pytest.mark.parametrize(
    ("given_up", "left"), [(True, "before"), (False, "before"), (True, "nothing"), (False, "junk")]
)
async def test_a_pointer_that_the_servers_forgot_names_the_newest_generation_again(
    scene: Scene, given_up: bool, left: str
) -> None:
    """The keeper does not wait for a word on a log that has a successor: nobody vouches for that log any more."""
    state = KvBucket(scene.js, subjects.state_bucket("main"))
    before = await state.get(POINTER)
    assert before is not None
    await record_cluster(scene.js, scene.log.identity, "uid-of-the-cluster", "https://here")
    identity = scene.log.identity
    for _ in range(2):
        if given_up:
            identity = await give_up(scene.js, identity, 1, by="the keeper")
        else:
            identity = (await roll(JetStreamGenerations(scene.js, "main"), clock=SystemClock())).after
    moved = await state.get(POINTER)
    assert moved is not None
    if left == "nothing":
        await state.delete(POINTER, revision=moved.revision)
    else:
        value = before.value if left == "before" else b"{"
        await state.set(POINTER, value or b"", revision=moved.revision)
    async with AsyncExitStack() as stack:
        opening = open_process(Config(nats_url=scene.server.url, health_port=-1), "keeper", stack, keeping=True)
        task = asyncio.create_task(opening)
        await until(lambda: named(scene.js, identity), 20.0)
        await Vouches(scene.js, "main").give("watcher", "watcher-1", identity)
        await task
    assert (await open_log(scene.js, "main")).identity == identity


async def named(js: JetStream, identity: LogIdentity) -> bool:
    with suppress(BusError):
        pointer = await pointer_of(js, "main")
        return pointer is not None and pointer.identity("main") == identity
    return False
