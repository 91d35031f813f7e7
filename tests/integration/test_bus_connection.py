"""Connecting to a real server, and being told why not."""

import asyncio
from pathlib import Path

import pytest

from kit.nats import SMALL, Notices, commit
from kit.proxy import Proxy
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect, no_responders
from muster.bus.errors import BusError, ClosedError, ConnectError, ForbiddenError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer, free_port

ACCOUNTS = """
accounts {
  MUSTER {
    jetstream: enabled
    users: [
      { user: all, password: secret }
      { user: reader, password: secret, permissions: {
          publish: { deny: "muster.log.>" }
      } }
      { user: mute, password: secret, permissions: {
          publish: { deny: "$JS.API.STREAM.>" }
      } }
      { user: deaf, password: secret, permissions: {
          subscribe: { allow: "_MINE.>" }
      } }
    ]
  }
}
"""


async def test_nobody_there_is_said_with_the_address_and_what_to_do() -> None:
    port = free_port()
    with pytest.raises(
        ConnectError, match=rf"127\.0\.0\.1:{port} as tester within 0\.5 s: .*refused.*check the address"
    ):
        await connect(f"nats://127.0.0.1:{port}", name="tester", timeout_s=0.5)


async def test_somebody_who_never_answers_is_given_up_in_time(nats_server: EmbeddedServer) -> None:
    async with Proxy(nats_server.port) as proxy:
        proxy.blackhole = True
        with pytest.raises(ConnectError, match="within"):
            await connect(proxy.url, name="tester", timeout_s=0.3)


async def test_an_address_that_is_none_is_said() -> None:
    with pytest.raises(ConnectError, match="nats://"):
        await connect("nats://:0", name="tester", timeout_s=0.5)


async def test_a_server_that_takes_only_small_messages_is_refused() -> None:
    async with EmbeddedServer(max_payload="64KB") as server:
        with pytest.raises(ConnectError, match=r"65536 bytes and 1048576 are needed; set max_payload"):
            await connect(server.url, name="tester")


async def test_wrong_credentials_are_said_at_once_and_not_shown(nats_server: EmbeddedServer) -> None:
    async with EmbeddedServer(config=ACCOUNTS) as server:
        async with asyncio.timeout(30):
            with pytest.raises(ConnectError, match=r"(?i)authorization.*check the credentials") as caught:
                await connect(f"nats://all:hunter2@127.0.0.1:{server.port}", name="tester", timeout_s=100)
        assert "hunter2" not in str(caught.value)


async def test_a_missing_credentials_file_is_said(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"no credentials file .*missing\.creds"):
        await connect(nats_server.url, name="tester", credentials=tmp_path / "missing.creds", timeout_s=1)


async def test_a_forbidden_append_fails_fast_and_names_the_subject() -> None:
    async with EmbeddedServer(config=ACCOUNTS) as server:
        owner = await connect(f"nats://all:secret@127.0.0.1:{server.port}", name="owner")
        log = await open_log(JetStream(owner), "main", create=True, limits=SMALL)
        notices = Notices()
        reader = await connect(f"nats://reader:secret@127.0.0.1:{server.port}", name="reader", notice=notices)
        read_only = JetStreamLog(JetStream(reader, timeout_s=100), log.identity)
        assert await read_only.end() == 1
        async with asyncio.timeout(30):
            with pytest.raises(ForbiddenError, match=r"muster\.log\.main\.1\.watcher\.pods") as caught:
                await read_only.append(commit(1), expected=0)
        assert caught.value.subject == "muster.log.main.1.watcher.pods"
        assert len(notices.of("bus_connection_failed")) == 1
        with pytest.raises(ForbiddenError):
            await read_only.end()
        assert await log.end() == 1
        await owner.close()
        await reader.close()


async def test_a_forbidden_request_fails_fast_and_names_the_subject() -> None:
    async with EmbeddedServer(config=ACCOUNTS) as server:
        mute = await connect(f"nats://mute:secret@127.0.0.1:{server.port}", name="mute")
        with pytest.raises(ForbiddenError, match=r"(?i)\$js\.api\.stream\.info"):
            await open_log(JetStream(mute), "main")
        await mute.close()


async def test_answers_come_to_a_prefix_of_our_own_where_only_that_is_allowed() -> None:
    async with EmbeddedServer(config=ACCOUNTS) as server:
        url = f"nats://deaf:secret@127.0.0.1:{server.port}"
        deaf = await connect(url, name="deaf")
        with pytest.raises(ForbiddenError, match=r"(?i)_inbox"):
            await open_log(JetStream(deaf), "main", create=True, limits=SMALL)
        await deaf.close()
        allowed = await connect(url, name="deaf", inbox_prefix="_MINE")
        log = await open_log(JetStream(allowed), "main", create=True, limits=SMALL)
        batches = log.follow(0)
        assert [stored.seq for stored in await anext(aiter(batches))] == [1]
        await allowed.close()


async def test_being_thrown_out_for_good_ends_everything_that_waits() -> None:
    async with EmbeddedServer(config=ACCOUNTS) as server:
        connection = await connect(f"nats://all:secret@127.0.0.1:{server.port}", name="out", reconnect_wait_s=0.05)
        js = JetStream(connection)
        log = await open_log(js, "main", create=True, limits=SMALL)
        following = asyncio.create_task(_drain(log))
        # The same server comes back and no longer knows us.
        server.config = ACCOUNTS.replace("user: all", "user: nobody")
        await server.restart()
        with pytest.raises(BusError, match=r"(?i)authorization"):
            await log.append(commit(1), expected=0)
        with pytest.raises(BusError, match=r"(?i)authorization"):
            await following
        await connection.close()


async def test_a_server_without_jetstream_is_said(nats_server: EmbeddedServer) -> None:
    connection = await connect(nats_server.url, name="tester", api_prefix="$JS.nowhere.API")
    js = JetStream(connection)
    with pytest.raises(BusError, match="JetStream is off or still starting"):
        await js.ask("INFO", patience_s=0.3)
    await connection.close()


async def test_a_closed_connection_says_so(nats_server: EmbeddedServer) -> None:
    connection = await connect(nats_server.url, name="tester")
    assert no_responders(await connection.call("nobody.listens", b""))
    await connection.subscribe("silence", lambda _: None)
    waiting = asyncio.create_task(connection.call("silence", b"", timeout_s=30))
    await connection.call("nobody.listens", b"")
    assert not waiting.done()
    await connection.close()
    await connection.close()
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await connection.call("a", b"")


async def test_a_server_that_closes_for_good_is_quoted() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":8388608,"headers":true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reader.readuntil(b"PUB ")
        writer.write(b"-ERR 'Account Suspended'\r\n")
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await connect(f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}", name="tester")
    with pytest.raises(UnansweredError, match="connection lost"):
        await connection.call("a", b"", timeout_s=5)
    with pytest.raises(ClosedError, match=r"server closed connection tester: .*account suspended"):
        await connection.call("b", b"", timeout_s=5)
    await connection.close()
    listening.close()
    await listening.wait_closed()


async def test_losing_and_finding_the_server_is_told(nats_server: EmbeddedServer) -> None:
    notices = Notices()
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="tester", reconnect_wait_s=0.05, notice=notices)
        proxy.cut()
        await until(lambda: connection.epoch == 2)
        assert [event for event, _ in notices.told if event in ("bus_disconnected", "bus_reconnected")] == [
            "bus_disconnected",
            "bus_reconnected",
        ]
        await connection.close()


async def test_a_peer_that_stops_reading_is_left_although_much_is_still_buffered() -> None:
    """nats-py alone stays "reconnecting" for ever here: it waits for its buffer to empty before it goes on."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        served.append(writer)
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":8388608,"headers":true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        if connections == 1:
            # Alive, and takes nothing: its buffers fill, then ours.
            await done.wait()
            return
        while chunk := await reader.read(1 << 16):
            if b"PING\r\n" in chunk:
                writer.write(b"PONG\r\n")

    done = asyncio.Event()
    served: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connection = await connect(f"nats://127.0.0.1:{port}", name="tester", reconnect_wait_s=0.05, ping_interval_s=0.1)
    flood = [asyncio.create_task(connection.call("a", bytes(4_000_000), timeout_s=20)) for _ in range(15)]
    await until(lambda: connections == 2 and connection.connected)
    for outcome in await asyncio.gather(*flood, return_exceptions=True):
        assert isinstance(outcome, UnansweredError)
    await connection.close()
    done.set()
    listening.close()
    for writer in served:
        writer.transport.abort()
        await asyncio.wait_for(asyncio.gather(writer.wait_closed(), return_exceptions=True), 5)


async def test_stores_of_a_cell_can_be_opened_by_several_at_once(nats_server: EmbeddedServer, cell: str) -> None:
    connections = [await connect(nats_server.url, name=f"opener{index}") for index in range(4)]
    await asyncio.gather(*(open_stores(JetStream(each), cell, create=True, limits=SMALL) for each in connections))
    for each in connections:
        await each.close()


async def _drain(log: JetStreamLog) -> None:
    async for _ in log.follow(0):
        pass
