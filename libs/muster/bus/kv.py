"""Key-value buckets with compare-and-set, in the layout of every NATS client.

Reads go to the leader, so a read after an acknowledged write returns the written value or a later value.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from muster.bus.errors import WRONG_LAST_SEQUENCE, BusError, UnansweredError
from muster.bus.jetstream import EXPECTED_LAST_OF_SUBJECT, GrowingPause, JetStream, StreamInfo

_OPERATION = "KV-Operation"


class KvEntry(Struct, frozen=True):
    """The newest revision of a key. ``value`` is None when the key was deleted; ``time``: when the broker stored it
    (RFC 3339).
    """

    value: bytes | None
    revision: int
    time: str = ""


_infos = msgspec.json.Decoder(StreamInfo)


class KvBucket:
    """One bucket. Keys are subject tokens joined by dots."""

    def __init__(self, js: JetStream, name: str) -> None:
        self._js = js
        self._stream = f"KV_{name}"
        self._prefix = f"$KV.{name}."

    async def get(self, key: str, *, patience_s: float | None = 30.0) -> KvEntry | None:
        """The newest revision of ``key``, None when there never was one or it expired."""
        message = await self._js.last(self._stream, self._prefix + key, patience_s=patience_s)
        if message is None:
            return None
        return KvEntry(None if message.headers.get(_OPERATION) else message.data, message.seq, message.time)

    async def keys(self, prefix: str) -> list[str]:
        """Every key below a prefix of tokens, in sorted order, deleted ones too. Raises BusError."""
        below = self._prefix + prefix
        answer = await self._js.ask(f"STREAM.INFO.{self._stream}", {"subjects_filter": f"{below}.>"})
        return [subject.removeprefix(self._prefix) for subject in sorted(_infos.decode(answer).state.subjects or {})]

    async def put(self, key: str, value: bytes, *, revision: int, timeout_s: float | None = None) -> int | None:
        """Write ``key`` if ``revision`` (0: none) is the newest; the new revision, or None for a stale revision.

        Raises UnansweredError when the write may have happened or not, ApiError when the bucket refuses.
        """
        return await self._write(key, value, {EXPECTED_LAST_OF_SUBJECT: str(revision)}, timeout_s)

    async def set(self, key: str, value: bytes, *, revision: int, patience_s: float = 30.0) -> int | None:
        """As :meth:`put`, but tries until it knows: a value already there that is ours counts as written.

        Raises BusError when the bucket does not answer for ``patience_s``.
        """
        try:
            async with asyncio.timeout(patience_s):
                return await self._set(key, value, revision)
        except TimeoutError:
            raise BusError(f"no answer to a write of {self._prefix}{key} for {patience_s:g} s") from None

    async def _set(self, key: str, value: bytes, revision: int) -> int | None:
        backoff = GrowingPause()
        while True:
            try:
                written = await self.put(key, value, revision=revision)
            except UnansweredError:
                written = None
            if written is not None:
                return written
            entry = await self.get(key)
            newest = entry.revision if entry is not None else 0
            if entry is not None and newest > revision:
                return newest if entry.value == value else None
            if newest < revision:
                return None
            await backoff.pause()  # Not written, or another write of the key is on its way through the replicas.

    async def delete(self, key: str, *, revision: int, timeout_s: float | None = None) -> bool:
        """Mark ``key`` as deleted if ``revision`` is its newest. Raises as :meth:`put`."""
        headers = {EXPECTED_LAST_OF_SUBJECT: str(revision), _OPERATION: "DEL"}
        return await self._write(key, b"", headers, timeout_s) is not None

    async def _write(self, key: str, value: bytes, headers: dict[str, str], timeout_s: float | None) -> int | None:
        subject = self._prefix + key
        ack = await self._js.publish(subject, value, headers, timeout_s=timeout_s)
        if ack is None:
            raise UnansweredError(f"no stream takes {subject}")
        refusal = ack.refusal(f"cannot write {subject}")
        if refusal is None:
            return ack.seq
        if refusal.err_code in WRONG_LAST_SEQUENCE:
            return None
        if refusal.passing:
            raise UnansweredError(str(refusal))
        raise refusal
