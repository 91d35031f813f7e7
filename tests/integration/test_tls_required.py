"""TLS that is configured is required: a server without TLS learns neither user nor signature, at no time."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import trustme

from kit.nats import SMALL, Notices
from kit.production import Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.errors import ConnectError
from muster.bus.jetstream import JetStream
from muster.bus.subscribing import follow
from muster.bus.tlsclient import PlainServerError
from muster.runtime.connecting import connect_bus
from muster.runtime.natsaccounts import default, inbox
from muster.runtime.pairing import record_cluster
from muster_cli.commands.login import whose
from muster_cli.exits import CliError


class Plain:
    """A server that says the first line of NATS without TLS, and keeps what a client sends next."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0
        self.greeted = 0

    async def serve(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":8388608,"version":"2.12.0","nonce":"abc"}\r\n')
        self.greeted += 1
        while chunk := await reader.read(4096):
            self.heard += chunk
            writer.write(b"PONG\r\n")
        writer.close()


@pytest.fixture
async def plain() -> AsyncIterator[Plain]:
    plain = Plain()
    async with await plain.serve():
        yield plain


def context() -> ssl.SSLContext:
    trusted = ssl.create_default_context()
    trustme.CA().configure_trust(trusted)
    return trusted


@pytest.mark.parametrize("way", ["ca", "name", "scheme"])
async def test_a_plain_server_is_refused_at_once_and_hears_nothing(plain: Plain, way: str) -> None:
    scheme = "tls" if way == "scheme" else "nats"
    async with asyncio.timeout(20):
        with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{plain.port} speaks no TLS.*requires TLS"):
            await connect(
                f"{scheme}://127.0.0.1:{plain.port}",
                name="tester",
                tls=context() if way == "ca" else None,
                server_name="nats.example" if way == "name" else "",
                timeout_s=100,
            )
    assert plain.heard == b""


async def test_an_outsiders_reader_requires_it_too(plain: Plain, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    async with (
        asyncio.timeout(20),
        aclosing(follow(f"nats://127.0.0.1:{plain.port}", ca_file=str(tmp_path / "ca.crt"))) as events,
    ):
        with pytest.raises(PlainServerError, match="speaks no TLS"):
            await anext(events)
    assert plain.heard == b""


async def test_a_server_that_comes_back_plain_is_passed_until_the_right_one_is_there(tmp_path: Path) -> None:
    keys = Keys(tmp_path, default())
    server = ProductionNats(keys)
    await server.start()
    notices = Notices()
    config = server.config("gateway")
    connection = await connect(
        server.url,
        name="tester",
        nkey_seed=Path(config.nats_nkey_file),
        tls=ssl.create_default_context(cafile=config.nats_ca_file),
        inbox_prefix=inbox("gateway"),
        notice=notices,
    )
    await server.stop()
    impostor = Plain()
    async with await impostor.serve(server.port):
        await until(lambda: impostor.greeted >= 2)
    assert impostor.heard == b""
    assert not connection.connected
    assert any("speaks no TLS" in str(fields["error"]) for fields in notices.of("bus_connection_error"))
    await server.start()
    await until(lambda: connection.connected)
    await connection.close()
    await server.stop()


async def test_login_tells_whose_server_it_is(tmp_path: Path) -> None:
    keys = Keys(tmp_path, default())
    async with ProductionNats(keys) as server:
        admin = await connect_bus(server.config("admin"), "admin", Notices())
        await open_stores(JetStream(admin), "main", create=True, limits=SMALL)
        connection = await connect_bus(server.config("cli"), "cli", Notices())
        js = JetStream(connection)
        certificate = ssl.PEM_cert_to_DER_cert((tmp_path / "tls.crt").read_text())
        shown = f"  certificate SHA-256 {hashlib.sha256(certificate).hexdigest()}"
        assert await whose(js, "main", "u1") == [shown, "  cell main: no log yet"]
        log = await open_log(JetStream(admin), "main", create=True, limits=SMALL, at=1)
        await record_cluster(JetStream(admin), log.identity, "u1", "https://one:6443")
        cell = f"  cell main: log {log.identity.log_id}, generation 1"
        cluster = "  cluster https://one:6443, uid u1"
        assert await whose(js, "main", "u1") == await whose(js, "main", "") == [shown, cell, cluster]
        with pytest.raises(CliError, match=r"belongs to cluster https://one:6443, uid u1.*with uid u2"):
            await whose(js, "main", "u2")
        await connection.close()
        await admin.close()
