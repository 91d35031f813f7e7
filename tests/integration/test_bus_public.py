"""What outsiders read, and what is put aside: the public stream and the quarantine."""

import asyncio

import pytest

from kit.nats import SMALL, commit, new_cell
from kit.proxy import Proxy
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import Connection, connect
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.bus.public import CE_ID, PublicPublisher, Published
from muster.bus.quarantine import CAUSE, Quarantine
from muster.bus.server import EmbeddedServer
from muster.events import subjects


async def stored(js: JetStream, cell: str) -> list[str]:
    """ce-ids of a cell in the public stream, in order."""
    found, seq = [], 1
    while message := await js.next(subjects.PUBLIC_STREAM, subjects.public_cell_subjects(cell), seq):
        found.append(message.headers[CE_ID])
        seq = message.seq + 1
    return found


async def publish(publisher: PublicPublisher, cell: str, start: int, count: int) -> None:
    for number in range(start, start + count):
        subject = subjects.public_subject(cell, "quota_reserved", "team-a", f"job.{number}")
        await publisher.publish(subject, {CE_ID: f"{cell}-1-{number}-0", "ce-type": "x"}, b"{}")


def ids(cell: str, start: int, count: int) -> list[str]:
    return [f"{cell}-1-{number}-0" for number in range(start, start + count)]


@pytest.fixture
async def ready(js: JetStream, cell: str) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    await open_log(js, cell, create=True, limits=SMALL)


@pytest.mark.usefixtures("ready")
async def test_events_are_published_in_order_and_the_last_one_is_known(js: JetStream, cell: str) -> None:
    other = new_cell()
    publisher = PublicPublisher(js, cell, window=16)
    assert await publisher.resume() == Published(last="", settled="")
    await publish(publisher, cell, 1, 200)
    await publish(PublicPublisher(js, other), other, 1, 1)
    assert await publisher.settle() == f"{cell}-1-200-0"
    assert await stored(js, cell) == ids(cell, 1, 200)
    await publish(publisher, cell, 201, 1)
    await publisher.settle()
    # Another process, and other cells in between: what was settled is certain, what was last may have gaps before it.
    assert await PublicPublisher(js, cell).resume() == Published(f"{cell}-1-201-0", f"{cell}-1-200-0")


@pytest.mark.usefixtures("ready")
async def test_a_stream_without_a_message_left_goes_on_where_it_was(js: JetStream, cell: str) -> None:
    publisher = PublicPublisher(js, cell)
    await publisher.resume()
    await publisher.keep()
    await publish(publisher, cell, 1, 20)
    settled = await publisher.settle()
    await publisher.keep()
    await js.ask(f"STREAM.PURGE.{subjects.PUBLIC_STREAM}", {"filter": subjects.public_cell_subjects(cell)})
    assert await stored(js, cell) == []
    again = PublicPublisher(js, cell)
    assert await again.resume() == Published(last="", settled=settled)
    await publish(again, cell, 21, 1)
    await again.settle()
    await again.keep()
    assert await PublicPublisher(js, cell).resume() == Published(f"{cell}-1-21-0", settled)


@pytest.mark.usefixtures("ready")
async def test_published_twice_it_is_stored_once(js: JetStream, cell: str) -> None:
    for _ in range(2):
        publisher = PublicPublisher(js, cell)
        await publish(publisher, cell, 1, 20)
        await publisher.settle()
    assert await stored(js, cell) == ids(cell, 1, 20)


@pytest.mark.usefixtures("ready")
async def test_no_event_is_lost_when_answers_and_connections_are(
    nats_server: EmbeddedServer, js: JetStream, cell: str
) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05)
        publisher = PublicPublisher(JetStream(connection), cell, window=8)
        for round_ in range(6):
            await publish(publisher, cell, 1 + round_ * 30, 30)
            proxy.cut()
        await publisher.settle()
        await connection.close()
    # At least once: the order of first appearance may suffer from what had to be sent again.
    assert sorted(set(await stored(js, cell))) == sorted(ids(cell, 1, 180))


@pytest.mark.usefixtures("ready")
async def test_after_a_crash_nothing_before_the_settled_event_is_missing(
    nats_server: EmbeddedServer, js: JetStream, cell: str
) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05)
        publisher = PublicPublisher(JetStream(connection), cell, window=8)
        await publish(publisher, cell, 1, 50)
        await connection.close()  # With some of them neither acknowledged nor known to be lost.
    resumed = await PublicPublisher(js, cell).resume()
    there = await stored(js, cell)
    assert resumed.last == there[-1]
    settled = int(resumed.settled.split("-")[-2])
    assert settled >= 50 - 2 * 8
    assert there[:settled] == ids(cell, 1, settled)


@pytest.mark.usefixtures("ready")
async def test_no_more_than_the_window_is_on_its_way(nats_server: EmbeddedServer, js: JetStream, cell: str) -> None:
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05)
        publisher = PublicPublisher(JetStream(connection), cell, window=5)
        proxy.answers = lambda chunk: b"" if b'"seq"' in chunk else chunk
        publishing = asyncio.create_task(publish(publisher, cell, 1, 20))

        async def five_there() -> bool:
            return len(await stored(js, cell)) == 5

        await until(five_there)
        assert not publishing.done()
        assert await stored(js, cell) == ids(cell, 1, 5)
        proxy.answers = None
        proxy.cut()
        await publishing
        await publisher.settle()
        await connection.close()
    assert set(await stored(js, cell)) == set(ids(cell, 1, 20))


@pytest.mark.usefixtures("ready")
async def test_an_event_that_can_never_be_published_is_an_error(connection: Connection, cell: str) -> None:
    publisher = PublicPublisher(JetStream(connection), cell)
    with pytest.raises(BusError, match="max_payload"):
        await publisher.publish(subjects.public_subject(cell, "e", "n", "m"), {CE_ID: "x"}, bytes(9 << 20))


@pytest.mark.usefixtures("ready")
async def test_quarantine_keeps_the_input_and_the_reason(js: JetStream, cell: str) -> None:
    quarantine = Quarantine(js, cell)
    seq = await quarantine.put("watcher", b"\xff\x00bad", "not a commit:\n  expected object", {"from": "x"})
    kept = await js.get(subjects.quarantine_stream(cell), seq)
    assert kept is not None
    assert kept.data == b"\xff\x00bad"
    assert kept.headers == {CAUSE: "not a commit: expected object", "from": "x"}
    assert kept.subject == subjects.quarantine_subject(cell, "watcher")


async def test_quarantine_without_its_stream_says_so(js: JetStream, cell: str) -> None:
    with pytest.raises(BusError, match=subjects.quarantine_stream(cell)):
        await Quarantine(js, cell).put("watcher", b"x", "bad")


@pytest.mark.usefixtures("ready")
async def test_the_log_is_not_part_of_what_is_public(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await log.append(commit(1), expected=0)
    assert await stored(js, cell) == []
