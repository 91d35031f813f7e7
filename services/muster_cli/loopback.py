"""Requests to the gateway of a ``muster up`` on this machine: no token, and no web client to import."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from muster.ports import ApiResponse, ApiUnreachableError

CONNECT_S = 1.0


class Address(Struct, frozen=True):
    """The gateway, as messages name it."""

    server: str
    origin: str = ""
    namespace: str = ""


class Loopback:
    """One connection for each request: there are one to three of them in a command."""

    def __init__(self, server: str, language: str) -> None:
        self.target = Address(server.rstrip("/"))
        self._language = language

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        """A request and its answer. Raises ApiUnreachableError for every failure to get a complete answer."""
        parts = urlsplit(self.target.server)
        sent = body or b""
        # In HTTP/1.0 the end of the answer is the end of the connection.
        lines = (
            f"{method} {path}{'?' + urlencode(query) if query else ''} HTTP/1.0",
            f"Host: {parts.netloc}",
            f"Accept-Language: {self._language}",
            "Content-Type: application/json",
            f"Content-Length: {len(sent)}",
        )
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write("\r\n".join((*lines, "", "")).encode() + sent)
                async with asyncio.timeout(timeout_s):
                    answer = await reader.read(-1)
            finally:
                writer.close()
        except OSError as err:  # TimeoutError is one.
            raise ApiUnreachableError from err
        return _read(answer)

    async def close(self) -> None:
        """Nothing stays open."""


def _read(answer: bytes) -> ApiResponse:
    """Raises ApiUnreachableError for an answer that is cut, or none of HTTP."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    fields = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    length = fields.get("content-length", "")
    if not gap or len(words) < 2 or not words[1].isdecimal() or length != str(len(body)):
        raise ApiUnreachableError
    return ApiResponse(int(words[1]), body)
