"""Three servers, three replicas: what differs from one, above all how a retried append is answered."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from kit.nats import commit
from kit.proxy import Proxy
from kit.snapshots import loaded
from kit.threeservers import three_servers
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.errors import UnansweredError
from muster.bus.jetstream import EXPECTED_LAST_OF_SUBJECT, MESSAGE_ID, JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.bus.streams import Limits
from muster.core.reading.watched import WATCHED
from muster.events import subjects
from muster.events.envelope import encode_commit
from muster.ports import FencedError, Snapshot

pytestmark = pytest.mark.slow

THREE = Limits(max_bytes=64 << 20, replicas=3)


@pytest.fixture
async def cluster() -> AsyncIterator[list[EmbeddedServer]]:
    async with three_servers() as servers:
        yield servers


async def leader_of(js: JetStream, stream: str, servers: list[EmbeddedServer]) -> EmbeddedServer:
    info = msgspec.json.decode(await js.ask(f"STREAM.INFO.{stream}"))
    return servers[int(info["cluster"]["leader"][1:])]


async def test_a_log_on_three_replicas(cluster: list[EmbeddedServer]) -> None:
    # One test for all of it: founding a cluster takes seconds.
    urls = [server.url for server in cluster]
    connection = await connect(urls, name="test", reconnect_wait_s=0.05)
    js = JetStream(connection, timeout_s=2.0)

    logs = await asyncio.gather(*(open_log(js, "main", create=True, limits=THREE) for _ in range(4)))
    assert {log.identity.generation for log in logs} == {1}
    assert len({log.identity.log_id for log in logs}) == 1
    log = logs[0]
    await open_stores(js, "main", create=True, limits=THREE)
    stream = subjects.log_stream("main", 1)

    # The same append many times at once: some meet the first one on its way through the replicas.
    for number, shard in enumerate([shard for shard in WATCHED if shard != "pods"][:10], start=50):
        one = commit(number, shard=shard)
        outcomes = await asyncio.gather(*(each.append(one, expected=0) for each in logs))
        assert len(set(outcomes)) == 1
    assert await log.end() == 11

    # Two writers, one wins.
    raced = await asyncio.gather(
        log.append(commit(1), expected=0), logs[1].append(commit(2), expected=0), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in raced) == ["FencedError", "int"]
    seq = next(outcome for outcome in raced if isinstance(outcome, int))
    with pytest.raises(FencedError):
        await log.append(commit(3), expected=0)

    # Why no message id is sent: three replicas answer a repetition as a duplicate, one refuses the expectation.
    subject = subjects.log_subject("main", 1, "actuator", "0")
    headers = {MESSAGE_ID: "same", EXPECTED_LAST_OF_SUBJECT: "0"}
    once = await js.publish(subject, encode_commit(commit(1, stage="actuator")), headers)
    twice = await js.publish(subject, encode_commit(commit(1, stage="actuator")), headers)
    assert once is not None
    assert twice is not None
    assert (twice.duplicate, twice.seq, twice.error) == (True, once.seq, None)

    # An acknowledgement lost on the way.
    async with Proxy(cluster[0].port) as proxy:
        far_connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05)
        far = JetStreamLog(JetStream(far_connection, timeout_s=0.5), log.identity)
        seq = await far.append(commit(10), expected=seq)
        lost = proxy.lose_answer(b'"seq"')
        assert await far.append(commit(11), expected=seq) == seq + 1
        assert lost.is_set()
        seq += 1
        await far_connection.close()

    lease = JetStreamLease(js, log.identity, "watcher", "pods", "one")
    assert await lease.acquire()
    snapshots = JetStreamSnapshots(js, log.identity, warn=lambda _: None)
    saved = Snapshot(
        log_id=log.identity.log_id, stage="watcher", shard="pods", seq=seq, schema="s", body=bytes(600_000)
    )
    assert await snapshots.save(saved)
    assert await loaded(snapshots, "watcher", "pods") == saved

    # The leader of the stream dies under load, and the rest goes on without losing or doubling a commit.
    written: list[int] = []
    got: list[str] = []

    async def write() -> None:
        expected = seq
        for number in range(100, 1_000_000):
            expected = await log.append(commit(number), expected=expected)
            written.append(expected)

    async def follow() -> None:
        async for batch in log.follow(0):
            got.extend(stored.commit.commit_id for stored in batch)

    tasks = [asyncio.create_task(write()), asyncio.create_task(follow())]
    await until(lambda: len(written) > 50)
    await (await leader_of(js, stream, cluster)).kill()
    before = len(written)
    await until(lambda: len(written) > before + 50 or tasks[0].done(), timeout_s=60)
    tasks[0].cancel()
    await asyncio.wait({tasks[0]})
    assert tasks[0].cancelled()

    async def all_read() -> bool:
        # What was on its way when the writer was cancelled may be stored late.
        return len(got) == await log.end() or tasks[1].done()

    await until(all_read, timeout_s=60)
    assert not tasks[1].done(), tasks[1].exception()
    tasks[1].cancel()
    assert len(set(got)) == len(got)
    assert written == sorted(set(written))
    assert all(got[at - 1].startswith("watcher-") for at in written)
    assert await renewed(lease)
    await connection.close()


async def renewed(lease: JetStreamLease) -> bool:
    try:
        return await lease.renew() or await until(lease.acquire, timeout_s=60)
    except UnansweredError:
        return False
