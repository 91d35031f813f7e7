"""Ordered reading of a stream without holes: the receiving half of the log.

A consumer of our own (ephemeral, no acknowledgements, no filter: a filter on everything is slow) gets two overlapping
pull requests, so that the server always has a request to fill during our work. After any disturbance (reconnect,
silence, consumer lost, a sequence that does not follow) a new consumer starts right after the last message handed out;
so a hole that remains is a hole in the stream.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from muster.bus.connection import Connection
from muster.bus.errors import STREAM_NOT_FOUND, ApiError, BusError, UnansweredError
from muster.bus.jetstream import GrowingPause, JetStream, Message
from muster.model.language import say
from muster.ports import LogGapError

PULL = 1000
"""Messages asked for by one request."""

PULL_BYTES = 8 * 1024 * 1024
"""What one request may bring: two of them and the rest of a third are the most that waits in memory."""

BATCH = 500
"""Messages handed out at once."""

HEARTBEAT_S = 1.0
"""An idle server says so this often; after more than twice as long without a word the consumer is made again."""

EXPIRES_S = 30.0
"""How long a request waits at the server. When the requests stop, the consumer vanishes after as long."""

GAPS = 10
"""A message that so many consumers in a row do not have is missing in the stream: each reads the copy of one server,
which may be damaged alone.
"""

CREATED_S = 16.0
"""How long a request for a consumer waits for an answer."""

QUIET_S = 2.0
"""How often a reader that gets nothing asks why."""

_NS = 1_000_000_000
_NS_PER_MS = 1_000_000


class Raw:
    """A message as stored: sequence in the stream, body, headers, subject, time of storing (ms)."""

    __slots__ = ("data", "headers", "seq", "stored_at", "subject")

    def __init__(self, seq: int, data: bytes, headers: dict[str, str] | None, subject: str, stored_at: int) -> None:
        self.seq = seq
        self.data = data
        self.headers = headers
        self.subject = subject
        self.stored_at = stored_at


class StreamReader:
    """Messages of a stream after a sequence. For one task; close with :meth:`close`.

    ``check`` is awaited before every new consumer, and raises when the stream is no longer the right stream.
    ``headers_only``: messages come without their bodies, and a header has the size. ``quiet``: awaited beside the
    reading while nothing comes, and raises when nothing will.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        after: int,
        check: Callable[[int], Awaitable[None]],
        *,
        heartbeat_s: float = HEARTBEAT_S,
        headers_only: bool = False,
        quiet: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._js = js
        self._connection: Connection = js.connection
        self._stream = stream
        self._last = after
        self._check = check
        self._heartbeat_s = heartbeat_s
        self._headers_only = headers_only
        self._quiet = quiet
        self._asking: asyncio.Task[None] | None = None
        self._buffer: deque[Raw] = deque()
        self._outstanding = 0
        """Messages that the server may still send for the requests made."""
        self._consumer = ""
        self._inbox = ""
        self._requests = 0
        self._subscription: Subscription | None = None
        self._lost = "start"
        """Why the consumer has to be made again; empty while it is fine."""
        self._gaps = 0
        """How many consumers in a row lacked the next message."""
        self._fresh = False
        """Nothing was handed out from this consumer yet: its first message must be the next one."""
        self._epoch = 0
        self._waiter: asyncio.Future[None] | None = None
        self._heard = 0.0
        self._loop = asyncio.get_running_loop()
        self._stop_listening = self._connection.listen(self._wake)

    async def read(self) -> list[Raw]:
        """The next messages, at least one and at most BATCH, waiting only when there is none.

        Raises LogGapError when a sequence is missing in the stream, what ``check`` and ``quiet`` raise, and the failure
        of the connection.
        """
        since = 0.0
        while True:
            if self._buffer:
                batch = self._take()
                if batch:
                    return batch
            since = self._ask_why(since or self._loop.time())
            if self._connection.failure is not None:
                raise self._connection.failure
            if self._lost or self._epoch != self._connection.epoch:
                await self._restart()
            try:
                await self._ask()
            except UnansweredError:
                self._lost = "not connected"
                continue
            if not self._buffer and not self._lost and self._epoch == self._connection.epoch:
                await self._wait()

    async def close(self) -> None:
        """Let go of the consumer. Never raises and never waits for an answer."""
        self._stop_listening()
        if self._asking is not None:
            self._asking.cancel()
            # Whatever it found meanwhile comes too late.
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._drop_consumer()

    def _ask_why(self, since: float) -> float:
        """Ask once nothing has come for QUIET_S, and hear the answer. Returns since when nothing came or was asked."""
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking, None
            asked.result()
        now = self._loop.time()
        if self._quiet is None or self._asking is not None or now < since + QUIET_S:
            return since
        self._asking = self._loop.create_task(self._quiet())
        self._asking.add_done_callback(lambda _: self._wake())
        return now

    def _take(self) -> list[Raw]:
        batch: list[Raw] = []
        last = self._last
        while self._buffer and len(batch) < BATCH:
            raw = self._buffer.popleft()
            if raw.seq == last + 1:
                batch.append(raw)
                last = raw.seq
            elif raw.seq > last:
                self._buffer.clear()
                if self._fresh and not batch and self._gaps >= GAPS:
                    raise LogGapError(
                        say(
                            "stream {stream} has no message {last}, the next one is {seq}: messages were removed "
                            "from a log that must keep all; stop and compare it with its archive",
                            stream=self._stream,
                            last=last + 1,
                            seq=raw.seq,
                        )
                    )
                # Lost on the way to us, or in the copy of one server: another consumer tells.
                self._gaps += self._fresh and not batch
                self._lost = f"message {raw.seq} after {last}"
        self._last = last
        if batch:
            self._fresh, self._gaps = False, 0
        return batch

    async def _restart(self) -> None:
        if self._lost != "start":
            self._connection.notice(
                "bus_reader_restarts",
                {"stream": self._stream, "after": self._last, "cause": self._lost or "reconnected"},
            )
        await self._drop_consumer()
        backoff = GrowingPause()
        # A server without a copy of the stream, or a dead server, never answers for a consumer given to that server,
        # and a large stream takes a while: every request has time, others are made meanwhile, and the first consumer
        # that exists is read. The server removes the others, which get no requests.
        asked: dict[asyncio.Task[str], tuple[str, int]] = {}
        try:
            for patience_s in itertools.chain((2.0, 2.0, 4.0, 4.0, 8.0), itertools.repeat(CREATED_S)):
                await self._connection.wait_up()
                epoch = self._connection.epoch
                await self._check(self._last)
                name = f"{self._connection.name}-{secrets.token_hex(6)}".translate(_NAME)
                asked[self._loop.create_task(self._create(name))] = (name, epoch)
                answered, _ = await asyncio.wait(asked, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                for task in answered:
                    name, epoch = asked.pop(task)
                    if await _made(task):
                        await self._begin(name, epoch)
                        return
                await backoff.pause()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _create(self, name: str) -> str:
        return await self._js.create_consumer(
            self._stream,
            name,
            self._last,
            idle_s=EXPIRES_S,
            headers_only=self._headers_only,
            timeout_s=CREATED_S,
        )

    async def _begin(self, name: str, epoch: int) -> None:
        self._epoch = epoch
        self._consumer, self._inbox = name, self._connection.new_inbox()
        self._buffer.clear()
        self._outstanding = 0
        self._heard = self._loop.time()
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._receive)
        self._lost = ""
        self._fresh = True

    async def _drop_consumer(self) -> None:
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)
            self._subscription = None
        if self._consumer:
            await self._js.drop_consumer(self._stream, self._consumer)
            self._consumer = ""

    async def _ask(self) -> None:
        """Keep two requests open. Only called when nothing is buffered: that is the back-pressure."""
        while not self._lost and self._outstanding <= PULL:
            self._requests += 1
            request = (
                f'{{"batch":{PULL},"max_bytes":{PULL_BYTES},'
                f'"expires":{int(EXPIRES_S * _NS)},"idle_heartbeat":{int(self._heartbeat_s * _NS)}}}'
            )
            self._outstanding += PULL
            await self._connection.publish(
                f"{self._js.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                request.encode(),
                reply=f"{self._inbox}.{self._requests}",
            )

    def _receive(self, message: Msg) -> None:
        self._heard = self._loop.time()
        if message.reply:
            parts = message.reply.split(".")
            try:
                # $JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer-sequence.nanoseconds....
                place = 5 if len(parts) == 9 else 7
                seq, stored_at = int(parts[place]), int(parts[place + 2]) // _NS_PER_MS
            except (IndexError, ValueError):
                self._lost = f"unknown reply subject {message.reply}"
            else:
                self._buffer.append(Raw(seq, message.data, message.headers, message.subject, stored_at))
                self._outstanding -= 1
                if not message.data and not message.headers:
                    # Between accounts it ends the answers to its request: what follows it may not arrive, while
                    # the other request still hears heartbeats.
                    self._lost = f"message {seq} is empty"
        else:
            self._status(message.headers or {})
        self._wake()

    def _status(self, headers: dict[str, str]) -> None:
        status, why = headers.get("Status", ""), headers.get("Description", "")
        if status == "100":
            return
        unsent = headers.get("Nats-Pending-Messages", "")
        # A request is over: it expired, or the next message is over its bytes. Anything else ends the consumer.
        if unsent.isdigit() and (status == "408" or "maxbytes" in why.lower() or "batch completed" in why.lower()):
            self._outstanding -= int(unsent)
        else:
            self._lost = f"{status} {why}".strip()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        limit = 2.5 * self._heartbeat_s
        timer = self._loop.call_later(limit, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        if self._connection.connected and self._loop.time() - self._heard >= limit:
            self._lost = f"silent for {limit:g} s"


async def message_at(js: JetStream, stream: str, seq: int, *, patience_s: float | None = 30.0) -> Message | None:
    """The message at a sequence; None where no copy of the stream has it.

    JetStream answers from the copy of the leader. Where that one lacks it other copies are read. Raises BusError.
    """
    if (message := await js.get(stream, seq, patience_s=patience_s)) is not None:
        return message
    info = await js.info(stream, patience_s=patience_s, checks=1)
    if info is None or info.state.last_seq < seq or len(info.cluster.members) < 2:
        return None
    reader = StreamReader(js, stream, seq - 1, _unchecked)
    try:
        async with asyncio.timeout(patience_s):
            raw = (await reader.read())[0]
    except LogGapError:
        return None
    except TimeoutError:
        raise BusError(
            say("no copy of {stream} is read for {patience_s} s", stream=stream, patience_s=patience_s)
        ) from None
    finally:
        await reader.close()
    return Message(raw.subject, raw.seq, raw.data, raw.headers or {})


async def _made(asked: asyncio.Task[str]) -> bool:
    """Whether the consumer exists; raises what will not pass."""
    try:
        await asked
    except ApiError as err:
        if not err.passing and err.err_code != STREAM_NOT_FOUND:
            raise
        return False
    except UnansweredError:
        return False
    return True


async def _unchecked(_read: int) -> None:
    return None


_NAME = str.maketrans(dict.fromkeys(".*>/\\ \t", "-"))
