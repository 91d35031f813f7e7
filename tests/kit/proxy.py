"""A TCP proxy on loopback between a client and a server, to make the network misbehave."""

import asyncio
from collections.abc import Callable
from typing import Self


class Proxy:
    """Passes bytes to 127.0.0.1:``target`` until told otherwise. Faults hold for present and new connections."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay_s = 0.0
        """Every chunk to the client waits this long."""
        self.blackhole = False
        """Bytes of either direction vanish, connections stay open."""
        self.refuse = False
        """New connections are closed at once."""
        self.answers: Callable[[bytes], bytes] | None = None
        """What becomes of each chunk the server sends."""
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def cut(self) -> None:
        """Break every connection, whatever is on its way."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def lose_answer(self, holding: bytes) -> asyncio.Event:
        """Lose the next chunk from the server that holds these bytes; the event is set when it happened."""
        lost = asyncio.Event()

        def filtered(chunk: bytes) -> bytes:
            if holding not in chunk:
                return chunk
            lost.set()
            self.answers = None
            return b""

        self.answers = filtered
        return lost

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refuse:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for task in (
            asyncio.create_task(self._pass(reader, far_writer, to_client=False)),
            asyncio.create_task(self._pass(far_reader, writer, to_client=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                if to_client and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if to_client and self.answers is not None:
                    chunk = self.answers(chunk)
                if not self.blackhole:
                    writer.write(chunk)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
