"""Health and metrics of a process over HTTP: /livez, /readyz, /startupz, /metrics.

/livez answers while the event loop turns and says nothing about dependencies: restarting a process does not fix
NATS. /readyz says why it is not ready, one line a reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

Reasons = Callable[[], list[str]]
"""Why the process is not (ready, started) yet; empty when it is."""


class HealthServer:
    """Serves on ``host``:``port``; port 0 takes a free one, see :attr:`port` after start."""

    def __init__(self, host: str, port: int, *, ready: Reasons, started: Reasons, metrics: Callable[[], bytes]) -> None:
        self.host = host
        self.port = port
        self._ready = ready
        self._started = started
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/startupz", self._answer(self._started))
        app.router.add_get("/metrics", self._page)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        try:
            await site.start()
        except OSError as err:
            await self._runner.cleanup()
            raise OSError(
                f"cannot serve health on {self.host}:{self.port}: {err.strerror}; "
                f"set MUSTER_HEALTH_PORT to a free port, or to 0 for any"
            ) from err
        sockets = site._server.sockets if site._server is not None else []  # type: ignore[attr-defined]
        self.port = sockets[0].getsockname()[1] if sockets else self.port

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    def _answer(self, reasons: Reasons) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_request: web.Request) -> web.Response:
            found = reasons()
            return web.Response(text="\n".join(found or ["ok"]) + "\n", status=503 if found else 200)

        return answer

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
