"""A line that is late: every byte arrives, in order, so many seconds after it was sent: a slow controller."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self


class DelayedLine:
    """Passes TCP to 127.0.0.1:``target``; what the server says arrives ``late_s`` seconds late."""

    def __init__(self, target: int) -> None:
        self.late_s = 0.0
        self.port = 0
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        for work in (self._pass(reader, far_writer, late=False), self._pass(far_reader, writer, late=True)):
            task = asyncio.get_running_loop().create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        loop = asyncio.get_running_loop()
        kept: deque[tuple[float, bytes]] = deque()
        more = asyncio.Event()

        async def deliver() -> None:
            while True:
                await more.wait()
                while kept:
                    due, chunk = kept[0]
                    # A delay that is taken back holds for what is on its way too.
                    while (wait := min(due, loop.time() + self.late_s) - loop.time()) > 0 and late:
                        await asyncio.sleep(min(wait, 0.1))
                    kept.popleft()
                    if not chunk:
                        return
                    writer.write(chunk)
                    await writer.drain()
                more.clear()

        task = loop.create_task(deliver())
        try:
            while True:
                chunk = await reader.read(1 << 16)
                kept.append((loop.time() + (self.late_s if late else 0.0), chunk))
                more.set()
                if not chunk:
                    break
            await task
        except OSError:
            pass
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            writer.transport.abort()
