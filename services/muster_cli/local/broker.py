"""The nats-server of ``muster up``: on the usual port when that is free, started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from muster.bus.server import EmbeddedServer, is_free

USUAL_PORT = 4222
"""Where NATS clients look first, so that ``nats sub`` needs no address."""

LOOK_S = 0.5


@contextlib.asynccontextmanager
async def broker(store: Path, port: int | None, note: Callable[[str], None]) -> AsyncIterator[EmbeddedServer]:
    """A running server; ``port`` None takes the usual one, or any when that is taken. Raises BusError."""
    chosen = port
    if chosen is None:
        chosen = USUAL_PORT if is_free(USUAL_PORT) else 0
        if not chosen:
            note(f"port {USUAL_PORT} is taken: NATS gets another one here")
    server = EmbeddedServer(port=chosen, data=store, data_option="--data", port_option="--port")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def keep_alive(server: EmbeddedServer, note: Callable[[str], None]) -> None:
    """Start the server again whenever it has ended, for ever."""
    while True:
        await asyncio.sleep(LOOK_S)
        if server.pid is None:
            note("nats-server has ended; starting it again")
            await server.restart()
