"""Large values in an object store bucket, laid out as every NATS client expects them.

Written and read here because nats-py waits for ever on an object whose chunks are gone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
from collections import deque

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from muster.bus.connection import no_responders
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream, decode_ack
from muster.events.envelope import UNREADABLE

CHUNK = 256 * 1024
"""Bytes per message; comes back as base64 in one answer, so well below the least max_payload."""

WINDOW = 8
"""Chunks on their way at once."""

ACK_TIMEOUT_S = 10.0

DISCARD_S = 1.0
"""How long it is tried to take back what was not finished."""


class _Options(Struct, frozen=True):
    max_chunk_size: int = CHUNK


class _Meta(Struct, frozen=True, omit_defaults=True):
    name: str
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    mtime: str = "0001-01-01T00:00:00Z"
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: _Options = _Options()


_metas = msgspec.json.Decoder(_Meta)


class ObjectBroken(Exception):
    """An object is missing, incomplete, or not what its digest says."""


class ObjectBucket:
    """One object store bucket."""

    def __init__(self, js: JetStream, name: str) -> None:
        self._js = js
        self._name = name
        self._stream = f"OBJ_{name}"

    async def put(self, name: str, body: bytes) -> None:
        """Store an object under a new name. One try: raises UnansweredError, ApiError, and then the object does not
        exist.
        """
        nuid = secrets.token_hex(11)
        chunks = [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]
        waiting: deque[asyncio.Future[Msg]] = deque()
        try:
            # Sent in order over one connection, so stored in order; that order is all that joins them again.
            for chunk in chunks:
                waiting.append(await self._js.connection.send(self._chunk_subject(nuid), chunk))
                if len(waiting) >= WINDOW:
                    await self._stored(waiting.popleft(), name)
            while waiting:
                await self._stored(waiting.popleft(), name)
            meta = _Meta(
                name=name,
                bucket=self._name,
                nuid=nuid,
                size=len(body),
                chunks=len(chunks),
                digest=_digest(body),
                options=_Options(max_chunk_size=CHUNK),
            )
            answer = await self._js.connection.send(self._meta_subject(name), msgspec.json.encode(meta))
            await self._stored(answer, name)
        except BaseException:
            for future in waiting:
                future.cancel()
            await self._discard(nuid)
            raise

    async def get(self, name: str, most: int | None = None) -> bytes:
        """The object. Raises ObjectBroken when it is not there whole, or has more than ``most`` bytes; BusError when
        the bus does not answer.
        """
        message = await self._js.last(self._stream, self._meta_subject(name))
        if message is None:
            raise ObjectBroken(f"object {name} is not in bucket {self._name}")
        try:
            meta = _metas.decode(message.data)
        except UNREADABLE as err:
            raise ObjectBroken(f"object {name} in bucket {self._name}: {err}") from err
        body, seq = bytearray(), 1
        for index in range(meta.chunks):
            chunk = await self._js.next(self._stream, self._chunk_subject(meta.nuid), seq)
            if chunk is None:
                raise ObjectBroken(f"object {name} in bucket {self._name} has {index} of {meta.chunks} chunks")
            body += chunk.data
            seq = chunk.seq + 1
            if most is not None and len(body) > most:
                raise ObjectBroken(f"object {name} in bucket {self._name} has more than {most} bytes")
        if meta.deleted or _digest(body) != meta.digest:
            raise ObjectBroken(f"object {name} in bucket {self._name} is not what its digest says")
        return bytes(body)

    async def delete(self, name: str) -> None:
        """Remove an object and every trace; a missing object is fine. Raises ApiError, BusError."""
        subject = self._meta_subject(name)
        message = await self._js.last(self._stream, subject)
        if message is None:
            return
        await self._purge(subject)
        # What cannot be read does not tell which chunks were its own.
        with contextlib.suppress(*UNREADABLE):
            await self._purge(self._chunk_subject(_metas.decode(message.data).nuid))

    async def _discard(self, nuid: str) -> None:
        """Remove the chunks of an object that was not finished, if that can be had at once."""
        with contextlib.suppress(BusError, UnansweredError):
            await self._js.request(
                f"STREAM.PURGE.{self._stream}", {"filter": self._chunk_subject(nuid)}, timeout_s=DISCARD_S
            )

    async def _purge(self, subject: str) -> None:
        await self._js.ask(f"STREAM.PURGE.{self._stream}", {"filter": subject})

    async def _stored(self, answer: asyncio.Future[Msg], name: str) -> None:
        request = f"cannot store object {name} in bucket {self._name}"
        try:
            async with asyncio.timeout(ACK_TIMEOUT_S):
                message = await answer
        except TimeoutError:
            raise UnansweredError(f"{request}: no acknowledgement within {ACK_TIMEOUT_S:g} s") from None
        if no_responders(message):
            raise UnansweredError(f"{request}: no stream takes it")
        refusal = decode_ack(message.data).refusal(request)
        if refusal is not None:
            raise refusal

    def _chunk_subject(self, nuid: str) -> str:
        return f"$O.{self._name}.C.{nuid}"

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self._name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _digest(body: bytes | bytearray) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
