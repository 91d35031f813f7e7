"""A way to the API server on which every watch is late, and all else is not: what makes a controller slow."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Self

import aiohttp
import trustme
from aiohttp import web
from yarl import URL

HOP = {"connection", "transfer-encoding", "content-length", "host", "keep-alive", "upgrade"}
WATCHES = {"1", "true"}


class LateWatches:
    """An HTTPS server in front of another; what a watch says arrives ``late_s`` seconds late, in order.

    ``upstream``: URL of the other, and how it is trusted; asked at each request, for it is started later.
    """

    def __init__(self, upstream: Callable[[], tuple[str, Path]]) -> None:
        self.late_s = 0.0
        self.port = 0
        self._upstream = upstream
        self._authority = trustme.CA()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    def write_authority(self, path: Path) -> None:
        """The certificate that vouches for this server."""
        self._authority.cert_pem.write_to_path(str(path))

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert("127.0.0.1").configure_cert(context)
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        self._session = aiohttp.ClientSession(
            timeout=limits, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._session.close()
        await self._runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        url, authority = self._upstream()
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=authority)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        body = await request.read()
        watch = request.query.get("watch") in WATCHES
        try:
            async with self._session.request(
                request.method,
                URL(url + request.raw_path, encoded=True),
                headers=headers,
                data=body or None,
                ssl=self._tls,
                allow_redirects=False,
            ) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                await self._stream(answer, response, late=watch)
                return response
        except (aiohttp.ClientError, OSError):
            return web.Response(status=503)

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse, *, late: bool) -> None:
        if not late:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return
        loop, kept = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def hear() -> None:
            try:
                async for chunk in answer.content.iter_any():
                    kept.put_nowait((loop.time(), chunk))
            finally:
                kept.put_nowait((0.0, b""))

        hearing = loop.create_task(hear())
        try:
            while True:
                heard_at, chunk = await kept.get()
                if not chunk:
                    return
                # A delay that is taken back no longer holds for what is on its way.
                while (wait := heard_at + self.late_s - loop.time()) > 0:
                    await asyncio.sleep(min(wait, 0.1))
                await response.write(chunk)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
