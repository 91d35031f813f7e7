"""Appending to a real server over a network that loses answers, stalls and breaks."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from kit.nats import SMALL, Notices, commit
from kit.proxy import Proxy
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.connection import Connection, connect
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer
from muster.events import subjects
from muster.ports import FencedError, LogFullError, LogGoneError


class Far(NamedTuple):
    """A log reached through a proxy, and the same log reached directly."""

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
        connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05, ping_interval_s=0.2, notice=notices)
        log = JetStreamLog(JetStream(connection, timeout_s=0.3), direct.identity)
        # The first append of a connection looks whose log it is; the faults are for what comes after.
        await log.append(commit(0, stage="warm-up"), expected=0)
        yield Far(log, direct, proxy, connection, notices)
        await connection.close()


async def test_an_answer_lost_on_the_way_does_not_double_the_commit(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    lost = far.proxy.lose_answer(b'"seq"')
    second = await far.log.append(commit(2), expected=first)
    assert lost.is_set()
    assert await far.log.append(commit(3), expected=second) == second + 1
    assert await far.direct.end() == second + 1


async def test_an_answer_lost_with_the_connection_does_not_double_the_commit(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    lost = far.proxy.lose_answer(b'"seq"')
    appending = asyncio.create_task(far.log.append(commit(2), expected=first))
    await lost.wait()
    far.proxy.cut()
    assert await appending == first + 1
    assert await far.direct.end() == first + 1
    assert far.connection.epoch > 1


async def test_a_commit_stored_unheard_is_lost_to_a_leader_that_built_on_it(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    # This answer, and nothing that a connection asks that was lost on a busy machine meanwhile.
    lost = far.proxy.lose_answer(b'"seq":%d' % (first + 1))
    appending = asyncio.create_task(far.log.append(commit(2), expected=first))
    await lost.wait()
    far.proxy.refuse = True
    far.proxy.cut()
    await far.direct.append(commit(3), expected=first + 1)
    far.proxy.refuse = False
    with pytest.raises(FencedError, match="watcher-3"):
        await appending


async def test_a_paused_leader_is_fenced_when_it_comes_back(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    far.proxy.refuse = True
    far.proxy.cut()
    paused = asyncio.create_task(far.log.append(commit(2), expected=first))
    await until(lambda: not far.connection.connected)
    await far.direct.append(commit(3), expected=first)
    far.proxy.refuse = False
    with pytest.raises(FencedError, match="watcher-3"):
        await paused
    assert await far.direct.end() == first + 1


async def test_an_append_waits_out_a_broken_connection(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    far.proxy.refuse = True
    far.proxy.cut()
    await until(lambda: not far.connection.connected)
    appending = asyncio.create_task(far.log.append(commit(2), expected=first))
    accepted = far.proxy.accepted
    await until(lambda: far.proxy.accepted > accepted + 2)
    assert not appending.done()
    far.proxy.refuse = False
    assert await appending == first + 1


async def test_an_append_survives_a_network_that_swallows_everything(far: Far) -> None:
    first = await far.log.append(commit(1), expected=0)
    far.proxy.blackhole = True
    appending = asyncio.create_task(far.log.append(commit(2), expected=first))
    # Nobody closes the connection: only the silence to its pings gives it away.
    await until(lambda: not far.connection.connected)
    far.proxy.blackhole = False
    far.proxy.cut()
    assert await appending == first + 1
    assert await far.direct.end() == first + 1


async def test_slow_answers_only_make_it_slow(far: Far) -> None:
    far.proxy.delay_s = 0.1
    seq = 0
    for number in range(3):
        seq = await far.log.append(commit(number), expected=seq)
    assert await far.direct.end() == seq == 5


async def test_the_log_of_another_life_of_the_server_is_not_written_to() -> None:
    async with EmbeddedServer() as server:
        connection = await connect(server.url, name="test", reconnect_wait_s=0.05)
        js = JetStream(connection)
        log = await open_log(js, "main", create=True, limits=SMALL)
        seq = await log.append(commit(1), expected=0)
        await server.stop()
        # The same address, the same stream name, nothing of the old data.
        async with EmbeddedServer(port=server.port):
            await until(lambda: connection.epoch == 2)
            other = await open_log(js, "main", create=True, limits=SMALL)
            assert other.identity.log_id != log.identity.log_id
            # As far as the subject goes the expectation is right.
            assert await other.append(commit(7), expected=0) == seq
            with pytest.raises(LogGoneError, match=other.identity.log_id):
                await log.append(commit(2), expected=seq)
            assert await other.end() == seq
            await connection.close()


async def test_a_log_made_anew_under_the_same_name_is_not_written_to(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await log.append(commit(1, stage="actuator"), expected=0)
    await js.delete(subjects.log_stream(cell, 1))
    await js.delete(f"KV_{subjects.state_bucket(cell)}")
    other = await open_log(js, cell, create=True, limits=SMALL)
    assert other.identity.generation == 1
    # The same connection as before, and an expectation that the new stream meets.
    await other.append(commit(1, stage="preemptor"), expected=0)
    with pytest.raises(LogGoneError, match=other.identity.log_id):
        await log.append(commit(1), expected=0)
    assert await other.end() == 2


async def test_a_full_stream_says_what_to_do_and_takes_commits_again_after_room_was_made(
    js: JetStream, cell: str
) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    name = subjects.log_stream(cell, 1)
    info = await js.info(name)
    assert info is not None
    await js.ask(f"STREAM.UPDATE.{name}", {**info.config, "max_bytes": 1000})
    seq = 0
    with pytest.raises(LogFullError, match="max_bytes"):
        for number in range(20):
            seq = await log.append(commit(number), expected=seq)
    assert await log.end() == max(seq, 1)
    await js.ask(f"STREAM.UPDATE.{name}", info.config)
    assert await log.append(commit(50), expected=seq) == max(seq, 1) + 1


async def test_a_sealed_log_sends_its_writer_to_the_next_generation(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    seq = await log.append(commit(1), expected=0)
    name = subjects.log_stream(cell, 1)
    info = await js.info(name)
    assert info is not None
    await js.ask(f"STREAM.UPDATE.{name}", {**info.config, "sealed": True})
    with pytest.raises(LogGoneError, match="sealed"):
        await log.append(commit(2), expected=seq)


async def test_a_commit_the_server_can_never_take_is_refused_before_it_is_sent(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    huge = commit(1, shard="x" * (9 << 20))
    with pytest.raises(BusError, match="max_payload"):
        await log.append(huge, expected=0)
    assert await log.append(commit(1), expected=0) == 2


async def test_usage_tells_how_full_the_log_is_and_the_time_of_the_broker(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await log.append(commit(1), expected=0)
    usage = await log.usage()
    assert (usage.last_seq, usage.messages, usage.max_bytes) == (2, 2, SMALL.max_bytes)
    assert 100 < usage.bytes < 10_000
    later = await log.usage()
    assert 0 <= later.broker_ms - usage.broker_ms < 60_000
    assert usage.broker_ms > 1_700_000_000_000
