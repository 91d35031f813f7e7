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
        self.holding: Held | None = None
        """Where bytes to the server are kept back."""
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

    def hold(self) -> "Held":
        """Keep back what is sent to the server from now on, until it is released."""
        self.holding = Held(self)
        return self.holding

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
            asyncio.create_task(self._pass(reader, far_writer, writer, to_client=False)),
            asyncio.create_task(self._pass(far_reader, writer, writer, to_client=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        *,
        to_client: bool,
    ) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                if to_client and self.holding is not None:
                    self.holding.heard(client)
                if not to_client and self.holding is not None:
                    await self.holding.keep(client)
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


class Held:
    """What a proxy keeps back: requests that were sent and have not arrived."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._open = asyncio.Event()
        self._kept: set[asyncio.StreamWriter] = set()
        self._unanswered: set[asyncio.StreamWriter] = set()

    @property
    def count(self) -> int:
        """Connections on which something was sent and kept back."""
        return len(self._kept)

    def answered(self) -> bool:
        """Whether the server has answered on each of them since they were released."""
        return self._open.is_set() and not self._unanswered

    def release(self) -> None:
        """Let everything arrive that was kept back, however late."""
        self._unanswered = set(self._kept)
        self._open.set()

    async def keep(self, client: asyncio.StreamWriter) -> None:
        """Return when it may pass."""
        if not self._open.is_set():
            self._kept.add(client)
            await self._open.wait()

    def heard(self, client: asyncio.StreamWriter) -> None:
        self._unanswered.discard(client)
