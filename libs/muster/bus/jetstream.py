"""The requests of the JetStream API in use by this package, with typed answers.

Reads go to the leader of a stream, never to ``DIRECT.GET``: replicas answer ``DIRECT.GET`` too, and may be behind an
acknowledged write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.bus.connection import Connection, no_responders
from muster.bus.errors import (
    NO_MESSAGE,
    STREAM_NOT_FOUND,
    ApiError,
    BusError,
    UnansweredError,
)
from muster.model.language import say

EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"
ROLLUP = "Nats-Rollup"

GONE_CHECKS = 3
"""How often in a row the server must say that a stream does not exist before we believe it."""


class _Error(Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(Struct, frozen=True):
    error: _Error | None = None


class PubAck(Struct, frozen=True):
    """What a stream says to a message it stored, or refused (``error``)."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None

    def refusal(self, request: str) -> ApiError | None:
        """The error as an exception about ``what``; None when the message is stored."""
        return None if self.error is None else _api_error(request, self.error)


class StreamState(Struct, frozen=True):
    """How full a stream is: messages, bytes, first and last sequence; messages by subject where that was asked for."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class StreamMember(Struct, frozen=True):
    """A server that has a copy of a stream, beside its leader."""

    name: str


class StreamCluster(Struct, frozen=True):
    """The servers that have a stream; no leader where there is none, and no members where there is one server."""

    leader: str = ""
    replicas: list[StreamMember] = []

    @property
    def members(self) -> set[str]:
        """All of them."""
        return {self.leader, *(replica.name for replica in self.replicas)} - {""}


class StreamInfo(Struct, frozen=True):
    """A stream as it is: ``config`` with the server's own field names, ``ts`` the server's time (RFC 3339)."""

    config: dict[str, Any]
    state: StreamState = StreamState()
    ts: str = ""
    cluster: StreamCluster = StreamCluster()


class _Message(Struct, frozen=True):
    subject: str
    seq: int
    data: bytes = b""  # msgspec decodes the base64.
    hdrs: bytes = b""
    time: str = ""


class _MessageAnswer(Struct, frozen=True):
    message: _Message


class _Led(Struct, frozen=True):
    leader: str = ""


class _Consumer(Struct, frozen=True):
    cluster: _Led = _Led()


class _Names(Struct, frozen=True):
    streams: list[str] | None = None


class Message(Struct, frozen=True):
    """A stored message."""

    subject: str
    seq: int
    data: bytes
    headers: dict[str, str]
    time: str = ""
    """When it was stored (RFC 3339)."""


_answers = msgspec.json.Decoder(_Answer)
_acks = msgspec.json.Decoder(PubAck)
_infos = msgspec.json.Decoder(StreamInfo)
_messages = msgspec.json.Decoder(_MessageAnswer)
_names = msgspec.json.Decoder(_Names)
_consumers = msgspec.json.Decoder(_Consumer)
_NS = 1_000_000_000


class GrowingPause:
    """Growing pauses between tries, in seconds."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._next, self._most = first_s, most_s

    async def pause(self) -> None:
        pause, self._next = self._next, min(self._next * 2, self._most)
        await asyncio.sleep(pause)


TRY_S = 2.0
"""How long one try waits for its answer. A stream whose leader has died does not answer until there is another one: a
try made meanwhile fails, and the next one begins so late.
"""


class JetStream:
    """Requests to JetStream over one connection. ``timeout_s``: the wait for an answer in a try."""

    def __init__(self, connection: Connection, *, timeout_s: float = TRY_S) -> None:
        self.connection = connection
        self.prefix = connection.api_prefix
        self.timeout_s = timeout_s

    async def request(
        self, operation: str, body: Mapping[str, object] | None = None, *, timeout_s: float | None = None
    ) -> bytes:
        """One try of an API request: the answer as JSON. Raises ApiError, UnansweredError."""
        payload = msgspec.json.encode(body) if body is not None else b""
        subject = f"{self.prefix}.{operation}"
        answer = await self.connection.call(subject, payload, timeout_s=timeout_s or self.timeout_s)
        if no_responders(answer):
            raise UnansweredError(say("no answer on {subject}: JetStream is off or still starting", subject=subject))
        error = _answers.decode(answer.data).error
        if error is not None:
            raise _api_error(operation, error)
        return answer.data

    async def ask(
        self, operation: str, body: Mapping[str, object] | None = None, *, patience_s: float | None = 30.0
    ) -> bytes:
        """A request that may be repeated without harm, repeated until there is an answer.

        Raises ApiError when JetStream refuses the request, BusError after ``patience_s`` without answer (None: never).
        """
        backoff = GrowingPause()
        trouble: Exception | None = None
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    try:
                        return await self.request(operation, body)
                    except UnansweredError as err:
                        trouble = err
                    except ApiError as err:
                        if not err.passing:
                            raise
                        trouble = err
                    await backoff.pause()
        except TimeoutError:
            why = trouble or "the connection is down"
            raise BusError(
                say(
                    "no answer from JetStream to {operation} for {patience_s} s: {why}",
                    operation=operation,
                    patience_s=patience_s,
                    why=why,
                )
            ) from trouble

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float | None = None
    ) -> PubAck | None:
        """One try to store a message; None when no stream takes the subject. Raises UnansweredError."""
        answer = await self.connection.call(subject, body, headers, timeout_s=timeout_s or self.timeout_s)
        return None if no_responders(answer) else decode_ack(answer.data)

    async def info(
        self, stream: str, *, patience_s: float | None = 30.0, checks: int = GONE_CHECKS
    ) -> StreamInfo | None:
        """The stream, or None when the server has said ``checks`` times in a row that there is none."""
        backoff = GrowingPause()
        for check in range(checks):
            if check:
                await backoff.pause()
            try:
                return _infos.decode(await self.ask(f"STREAM.INFO.{stream}", patience_s=patience_s))
            except ApiError as err:
                if err.err_code != STREAM_NOT_FOUND:
                    raise
        return None

    async def create(self, config: Mapping[str, object]) -> StreamInfo:
        """Create a stream, or find it already there with the very same configuration. Raises ApiError."""
        return _infos.decode(await self.ask(f"STREAM.CREATE.{config['name']}", config))

    async def delete(self, stream: str) -> None:
        """Delete a stream; one that is not there is fine."""
        try:
            await self.ask(f"STREAM.DELETE.{stream}")
        except ApiError as err:
            if err.err_code != STREAM_NOT_FOUND:
                raise

    async def names(self, subject: str) -> list[str]:
        """Names of the streams that take messages of ``subject`` (wildcards allowed)."""
        return _names.decode(await self.ask("STREAM.NAMES", {"subject": subject})).streams or []

    async def last(self, stream: str, subject: str, *, patience_s: float | None = 30.0) -> Message | None:
        """The last message on a subject (wildcards allowed), None when there is none. Raises ApiError."""
        return await self._get(stream, {"last_by_subj": subject}, patience_s)

    async def get(self, stream: str, seq: int, *, patience_s: float | None = 30.0) -> Message | None:
        """The message with a sequence, None when there is none. Raises ApiError."""
        return await self._get(stream, {"seq": seq}, patience_s)

    async def next(self, stream: str, subject: str, seq: int) -> Message | None:
        """The first message on a subject with at least sequence ``seq``, None when there is none."""
        return await self._get(stream, {"next_by_subj": subject, "seq": seq}, 30.0)

    async def create_consumer(
        self,
        stream: str,
        name: str,
        after: int,
        *,
        idle_s: float,
        headers_only: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """One try to create a consumer that reads the copy of one server, whatever its subjects, behind a sequence.

        Returns the name of that server, empty where there is only one. The server removes a consumer that is not asked
        for ``idle_s`` seconds. Raises ApiError, UnansweredError.
        """
        config: dict[str, object] = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": int(idle_s * _NS),
            "num_replicas": 1,
            "mem_storage": True,
        }
        if headers_only:
            config["headers_only"] = True
        body = {"stream_name": stream, "config": config, "action": "create"}
        answer = await self.request(f"CONSUMER.CREATE.{stream}.{name}", body, timeout_s=timeout_s)
        return _consumers.decode(answer).cluster.leader

    async def drop_consumer(self, stream: str, name: str) -> None:
        """Let go of a consumer. Never raises and waits for no answer: an idle consumer is removed anyway."""
        with contextlib.suppress(BusError, UnansweredError):
            await self.connection.publish(f"{self.prefix}.CONSUMER.DELETE.{stream}.{name}", b"")

    async def _get(self, stream: str, body: Mapping[str, object], patience_s: float | None) -> Message | None:
        try:
            answer = await self.ask(f"STREAM.MSG.GET.{stream}", body, patience_s=patience_s)
        except ApiError as err:
            if err.err_code == NO_MESSAGE:
                return None
            raise
        message = _messages.decode(answer).message
        return Message(
            subject=message.subject,
            seq=message.seq,
            data=message.data,
            headers=parse_headers(message.hdrs),
            time=message.time,
        )


def decode_ack(data: bytes) -> PubAck:
    """A publish acknowledgement from its JSON."""
    return _acks.decode(data)


def parse_headers(raw: bytes) -> dict[str, str]:
    """Message headers from their wire form, the version line skipped."""
    lines = (line.partition(":") for line in raw.decode("utf-8", "replace").split("\r\n")[1:])
    return {name.strip(): value.strip() for name, colon, value in lines if colon}


def _api_error(request: str, error: _Error) -> ApiError:
    return ApiError(request, error.code, error.err_code, error.description)
