"""The public stream in memory, as far as its publisher asks it: what is stored, when it is acknowledged, what is lost.

The server answers everything that reached it within one round trip at the end of that, in order; and it stores no
message twice whose id it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec import Struct

from muster.bus.errors import UnansweredError
from muster.bus.jetstream import (
    EXPECTED_LAST_OF_SUBJECT,
    MESSAGE_ID,
    Message,
    PubAck,
    StreamInfo,
    StreamState,
)
from muster.bus.public import CE_ID, SETTLED

ROUND_TRIP_S = 1.0


class Answer(Struct):
    """What the publisher reads of a message of NATS."""

    data: bytes
    headers: dict[str, str] | None = None


class PublicStream:
    """Takes the place of ``JetStream`` and of its connection. ``lost``: the share of messages and of answers that are.

    ``stored``: ids in the order of the stream. A message must not say that something was settled which is not stored.
    ``beside``: the values of a bucket, each with its revision.
    """

    def __init__(self, seed: int = 0, lost: float = 0.0) -> None:
        self.connection = self
        self.stored: list[str] = []
        self.ever: list[str] = []
        """Ids of all that was stored, also of what is stored no more."""
        self.beside: dict[str, tuple[bytes, int]] = {}
        self.sent = 0
        self._headers: dict[str, str] = {}
        self._random, self._lost = Random(seed), lost
        self._waiting: list[asyncio.Future[Any]] = []
        self.order: list[str] | None = None
        """All ids there will be, once that is known."""

    async def last(self, stream: str, subject: str, *, patience_s: float | None = 30.0) -> Message | None:
        await asyncio.sleep(ROUND_TRIP_S)
        if subject.startswith("$KV."):
            value, revision = self.beside.get(subject, (b"", 0))
            return Message(subject, revision, value, {}) if revision else None
        return Message(subject, len(self.ever), b"", self._headers) if self.stored else None

    async def info(self, stream: str) -> StreamInfo:
        await asyncio.sleep(ROUND_TRIP_S)
        return StreamInfo({}, StreamState(messages=len(self.stored), last_seq=len(self.ever)))

    def empty(self) -> None:
        """All that it has is too old."""
        self.stored.clear()

    async def send(self, subject: str, body: bytes, headers: Mapping[str, str]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self.sent += 1
        if self._random.random() >= self._lost:
            self._store(headers)
            if self._random.random() >= self._lost:
                if not self._waiting:
                    loop.call_later(ROUND_TRIP_S, self._acknowledge)
                self._waiting.append(answer)
        await asyncio.sleep(0)
        return answer

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float | None = None
    ) -> PubAck | None:
        if subject.startswith("$KV."):
            await asyncio.sleep(ROUND_TRIP_S)
            _, revision = self.beside.get(subject, (b"", 0))
            assert headers[EXPECTED_LAST_OF_SUBJECT] == str(revision)
            self.beside[subject] = body, revision + 1
            return PubAck(stream="beside", seq=revision + 1)
        answer = await self.send(subject, body, headers)
        try:
            async with asyncio.timeout(timeout_s):
                await answer
        except TimeoutError:
            raise UnansweredError("lost") from None
        return PubAck(stream="public", seq=1)

    def _store(self, headers: Mapping[str, str]) -> None:
        event, settled = headers[MESSAGE_ID], headers[SETTLED]
        assert event == headers[CE_ID]
        if self.order is not None and settled:
            before = self.order[: self.order.index(settled) + 1]
            assert {*before} <= {*self.ever}, f"{event} says that all is stored up to {settled}"
        if event not in self.stored:
            self.stored.append(event)
            self.ever.append(event)
            self._headers = dict(headers)

    def _acknowledge(self) -> None:
        answered, self._waiting = self._waiting, []
        for each in answered:
            if not each.done():
                each.set_result(Answer(b'{"stream":"public","seq":1}'))
