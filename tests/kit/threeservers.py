"""Three nats-servers on loopback that are one cluster, as in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from kit.nats import SMALL
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer, free_port
from muster.runtime.connecting import connect_bus


@asynccontextmanager
async def three_servers(sync_interval: str = "2m") -> AsyncIterator[list[EmbeddedServer]]:
    """They have found each other, and a stream on all three can be made."""
    routes = [free_port() for _ in range(3)]
    urls = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    servers = [
        EmbeddedServer(
            name=f"n{index}",
            sync_interval=sync_interval,
            config=f"cluster {{ name: test, listen: 127.0.0.1:{routes[index]}, routes: [{urls}] }}\n",
        )
        for index in range(3)
    ]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        connection = await connect(servers[0].url, name="founder")
        try:
            await _ready(JetStream(connection))
        finally:
            await connection.close()
        yield servers


@asynccontextmanager
async def production(folder: Path, disks: Sequence[Path] = ()) -> AsyncIterator[list[ProductionNats]]:
    """Three servers as in production, with the shipped accounts, and a cell on all three; ``disks``: their volumes."""
    keys, routes = Keys(folder, (FILES / "accounts.conf").read_text()), (free_port(), free_port(), free_port())
    servers = [
        ProductionNats(keys, name=f"nats-{index}", route=route, routes=routes, data=disks[index] if disks else None)
        for index, route in enumerate(routes)
    ]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        connection = await connect_bus(servers[0].config("admin", url=urls_of(servers)), "admin", lambda _, __: None)
        stack.push_async_callback(connection.close)
        js = JetStream(connection)
        await _ready(js)
        limits = replace(SMALL, replicas=3)
        await open_stores(js, "main", create=True, limits=limits)
        await open_log(js, "main", create=True, limits=limits)
        yield servers


def urls_of(servers: Sequence[ProductionNats]) -> str:
    """Their addresses, as nats_url has several."""
    return ",".join(server.url for server in servers)


async def _ready(js: JetStream) -> None:
    async def three() -> bool:
        try:
            await js.ask("STREAM.CREATE.PROBE", {"name": "PROBE", "num_replicas": 3, "subjects": ["probe"]})
        except BusError:
            return False
        return True

    await until(three, timeout_s=60, every_s=0.1)
    await js.delete("PROBE")
