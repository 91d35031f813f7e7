"""The simulated API server over HTTP, on loopback: for kubectl, ``muster submit`` and other clients.

A thin adapter: requests go to `SimApiServer.handle`, watches to `SimTransport.watch`. The adapter adds answers for
people's clients: tables, and the OpenAPI document with the place of validation.

Every path begins with a secret prefix, since kubectl sends no credentials over plain HTTP: a client with the address
(from a kubeconfig that only its owner can read) may do everything, a web page that guesses the port may do nothing.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from muster.fakecluster.apiserver import openapi
from muster.fakecluster.apiserver.server import SimApiServer
from muster.fakecluster.apiserver.status import Obj, StatusError, bad_request
from muster.fakecluster.apiserver.store import encode
from muster.fakecluster.apiserver.tables import table
from muster.fakecluster.apiserver.transport import WATCH_LIMIT_S, SimTransport
from muster.model.api import JSON, ApiResource
from muster.ports import ApiStatusError, ApiUnreachableError

LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 3 * 1024 * 1024
"""What a real server takes of one request."""
STOP_LIMIT_S = 0.2
APPLY = "application/apply-patch+yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_YAML = ("application/yaml", "application/x-yaml")
_decode = msgspec.json.Decoder().decode


class HttpApiServer:
    """Serves one simulated server. ``port`` 0 takes a free port; after ``start`` ``port`` and ``url`` are the real
    values.
    """

    def __init__(
        self,
        server: SimApiServer,
        *,
        port: int = 0,
        prefix: str | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self.port = port
        self._server = server
        self._transport = SimTransport(server)
        self._prefix = secrets.token_urlsafe(12) if prefix is None else prefix
        self._on_failure = on_failure
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address a kubeconfig names. Only after ``start``."""
        return f"http://{LOOPBACK}:{self.port}" + (f"/{self._prefix}" if self._prefix else "")

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/" + (f"{self._prefix}/" if self._prefix else "") + "{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_LIMIT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self.port)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all connections, watches too."""
        if self._runner is not None:
            self._transport.break_connections()
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, context: str = "muster") -> str:
        """A kubeconfig with this server as its one context."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": context, "cluster": {"server": self.url}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": "default"}}],
            "users": [{"name": context, "user": {}}],
        }
        return yaml.safe_dump(config, sort_keys=False)

    def write_kubeconfig(self, path: Path, context: str = "muster") -> None:
        """Write the kubeconfig where only its owner can read it."""
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(self.kubeconfig(context))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if (request.url.host or "") not in (LOOPBACK, "localhost"):
            return _refusal(StatusError(403, "Forbidden", "this server answers to its loopback address only"))
        path, query = "/" + request.match_info["path"], dict(request.query)
        try:
            if query.pop("watch", "") in ("true", "1"):
                return await self._watch(request, path, query)
            return await self._request(request, path, query)
        except StatusError as err:
            return _refusal(err)
        except ValueError as err:
            # A number or a time that is none, in an object of a client: the request fails, the server does not.
            if self._on_failure is not None:
                self._on_failure(f"{request.method} {path}: {err}")
            return _refusal(StatusError(500, "InternalError", f"cannot answer {request.method} {path}: {err}"))

    async def _request(self, request: web.Request, path: str, query: dict[str, str]) -> web.StreamResponse:
        document = self._document(path) if request.method == "GET" else None
        if document is not None:
            return _json(200, encode(document))
        content_type = request.content_type if request.can_read_body else JSON
        body = await _body(request)
        if query.pop("dryRun", "") or (isinstance(body, bytes) and b'"dryRun"' in body and request.method == "DELETE"):
            raise bad_request("the simulated API server has no dry runs")
        if request.method == "HEAD":
            return web.Response(status=200)
        include = query.pop("includeObject", "Metadata")
        answer = self._server.handle(request.method, path, query, body, JSON if content_type in _YAML else content_type)
        if answer.ok and request.method == "GET" and _wants_table(request):
            shown = self._as_table(path, _decode(answer.body), include)
            if shown is not None:
                return _json(answer.status, encode(shown))
        return _json(answer.status, answer.body)

    async def _watch(self, request: web.Request, path: str, query: dict[str, str]) -> web.StreamResponse:
        """Stream the lines of a watch until either side has enough."""
        include = query.pop("includeObject", "Metadata")
        route = self._server.route(path) if _wants_table(request) else None
        self._check_watch(path, query)
        limit_s = float(query.get("timeoutSeconds") or WATCH_LIMIT_S)
        lines = self._transport.watch(path, query=query, idle_limit_s=limit_s + 60)
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache"})
        # The client goes on when it sees the head of the answer, which may be long before the first line.
        await response.prepare(request)
        try:
            async with contextlib.aclosing(lines):  # type: ignore[type-var]
                async for line in lines:
                    await response.write((self._row(route.resource, line, include) if route else line) + b"\n")
            await response.write_eof()
        except (ApiStatusError, ApiUnreachableError, ConnectionError):
            pass  # The other side has gone, or we are stopping.
        return response

    def _check_watch(self, path: str, query: dict[str, str]) -> None:
        """Raise StatusError now for a watch that would be refused, while a status can still be sent."""
        probe = {key: value for key, value in query.items() if key != "sendInitialEvents"}
        if probe.get("resourceVersion", "") in ("", "0"):
            probe["resourceVersion"] = str(self._server.store.version)
        self._server.watch(path, probe, lambda _: None).close()

    def _row(self, resource: ApiResource, line: bytes, include: str) -> bytes:
        """A line of a watch with its object as a table of one row."""
        event: Any = _decode(line)
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return line
        obj = event["object"]
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        shown = table(str(resource), [obj], version, self._server.now(), include=include)
        return encode({"type": event["type"], "object": shown})

    def _as_table(self, path: str, obj: Obj, include: str) -> Obj | None:
        route = self._server.route(path)
        if route is None:
            return None
        objects, meta = [obj], {"resourceVersion": obj["metadata"]["resourceVersion"]}
        if not route.name:
            objects, meta = obj["items"], obj["metadata"]
        return table(str(route.resource), objects, meta, self._server.now(), include=include)

    def _document(self, path: str) -> Obj | None:
        if path == "/openapi/v3":
            return openapi.index(self._resources())
        if path.startswith("/openapi/v3/"):
            return openapi.document(path.removeprefix("/openapi/v3/"), self._resources())
        return None

    def _resources(self) -> Iterable[ApiResource]:
        return [table.kind.resource for table in self._server.store.tables()]


async def _body(request: web.Request) -> bytes | None:
    """The body, as JSON. Raises StatusError where it is too long or no YAML."""
    if not request.can_read_body:
        return None
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise StatusError(
            413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY_BYTES}"
        ) from None
    if request.content_type == APPLY:
        raise StatusError(
            415, "UnsupportedMediaType", "the simulated API server has no server-side apply; leave out --server-side"
        )
    if request.content_type == PROTOBUF:
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the simulated API server reads JSON and YAML, not protobuf; write the object to a file and use "
            "`kubectl create -f` or `kubectl apply -f`",
        )
    if request.content_type not in _YAML:
        return body
    try:
        return encode(yaml.safe_load(body))
    except (yaml.YAMLError, TypeError) as err:
        raise bad_request(f"the object provided is no YAML: {err}") from None


def _wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "").split(",")[0]


def _refusal(err: StatusError) -> web.Response:
    return _json(err.code, encode(err.body))


def _json(status: int, body: bytes) -> web.Response:
    plain = body[:1] not in (b"{", b"[")
    return web.Response(status=status, body=body, content_type="text/plain" if plain else JSON)
