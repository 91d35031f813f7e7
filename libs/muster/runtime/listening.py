"""An aiohttp application on one TCP port: how health, metrics and the gateway are served."""

from __future__ import annotations

import socket

from aiohttp import web


class Listener:
    """Serves on ``host``:``port``; port 0 takes a free one, see :attr:`port` after start."""

    def __init__(self, host: str, port: int, *, subject: str, setting: str) -> None:
        """``what`` is served, and ``setting`` names the port: both for the error of a port that is taken."""
        self.host = host
        self.port = port
        self._what = subject
        self._setting = setting
        self._runner: web.AppRunner | None = None

    async def listen(self, app: web.Application, *, shutdown_timeout_s: float = 60.0, silence_s: float = 75.0) -> None:
        """Raises OSError when the port is taken.

        ``silence_s``: a connection without a whole request for so long is closed, and so is one whose client takes
        nothing of an answer. A handler whose client hangs up is cancelled. No body is decompressed: 256 KB may be
        200 MB.
        """
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=shutdown_timeout_s,
            keepalive_timeout=silence_s,
            handler_cancellation=True,
            auto_decompress=False,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        try:
            await site.start()
        except OSError as err:
            await self._runner.cleanup()
            raise OSError(
                f"cannot serve {self._what} on {self.host}:{self.port}: {err.strerror}; "
                f"set {self._setting} to a free port, or to 0 for any"
            ) from err
        sockets = site._server.sockets if site._server is not None else []  # type: ignore[attr-defined]
        for listening in sockets:  # Each connection has the option of its listener.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1_000))
        self.port = sockets[0].getsockname()[1] if sockets else self.port

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
