"""What each server has stored of a stream, read along so that it can be compared.

A consumer with one replica is made on some server that has the stream, and reads what that one has. So consumers are
made until there is one on each. A message that a server cannot read (a byte of it has changed) is passed over there.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable

import msgspec
from msgspec import Struct, field
from nats.aio.msg import Msg

from muster.bus.errors import ApiError, UnansweredError
from muster.bus.jetstream import JetStream

BATCH = 1_000
"""Messages that are read of each copy in one step: 17 million a day, with a step every 5 s."""
BATCH_BYTES = 8 << 20
ANSWER_S = 5.0
TRIES = 6
"""How many consumers are made in a step at most: three servers have one each after five or six."""
IDLE_S = 120.0
"""A consumer that is not asked for so long is removed by the server."""
_REQUEST = msgspec.json.encode({"batch": BATCH, "max_bytes": BATCH_BYTES, "no_wait": True})


class _Reading(Struct):
    """One copy being read.

    ``pending``: {sequence: digest} of messages that were not compared yet; ``upto``: the last one that was read.
    """

    consumer: str
    upto: int
    number: int = 0
    """How many messages the consumer has sent."""
    pending: dict[int, bytes] = field(default_factory=dict)

    def taken(self, last: int) -> dict[int, bytes]:
        """What was read up to a sequence, which is not kept."""
        digests = {seq: digest for seq, digest in self.pending.items() if seq <= last}
        for seq in digests:
            del self.pending[seq]
        return digests


class CopiesRead(Struct, frozen=True):
    """What the copies hold from ``first`` to ``last``: {server: {sequence: digest}}; ``ended``: one holds no more."""

    first: int
    last: int
    copies: dict[str, dict[int, bytes]]
    ended: bool


class CopyReader:
    """The copies of one stream from its first message to the present end. ``first``: its first sequence."""

    def __init__(self, js: JetStream, stream: str, servers: Iterable[str], first: int) -> None:
        self._js = js
        self.stream = stream
        self.servers = frozenset(servers)
        self._upto = first - 1
        """All copies were read up to here."""
        self._readings: dict[str, _Reading] = {}

    async def step(self) -> CopiesRead:
        """Read on, at most BATCH messages of each copy. Raises BusError."""
        for _ in range(TRIES):
            if self.servers != self._readings.keys():
                await self._place()
        ended = False
        for reading in list(self._readings.values()):
            if reading.upto == self._upto and self.servers == self._readings.keys():
                ended |= not await self._read(reading)
        first, last = self._upto + 1, self._upto
        if self.servers != self._readings.keys():
            return CopiesRead(first, last, {}, ended=False)
        last = min(reading.upto for reading in self._readings.values())
        taken = {name: reading.taken(last) for name, reading in self._readings.items()}
        self._upto = max(self._upto, last)
        return CopiesRead(first, last, taken, ended)

    async def close(self) -> None:
        """Let go of the consumers."""
        for reading in self._readings.values():
            await self._js.drop_consumer(self.stream, reading.consumer)
        self._readings.clear()

    async def _place(self) -> None:
        """Make a consumer, on a server that chance chooses; it is kept where there is none yet."""
        name = f"compares-{secrets.token_hex(6)}"
        try:
            leader = await self._js.create_consumer(self.stream, name, self._upto, idle_s=IDLE_S)
        except (UnansweredError, ApiError):
            return
        where = leader or next(iter(self.servers), "")
        if where in self._readings or where not in self.servers:
            await self._js.drop_consumer(self.stream, name)
        else:
            self._readings[where] = _Reading(name, self._upto)

    async def _read(self, reading: _Reading) -> bool:
        """Take the next batch of a copy; whether there was one. One that does not answer in good order is given up."""
        connection, done = self._js.connection, asyncio.Event()
        inbox, count, whole = connection.new_inbox(), 0, True

        def take(message: Msg) -> None:
            nonlocal count, whole
            parts = message.reply.split(".")[-7:] if message.reply else []
            if len(parts) == 7:
                # ... stream.consumer.delivered.sequence.consumer-sequence.nanoseconds.pending
                seq, number = int(parts[3]), int(parts[4])
                whole &= number == reading.number + 1
                reading.number, reading.upto, count = number, seq, count + 1
                reading.pending[seq] = digest_of(message.subject, message.data)
            else:
                # Nothing more, or no more than the bytes that were asked for; anything else is no answer.
                whole &= (message.headers or {}).get("Status", "") in ("404", "408", "409")
            if len(parts) != 7 or count == BATCH:
                done.set()

        subscription = await connection.subscribe(inbox, take)
        subject = f"{self._js.prefix}.CONSUMER.MSG.NEXT.{self.stream}.{reading.consumer}"
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.publish(subject, _REQUEST, reply=inbox)
                await done.wait()
        except (TimeoutError, UnansweredError):
            whole = False
        finally:
            await connection.unsubscribe(subscription)
        if not whole:
            self._readings = {name: other for name, other in self._readings.items() if other is not reading}
        return count > 0


def digest_of(subject: str, body: bytes) -> bytes:
    """What a message is compared by."""
    return hashlib.blake2b(b"\0".join((subject.encode(), body)), digest_size=16).digest()
