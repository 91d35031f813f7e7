"""Three nats-servers on loopback that are one cluster, as in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from kit.waiting import until
from muster.bus.connection import connect
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer, free_port


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


async def _ready(js: JetStream) -> None:
    async def three() -> bool:
        try:
            await js.ask("STREAM.CREATE.PROBE", {"name": "PROBE", "num_replicas": 3, "subjects": ["probe"]})
        except BusError:
            return False
        return True

    await until(three, timeout_s=60, every_s=0.1)
    await js.delete("PROBE")
