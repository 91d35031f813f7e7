"""The stream for outsiders: one message per public event, at least once, exactly once by ``ce-id``.

Messages are sent without waiting for earlier acknowledgements, so after a crash the last stored message does not prove
that all earlier messages are stored. Each message therefore carries the newest event up to which everything was
acknowledged at the time of sending; a new publisher goes on from there. Messages sent twice have the same ``ce-id``
(the server drops most duplicates). This event is also kept beside the log, for a stream without any message left.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping

from msgspec import Struct
from nats.aio.msg import Msg

from muster.bus.connection import Connection, no_responders
from muster.bus.errors import UnansweredError
from muster.bus.jetstream import MESSAGE_ID, GrowingPause, JetStream, PubAck, decode_ack
from muster.bus.kv import KvBucket
from muster.events import subjects

ACK_TIMEOUT_S = 5.0

CE_ID = "ce-id"
SETTLED = "muster-settled"
"""Header: the ce-id up to which all events of the cell were acknowledged."""
DIGEST = "muster-digest"
"""Header: what tells the commit that the event is from from any other, in hexadecimal."""
KEPT = "published"
"""In the state bucket: the former with the latter, at most as far."""


class Published(Struct, frozen=True):
    """The end of the public stream of a cell: ids of the last message, and of the last with none missing before.

    ``digest``: of the commit that ``newest`` is from, in hexadecimal; empty where it is not known.
    """

    last: str
    settled: str
    digest: str = ""

    @property
    def newest(self) -> str:
        """The id of the newest event that is known: of the last message, else the other one."""
        return self.last or self.settled


class _Sent(Struct, frozen=True):
    event: str
    subject: str
    headers: Mapping[str, str]
    body: bytes
    answer: asyncio.Future[Msg] | None


class PublicPublisher:
    """Copies one cell's public events to the public stream, in order, at most ``window`` on their way at once."""

    def __init__(self, js: JetStream, cell: str, *, window: int = 256) -> None:
        self._js = js
        self._connection: Connection = js.connection
        self._cell = cell
        self._window = window
        self._sent: deque[_Sent] = deque()
        self._settled = ""
        self._digest = ""
        self._beside = KvBucket(js, subjects.state_bucket(cell))
        self._kept = ""

    async def resume(self) -> Published:
        """Where to go on: after ``settled``; both texts are empty when nothing was published yet. Call it first."""
        message = await self._js.last(subjects.PUBLIC_STREAM, subjects.public_cell_subjects(self._cell))
        if message is not None:
            self._settled = message.headers.get(SETTLED, "")
            return Published(message.headers.get(CE_ID, ""), self._settled, _hex(message.headers.get(DIGEST, "")))
        info = await self._js.info(subjects.PUBLIC_STREAM)
        if info is not None and info.state.last_seq:  # It had messages: they are too old by now, or were removed.
            entry = await self._beside.get(KEPT)
            self._kept = (entry.value or b"").decode(errors="replace") if entry is not None else ""
            self._settled, _, self._digest = self._kept.partition(" ")
        return Published("", self._settled, _hex(self._digest))

    async def keep(self) -> None:
        """Write down beside the log up to where all is acknowledged. Raises BusError, UnansweredError."""
        settled = f"{self._settled} {self._digest}".rstrip()
        if settled == self._kept:
            return
        entry = await self._beside.get(KEPT)
        await self._beside.set(KEPT, settled.encode(), revision=entry.revision if entry is not None else 0)
        self._kept = settled

    async def publish(self, subject: str, headers: Mapping[str, str], body: bytes, digest: str = "") -> None:
        """Send an event; ``headers`` must hold its ``ce-id``. Waits while the window is full or the bus is away.
        ``digest``: of the commit with the event, in hexadecimal.

        Raises BusError when this or an earlier event cannot be published at all.
        """
        while self._sent and (len(self._sent) >= self._window or self._answered(self._sent[0])):
            await self._settle_first()
        event = headers[CE_ID]
        sent = {**headers, MESSAGE_ID: event, SETTLED: self._settled, DIGEST: digest}
        try:
            answer = await self._connection.send(subject, body, sent)
        except UnansweredError:
            answer = None
        self._sent.append(_Sent(event=event, subject=subject, headers=sent, body=body, answer=answer))

    async def settle(self) -> str:
        """Wait until everything sent is acknowledged; the ce-id of the last event, empty for none. Raises BusError."""
        while self._sent:
            await self._settle_first()
        return self._settled

    def _answered(self, sent: _Sent) -> bool:
        return sent.answer is None or sent.answer.done()

    async def _settle_first(self) -> None:
        sent = self._sent[0]
        if not await self._acknowledged(sent):
            await self._send_again(sent)
        self._sent.popleft()
        self._settled, self._digest = sent.event, sent.headers[DIGEST]

    async def _acknowledged(self, sent: _Sent) -> bool:
        # Cancelled: an earlier wait for it was given up.
        if sent.answer is None or sent.answer.cancelled():
            return False
        try:
            if not sent.answer.done():
                async with asyncio.timeout(ACK_TIMEOUT_S):
                    await sent.answer
            message = sent.answer.result()
        except (TimeoutError, UnansweredError):
            return False
        return not no_responders(message) and self._accepted(sent, decode_ack(message.data))

    async def _send_again(self, sent: _Sent) -> None:
        # The server drops it within its duplicate window if it has it; after that the ce-id tells outsiders.
        backoff = GrowingPause()
        while True:
            try:
                ack = await self._js.publish(sent.subject, sent.body, sent.headers, timeout_s=ACK_TIMEOUT_S)
            except UnansweredError:
                ack = None
            if ack is not None and self._accepted(sent, ack):
                return
            await backoff.pause()

    def _accepted(self, sent: _Sent, ack: PubAck) -> bool:
        """Whether it is stored; False when trying again may help, else raises BusError."""
        refusal = ack.refusal(f"cannot publish {sent.event} on {sent.subject}")
        if refusal is not None and refusal.code < 500:
            raise refusal
        return refusal is None


def _hex(text: str) -> str:
    """Empty where it is not hexadecimal."""
    return text if re.fullmatch("([0-9a-f]{2})+", text) else ""
