"""The gateway over HTTP: the table of questions, the stream, and the pages of the dashboard, each answer guarded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

import muster
from muster.core.objects.meta import is_namespace
from muster.languages import catalogue, preferred
from muster.model.language import speaking
from muster.ports import Clock
from muster.runtime.listening import Listener
from muster.serving import shapes
from muster.serving.access import DeniedError, UndecidedError, Viewed
from muster.serving.answering import (
    EXPECTED,
    ROUTES,
    BadRequestError,
    Question,
    Questions,
    named,
    problem,
)
from muster.serving.limits import MOST_ALL_STREAMS, MOST_STREAMS, TooManyError, UnderWay
from muster.serving.scope import Scope
from muster.serving.streaming import Turns, messages, resumed
from muster.telemetry import logs

MOST_BODY = 256 * 1024
COMPRESSED_FROM = 2_048
HEAD_S = 15.0
"""A connection without a whole request for this long is closed: a new connection, a kept one, or one with half a
request.
"""
BODY_S = 10.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""The allowed names of a gateway that shows everything to every reader.

A foreign page whose name leads to loopback calls the gateway by another name.
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Server": f"muster/{muster.__version__}",
}
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
NOTHING = Scope(frozenset(), cluster=False)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessReview(Protocol):
    """Names the user of a request, and the rights of the user. Raises DeniedError, UndecidedError."""

    async def viewed(self, authorization: str, namespaces: set[str]) -> Viewed: ...


class GatewayServer(Listener):
    """The gateway of one cell."""

    def __init__(
        self,
        questions: Questions,
        access: AccessReview,
        clock: Clock,
        pages: Path,
        host: str,
        port: int,
        *,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        """``pages``: the folder with the files of the dashboard; ``hosts``: the names by which requests may call the
        gateway,
        all names where empty.
        """
        super().__init__(host, port, subject="the gateway", setting="MUSTER_GATEWAY_PORT")
        self._questions = questions
        self._access = access
        self._turns = Turns(questions, clock)
        self._pages = pages
        self._hosts = hosts
        self._streams = UnderWay("streams", MOST_STREAMS, MOST_ALL_STREAMS)

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application(client_max_size=MOST_BODY, middlewares=[self._guarded])
        for route in ROUTES:
            app.router.add_route(route.method, route.path, self._answering(route))
        app.router.add_get("/api/v1/stream", self._stream)
        app.router.add_get("/{path:[A-Za-z0-9./_-]*}", self._page)
        await self.listen(app, shutdown_timeout_s=1.0, silence_s=HEAD_S)

    async def _viewed(self, request: web.Request) -> Viewed:
        wanted = {namespace for namespace in named(request.match_info, request.query) if is_namespace(namespace)}
        namespaces = self._questions.namespaces() | wanted
        return await self._access.viewed(request.headers.get("Authorization", ""), namespaces)

    def _answering(self, route: Question) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            viewed = await self._viewed(request)
            body = await _body(request) if route.body is not None else b""
            try:
                query = dict(request.query)
                reply = await self._questions.answer(route, viewed, dict(request.match_info), query, body)
            except tuple(EXPECTED) as err:
                state = self._questions.live.state
                return _json(problem(err, viewed.scope, state), EXPECTED[type(err)])
            return _json(reply)

        return answer

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        viewed = await self._viewed(request)
        with self._streams.one(viewed.name):
            return await self._news(request)

    async def _news(self, request: web.Request) -> web.StreamResponse:
        after = resumed(request.headers.get("Last-Event-ID", ""), self._questions)
        response = web.StreamResponse(
            headers={
                **HEADERS,
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        try:
            async for message in messages(self._turns, lambda: self._viewed(request), after):
                await response.write(message)
        except (ConnectionError, DeniedError, UndecidedError):
            pass  # The reader is gone, or may not read on; a reader comes back with its last position.
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """A file of the dashboard. Every other path is the dashboard: the address holds the state of the dashboard."""
        path = (self._pages / request.match_info["path"]).resolve()
        try:
            there = path.is_file()
        except OSError:  # A name that no file can have.
            there = False
        if not there or not path.is_relative_to(self._pages.resolve()) or path.suffix not in TYPES:
            if path.suffix or request.path.startswith("/api/"):
                return _json(shapes.Problem("there is no such page here"), 404)
            path = self._pages / "index.html"
        body = await asyncio.to_thread(path.read_bytes)
        response = web.Response(body=body, content_type=TYPES[path.suffix], charset="utf-8")
        response.headers["Cache-Control"] = "no-cache"
        response.enable_compression()
        return response

    def _check_host(self, request: web.Request) -> None:
        """Raises HTTPMisdirectedRequest for a name that is not a name of this gateway."""
        try:
            name = request.url.host or ""
        except ValueError:
            raise web.HTTPBadRequest(reason="the Host of this request is no name") from None
        if self._hosts and name not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            raise web.HTTPMisdirectedRequest(reason=f"this gateway is called {known}; use one of these names")

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Add the headers to every answer, and make one sentence of every failure, without names that are concealed."""
        try:
            self._check_host(request)
            with speaking(catalogue(preferred(request.headers.get("Accept-Language", "")))):
                response = await handler(request)
        except DeniedError as err:
            response = _json(shapes.Problem(str(err)), 401)
            response.headers["WWW-Authenticate"] = "Bearer"
        except UndecidedError as err:
            response = _json(shapes.Problem(str(err)), 503)
        except (BadRequestError, TooManyError) as err:
            response = _json(problem(err, NOTHING, self._questions.live.state), EXPECTED[type(err)])
        except web.HTTPException as err:
            response = _json(shapes.Problem(err.reason), err.status)
        except Exception as err:
            # A defect: the reader gets a sentence, and the log of the gateway the cause.
            logs.get(service="gateway").error("question_failed", path=request.path[:200], why=repr(err)[:2_000])
            response = _json(shapes.Problem("the gateway could not answer this question: its log says why"), 500)
        if not response.prepared:
            response.headers.update(HEADERS)
            if request.path.startswith("/api/"):
                response.headers["Cache-Control"] = "no-store"
        return response


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body did not arrive within {BODY_S:g} s") from None


def _json(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    response = web.Response(body=body, status=status, content_type="application/json")
    if len(body) >= COMPRESSED_FROM:
        response.enable_compression()
    return response
