"""Following a log on a real server: nothing missing, nothing twice, and an end when there is nothing to follow."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from kit.nats import SMALL, Notices, commit
from kit.proxy import Proxy
from kit.waiting import until
from muster.bus import reader
from muster.bus.cell import open_log
from muster.bus.connection import Connection, connect
from muster.bus.errors import BusError, ClosedError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.reader import PULL
from muster.bus.server import EmbeddedServer
from muster.bus.streams import log_config
from muster.events import subjects
from muster.events.envelope import Stored, encode_commit, genesis_commit
from muster.events.system import Genesis
from muster.ports import LogGapError, LogGoneError, LogIdentity

HEARTBEAT_S = 4.0
"""With 2.5 times as long without a word a connection counts as silent: longer than anything here may be held up."""


class Follower:
    """Follows in the background; ``error`` is what ended it."""

    def __init__(self, log: JetStreamLog, after: int = 0) -> None:
        self.got: list[Stored] = []
        self.caught_up = 0
        self.error: Exception | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.task = asyncio.create_task(self._follow(log, after))

    async def _follow(self, log: JetStreamLog, after: int) -> None:
        try:
            async for batch in log.follow(after):
                self.got += batch
                self.caught_up += not batch
                await self.go_on.wait()
        except (LogGoneError, LogGapError, BusError) as err:
            self.error = err

    def whole(self, end: int) -> bool:
        assert self.error is None, self.error
        assert [stored.seq for stored in self.got] == list(range(1, len(self.got) + 1))
        return len(self.got) == end

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


class Far(NamedTuple):
    """A follower's log reached through a proxy, and the same log reached directly."""

    log: JetStreamLog
    direct: JetStreamLog
    proxy: Proxy
    connection: Connection
    notices: Notices


@pytest.fixture
async def far(nats_server: EmbeddedServer, js: JetStream, cell: str) -> AsyncIterator[Far]:
    direct = await open_log(js, cell, create=True, limits=SMALL)
    notices = Notices()
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="far.away", reconnect_wait_s=0.05, notice=notices)
        log = JetStreamLog(JetStream(connection, timeout_s=0.3), direct.identity, heartbeat_s=HEARTBEAT_S)
        yield Far(log, direct, proxy, connection, notices)
        await connection.close()


async def fill(log: JetStreamLog, start: int, count: int, *, stage: str = "watcher", expected: int = 0) -> int:
    for number in range(start, start + count):
        expected = await log.append(commit(number, stage=stage), expected=expected)
    return expected


async def test_cut_off_again_and_again_a_follower_misses_nothing(far: Far) -> None:
    follower = Follower(far.log)
    seq = 0
    for round_ in range(8):
        seq = await fill(far.direct, round_ * 40, 40, expected=seq)
        if round_ % 2:
            # In the middle of what is being delivered.
            await until(lambda: len(follower.got) > 1)
        far.proxy.cut()
    await until(lambda: follower.whole(seq))
    assert follower.caught_up == 1
    await follower.stop()


async def test_messages_lost_on_the_way_are_fetched_again_and_no_hole_is_reported(far: Far) -> None:
    follower = Follower(far.log)
    await until(lambda: follower.caught_up)
    far.proxy.lose_answer(b'"watcher-3"')
    seq = await fill(far.direct, 0, 10)
    await until(lambda: follower.whole(seq))
    await follower.stop()


async def test_a_silent_connection_is_noticed_and_read_anew(far: Far) -> None:
    follower = Follower(JetStreamLog(JetStream(far.connection, timeout_s=0.3), far.direct.identity, heartbeat_s=0.2))
    await until(lambda: follower.caught_up)
    # Everything from the server is lost, and no connection breaks.
    far.proxy.answers = lambda chunk: b""
    seq, told = await fill(far.direct, 0, 10), len(far.notices.of("bus_reader_restarts"))
    await until(lambda: len(far.notices.of("bus_reader_restarts")) > told)
    assert len(follower.got) == 1
    far.proxy.answers = None
    await until(lambda: follower.whole(seq))
    assert far.connection.epoch == 1
    await follower.stop()


class Absent(JetStream):
    """Three servers, of which one has no copy: a consumer that is given to it is never made, and nobody answers."""

    def __init__(self, connection: Connection, given: int) -> None:
        super().__init__(connection)
        self.given = given
        self.unmade: set[str] = set()

    async def create_consumer(self, stream: str, name: str, after: int, **options: Any) -> str:
        if len(self.unmade) < self.given:
            self.unmade.add(name)
        if name in self.unmade:
            try:
                async with asyncio.timeout(options["timeout_s"] or self.timeout_s):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise UnansweredError(name) from None
        return await super().create_consumer(stream, name, after, **options)


async def test_consumers_that_are_never_made_hold_nobody_for_long(far: Far) -> None:
    """Three in a row: one start in thirty. A rolling restart waits 60 s for a process."""
    seq = await fill(far.direct, 0, 10)
    follower = Follower(JetStreamLog(Absent(far.connection, 3), far.direct.identity))
    await until(lambda: follower.whole(seq), timeout_s=20.0)
    await follower.stop()


async def test_an_idle_follower_stays_with_its_consumer(far: Far) -> None:
    follower = Follower(far.log)
    await until(lambda: follower.caught_up)
    beats = 0

    def count(chunk: bytes) -> bytes:
        nonlocal beats
        beats += chunk.count(b"Idle Heartbeat")
        return chunk

    far.proxy.answers = count
    await until(lambda: beats >= 6)
    assert far.notices.told == []
    await follower.stop()


async def test_a_commit_that_is_read_takes_no_task_of_its_own(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    follower = Follower(log)
    await until(lambda: follower.caught_up)
    made: list[str] = []
    loop = asyncio.get_running_loop()

    def count(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(work.__qualname__)
        return asyncio.Task(work, loop=loop, **options)

    seq = 0
    loop.set_task_factory(count)
    try:
        for number in range(20):
            seq = await log.append(commit(number), expected=seq)
            await until(lambda: follower.whole(seq))  # noqa: B023
    finally:
        loop.set_task_factory(None)
    assert [each for each in made if each.startswith(("StreamReader.read", "StreamReader._wait"))] == []
    await follower.stop()


async def test_requests_that_run_out_are_made_again_on_the_same_consumer(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "EXPIRES_S", 2 * HEARTBEAT_S)
    follower = Follower(far.log)
    await until(lambda: follower.caught_up)
    expired = 0

    def count(chunk: bytes) -> bytes:
        nonlocal expired
        expired += chunk.count(b"408 Request Timeout")
        return chunk

    far.proxy.answers = count
    await until(lambda: expired >= 4)
    seq = await fill(far.direct, 0, 5)
    await until(lambda: follower.whole(seq))
    assert far.notices.told == []
    await follower.stop()


async def test_a_consumer_deleted_by_somebody_is_made_anew(far: Far, js: JetStream, cell: str) -> None:
    follower = Follower(far.log)
    await until(lambda: follower.caught_up)
    stream = subjects.log_stream(cell, 1)
    names = (await js.ask(f"CONSUMER.NAMES.{stream}")).decode()
    name = names.split('"consumers":["')[1].split('"')[0]
    assert name.startswith("far-away-")
    await js.ask(f"CONSUMER.DELETE.{stream}.{name}")
    seq = await fill(far.direct, 0, 5)
    await until(lambda: follower.whole(seq))
    assert [each["cause"] for each in far.notices.of("bus_reader_restarts") if "Consumer Deleted" in str(each["cause"])]
    await follower.stop()


async def test_a_follower_leaves_no_consumer_behind(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    follower = Follower(log)
    await until(lambda: follower.caught_up)
    await follower.stop()

    async def none_left() -> bool:
        return b'"consumers":[]' in await js.ask(f"CONSUMER.NAMES.{subjects.log_stream(cell, 1)}")

    await until(none_left)


async def test_a_slow_follower_holds_the_server_back_instead_of_filling_memory(far: Far) -> None:
    await asyncio.gather(*(fill(far.direct, 0, 500, stage=f"s{index}") for index in range(10)))
    passed, rest, header = 0, b"", b"Nats-Expected-Stream"

    def count(chunk: bytes) -> bytes:
        nonlocal passed, rest
        seen = rest + chunk
        passed += seen.count(header)
        rest = seen[1 - len(header) :]
        return chunk

    far.proxy.answers = count
    follower = Follower(far.log)
    follower.go_on.clear()
    await until(lambda: passed >= 2 * PULL)
    for _ in range(20):
        await far.log.end()
    assert passed == 2 * PULL
    follower.go_on.set()
    await until(lambda: follower.whole(5001))
    await follower.stop()


async def test_a_hole_in_the_stream_stops_the_follower(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    other = f"{cell}x"
    open_to_deletion = {**log_config(other, 1, SMALL), "deny_delete": False, "deny_purge": False}
    await js.create({key: value for key, value in open_to_deletion.items() if value is not False})
    holed = await open_log_unchecked(js, other)
    seq = await fill(holed, 0, 10)
    await js.ask(f"STREAM.MSG.DELETE.{subjects.log_stream(other, 1)}", {"seq": 5})
    follower = Follower(holed)
    await until(lambda: follower.error)
    assert isinstance(follower.error, LogGapError)
    assert "no message 5" in str(follower.error)
    assert [stored.seq for stored in follower.got] == [1, 2, 3, 4]
    beyond = Follower(holed, after=5)
    await until(lambda: len(beyond.got) == seq - 5)
    await beyond.stop()
    assert await log.end() == 1


async def test_a_purged_stream_stops_the_follower(js: JetStream, cell: str) -> None:
    await js.create({"name": subjects.log_stream(cell, 1), "subjects": [subjects.log_subjects(cell, 1)]})
    holed = await open_log_unchecked(js, cell)
    await fill(holed, 0, 10)
    follower = Follower(holed)
    await until(lambda: len(follower.got) == 11)
    await follower.stop()
    await js.ask(f"STREAM.PURGE.{subjects.log_stream(cell, 1)}", {"seq": 8})
    again = Follower(holed, after=3)
    await until(lambda: again.error)
    assert isinstance(again.error, (LogGapError, LogGoneError))
    assert again.got == []


async def test_a_log_replaced_while_we_were_away_is_not_followed(js: JetStream, far: Far, cell: str) -> None:
    await fill(far.direct, 0, 3)
    follower = Follower(far.log)
    await until(lambda: follower.caught_up)
    far.proxy.refuse = True
    far.proxy.cut()
    await js.delete(subjects.log_stream(cell, 1))
    await js.delete(f"KV_{subjects.state_bucket(cell)}")
    other = await open_log(js, cell, create=True, limits=SMALL)
    await fill(other, 0, 10)
    far.proxy.refuse = False
    await until(lambda: follower.error)
    assert isinstance(follower.error, LogGoneError)
    assert other.identity.log_id in str(follower.error)
    assert len(follower.got) == 4


async def test_a_stream_deleted_under_a_follower_and_a_writer_ends_both(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    follower = Follower(log)
    writing = asyncio.create_task(fill(log, 0, 100_000))
    await until(lambda: len(follower.got) > 50)
    await js.delete(subjects.log_stream(cell, 1))
    with pytest.raises(LogGoneError):
        await writing
    await until(lambda: follower.error)
    assert isinstance(follower.error, LogGoneError)


async def test_an_event_of_a_later_build_and_what_is_no_commit_end_no_reader(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    seq = await fill(log, 0, 2)
    subject = subjects.log_subject(cell, 1, "watcher", "pods")
    later = (
        b'{"commit_id":"x","stage":"watcher","shard":"pods","kind":"input","at":1,"events":[{"type":"from_tomorrow"}]}'
    )
    for body in (later, b"hello"):
        await js.publish(subject, body, {})
    follower = Follower(log)
    await until(lambda: follower.error or follower.whole(seq + 2))
    assert follower.error is None
    assert [(each.unknown, bool(each.void)) for each in follower.got[seq:]] == [(("from_tomorrow",), False), ((), True)]
    assert follower.got[-1].body == b"hello"
    assert await log.raw(seq + 1) == later


async def test_closing_the_connection_ends_a_follower(nats_server: EmbeddedServer, js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    own = await connect(nats_server.url, name="own")
    follower = Follower(JetStreamLog(JetStream(own), log.identity))
    await until(lambda: follower.caught_up)
    await own.close()
    await until(lambda: follower.error)
    assert isinstance(follower.error, ClosedError)


@pytest.mark.parametrize("connection_first", [True, False])
async def test_ended_together_with_its_connection_a_follower_leaves_no_failure_unheard(
    nats_server: EmbeddedServer, js: JetStream, cell: str, *, connection_first: bool
) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    own = await connect(nats_server.url, name="own")
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context["message"]))
    followers = [Follower(JetStreamLog(JetStream(own), log.identity))]
    end = await log.append(commit(1), expected=0)
    await until(lambda: followers[0].whole(end))
    if connection_first:
        own.fail(ClosedError("own is closed"))
    task = followers.pop().task
    task.cancel()
    await own.close()
    await asyncio.wait({task})
    del task, own
    gc.collect()
    assert unheard == []


async def open_log_unchecked(js: JetStream, cell: str) -> JetStreamLog:
    """A log on a stream whose configuration allows what a log must not."""
    genesis = genesis_commit(Genesis(log_id="holed", generation=1), 0)
    await js.publish(subjects.log_subject(cell, 1, "genesis", "0"), encode_commit(genesis), {})
    return JetStreamLog(js, LogIdentity(cell=cell, log_id="holed", generation=1))


async def test_what_is_read_while_the_server_answers_is_not_lost(
    nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is of the time when it was made: the reader may be beyond that by the time it hears the answer."""
    monkeypatch.setattr(reader, "QUIET_S", 0.0)
    connection = await connect(nats_server.url, name="follower")
    log = await open_log(JetStream(connection), "overtaken", create=True, limits=SMALL)
    usage, answered = log.usage, asyncio.Event()
    follower = Follower(log)
    await until(lambda: follower.got)

    async def slow() -> Any:
        found = await usage()
        if not answered.is_set():
            await log.append(commit(1), expected=0)
            await until(lambda: len(follower.got) == found.last_seq + 1)
            answered.set()
        return found

    monkeypatch.setattr(log, "usage", slow)
    await answered.wait()
    await log.append(commit(2, stage="queue_sorter"), expected=0)
    await until(lambda: follower.whole(3))
    await follower.stop()
    await connection.close()
