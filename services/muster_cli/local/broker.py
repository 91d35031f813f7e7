"""The nats-server of ``muster up``: on the usual port when free, started again when the server dies or is stuck."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from muster.bus.errors import PortTakenError
from muster.bus.server import EmbeddedServer
from muster.model.language import say

USUAL_PORT = 4222
"""Where NATS clients look first, so that ``nats sub`` needs no address."""

LOOK_S = 0.5


@contextlib.asynccontextmanager
async def broker(store: Path, port: int | None, note: Callable[[str], None]) -> AsyncIterator[EmbeddedServer]:
    """A running server; ``port`` None takes the usual port, or any port when that port is taken. Raises BusError."""
    try:
        server = await _started(store, USUAL_PORT if port is None else port)
    except PortTakenError:
        if port is not None:
            raise
        note(say("port {usual_port} is taken: NATS gets another port here", usual_port=USUAL_PORT))
        server = await _started(store, 0)
    try:
        yield server
    finally:
        await server.stop()


async def _started(store: Path, port: int) -> EmbeddedServer:
    server = EmbeddedServer(port=port, data=store, data_option="--data", port_option="--port")
    await server.start()
    return server


async def keep_alive(server: EmbeddedServer, note: Callable[[str], None]) -> None:
    """Start the server again whenever it has ended, or could not write and has room by now; for ever."""
    while True:
        await asyncio.sleep(LOOK_S)
        if server.pid is None:
            note(say("nats-server has ended; starting it again"))
            await server.restart()
        elif server.gave_up():
            note(say("the disk of nats-server was full and has room again; starting it again, so that it stores"))
            await server.restart()
