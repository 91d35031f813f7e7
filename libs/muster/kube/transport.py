"""The real API server as ``ports.ApiTransport``: raw bytes over the session that kubernetes-asyncio's setup gives.

Built by ``config.connect``. TLS and credentials come from there; requests, time limits, error mapping and the cutting
of watch streams are done here. kubernetes-asyncio's own request path is not used: it reads HTTP errors as watch events,
has no time limits by default and encodes bodies itself.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
from msgspec import Struct

from muster.kube.credentials import Credential, CredentialError
from muster.kube.lines import LineSplitter, LineTooLongError
from muster.kube.objects import decode_status
from muster.kube.paths import describe
from muster.model.language import say
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError

CONNECT_TIMEOUT_S = 10.0
WATCH_OPEN_TIMEOUT_S = 60.0
"""Until a watch is answered: the server may queue it that long when it is busy."""
LINE_LIMIT_BYTES = 16 * 1024 * 1024
"""Of one watch event; etcd stores 1.5 MB objects by default, 10 MB at the most that anyone configures."""
ERROR_LIMIT_BYTES = 64 * 1024
"""What is read of an answer other than 2xx."""
MESSAGE_LIMIT = 200
READ_BUFFER_BYTES = 1024 * 1024
LARGE_BODY_BYTES = 1024 * 1024
"""From here on aiohttp warns of bytes sent in one piece; as a file they go out piece by piece."""
UNREACHABLE = 0
"""Code given to OnRequest when there was no answer."""

_FAILURES = (aiohttp.ClientError, OSError, EOFError, CredentialError, LineTooLongError)
"""Every way in which an answer can fail to come. TimeoutError is an OSError."""


class OnRequest(Protocol):
    """Called after every request, and when a watch was answered."""

    def __call__(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """``("patch", "rayjobs.ray.io/status", 200, 0.012)``; ``code`` is UNREACHABLE without an answer."""


class ApiTarget(Struct, frozen=True):
    """Where a transport leads, for messages and defaults."""

    server: str
    """``https://10.0.0.1:6443``, with a path prefix if there is one, without a slash at the end."""
    origin: str
    """Where that was found: ``context kind-dev of ~/.kube/config``, ``in-cluster``."""
    namespace: str = "default"
    """The one to use when the user names none."""
    context: str = ""


class Wire(Struct, frozen=True):
    """What TLS setup and proxies come to."""

    connector: aiohttp.BaseConnector | None
    close: Callable[[], Awaitable[None]]
    """Closes the connector and what belongs to it."""
    server_hostname: str | None = None
    proxy: str | None = None


class KubeTransport:
    """Requests to one API server as one user. Create the transport inside a running event loop; ``close`` after use."""

    def __init__(
        self,
        target: ApiTarget,
        wire: Wire,
        credential: Credential,
        *,
        user_agent: str = "muster",
        headers: Sequence[tuple[str, str]] = (),
        compress: bool = False,
        on_request: OnRequest | None = None,
    ) -> None:
        self.target = target
        self._wire = wire
        self._credential = credential
        self._on_request = on_request
        self._watching: set[aiohttp.ClientResponse] = set()
        self._session = aiohttp.ClientSession(
            connector=wire.connector,
            connector_owner=False,
            # Neither cookies nor ~/.netrc change our identity, and looking for them costs a thread hop a request.
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
            headers=[
                ("User-Agent", user_agent),
                ("Accept", "application/json"),
                # Inside a data centre gzip costs the server more than the line gains.
                ("Accept-Encoding", "gzip" if compress else "identity"),
                *headers,
            ],
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        """A request and its answer; of an answer other than 2xx at most ERROR_LIMIT_BYTES. ``timeout_s`` covers all.

        Raises ApiUnreachableError for every failure to get a complete answer.
        """
        connect_s = min(timeout_s, CONNECT_TIMEOUT_S)
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s, sock_read=timeout_s)
        started = time.monotonic()
        code = UNREACHABLE
        try:
            async with await self._open(method, path, query, body, content_type, limits) as response:
                if 200 <= response.status < 300:
                    answer = ApiResponse(response.status, await response.read())
                else:
                    text = await _head(response)
                    answer = ApiResponse(response.status, text, _retry_after_s(response, text))
                code = response.status
                return answer
        except _FAILURES as err:
            raise self._unreachable(method, path, err) from err
        finally:
            if self._on_request is not None:
                self._on_request(*describe(method, path), code, time.monotonic() - started)

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncGenerator[bytes, None]:
        """The complete lines of a watch stream, LINE_LIMIT_BYTES at most each; see ``ports.ApiTransport``."""
        query = {"watch": "true", **query}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_limit_s)
        try:
            response = await self._open_watch(path, query, limits, min(idle_limit_s, WATCH_OPEN_TIMEOUT_S))
        except _FAILURES as err:
            raise self._unreachable("WATCH", path, err) from err
        self._watching.add(response)
        try:
            splitter = LineSplitter(LINE_LIMIT_BYTES)
            while chunk := await self._chunk(response, path):
                try:
                    lines = splitter.feed(chunk)
                except LineTooLongError as err:
                    raise self._unreachable("WATCH", path, err) from err
                for line in lines:
                    yield line
        finally:
            self._watching.discard(response)
            response.close()

    async def close(self) -> None:
        """End all connections; watches that are being read end with ApiUnreachableError."""
        for response in self._watching:
            # Closing a connection does not wake its reader.
            response.content.set_exception(aiohttp.ClientConnectionError("the transport has been closed"))
        await self._session.close()
        await self._wire.close()

    async def _open_watch(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, open_s: float
    ) -> aiohttp.ClientResponse:
        """The answer to a watch, its body not yet read. Raises ApiStatusError, and _FAILURES."""
        started = time.monotonic()
        code = UNREACHABLE
        try:
            async with asyncio.timeout(open_s):
                response = await self._open("GET", path, query, None, "", limits)
                code = response.status
                if code == 200:
                    return response
                async with response:
                    text = await _head(response)
                raise ApiStatusError(code, _message(text), _retry_after_s(response, text))
        finally:
            if self._on_request is not None:
                self._on_request(*describe("GET", path, watch=True), code, time.monotonic() - started)

    async def _chunk(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        try:
            return await response.content.readany()
        except _FAILURES as err:
            raise self._unreachable("WATCH", path, err) from err
        except RuntimeError as err:  # aiohttp's word for reading from a connection that is closed already
            raise self._unreachable("WATCH", path, err) from err

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request; a 401 is answered once with a renewed credential. Safe for every verb: 401 means not done."""
        if self._session.closed:
            raise aiohttp.ClientConnectionError("the transport has been closed")
        url = self.target.server + path + ("?" + urlencode(query) if query else "")
        headers = {"Content-Type": content_type} if body is not None else {}
        retried = False
        while True:
            authorization = await self._credential.header()
            if authorization is not None:
                headers["Authorization"] = authorization
            response = await self._session.request(
                method,
                url,
                data=body if body is None or len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
                headers=headers,
                timeout=limits,
                # A redirect is another server's invitation to send it our token.
                allow_redirects=False,
                proxy=self._wire.proxy,
                server_hostname=self._wire.server_hostname,
            )
            if response.status != 401 or retried or not await self._credential.renew(authorization):
                return response
            response.close()
            retried = True

    def _unreachable(self, method: str, path: str, err: BaseException) -> ApiUnreachableError:
        cause = str(err) or type(err).__name__
        return ApiUnreachableError(
            say(
                "the API server {server} ({origin}) does not answer {method} {path}: {cause}",
                server=self.target.server,
                origin=self.target.origin,
                method=method,
                path=path,
                cause=cause,
            )
        )


async def _head(response: aiohttp.ClientResponse) -> bytes:
    """The body, as far as ERROR_LIMIT_BYTES go."""
    parts: list[bytes] = []
    left = ERROR_LIMIT_BYTES
    while left and (part := await response.content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _message(body: bytes) -> str:
    """What a Status says, else the start of the text."""
    return decode_status(body).message or body[: 4 * MESSAGE_LIMIT].decode(errors="replace")[:MESSAGE_LIMIT]


def _retry_after_s(response: aiohttp.ClientResponse, body: bytes) -> float | None:
    """Seconds named by the header, as a number or as a date by the server's own clock, else by the Status."""
    named = response.headers.get("Retry-After", "").strip()
    if named.isdecimal():
        return float(named)
    try:
        until, now = parsedate_to_datetime(named), parsedate_to_datetime(response.headers.get("Date", ""))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):  # one with a time zone, one without
        return decode_status(body).retry_after_s
