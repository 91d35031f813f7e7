"""Health and metrics of a process over HTTP: /livez, /readyz, /startupz, /metrics.

/livez answers while the event loop turns and says nothing about dependencies: restarting a process does not fix
NATS. /readyz says why it is not ready, one line a reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from muster.runtime.listening import Listener

Reasons = Callable[[], list[str]]
"""Why the process is not (ready, started) yet; empty when it is."""


class HealthServer(Listener):
    """Health and metrics of one process."""

    def __init__(self, host: str, port: int, *, ready: Reasons, started: Reasons, metrics: Callable[[], bytes]) -> None:
        super().__init__(host, port, subject="health", setting="MUSTER_HEALTH_PORT")
        self._ready = ready
        self._started = started
        self._metrics = metrics

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._answer(self._ready))
        app.router.add_get("/startupz", self._answer(self._started))
        app.router.add_get("/metrics", self._page)
        await self.listen(app)

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    def _answer(self, reasons: Reasons) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_request: web.Request) -> web.Response:
            causes = reasons()
            return web.Response(text="\n".join(causes or ["ok"]) + "\n", status=503 if causes else 200)

        return answer

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
