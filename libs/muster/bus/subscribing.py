"""Reading the public stream, for programs of others: typed events, from the last position.

NATS keeps the position under the name of the reader: an event is acknowledged when the next is asked for, so the event
in work at the end of a program comes again. Each event arrives at least once; a repetition has the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig

from muster.bus.tlsclient import TlsClient, tls_required
from muster.events.public import PUBLIC_TYPES, PublicEvent
from muster.events.subjects import PUBLIC_STREAM

EVERYTHING = "muster.pub.v1.>"
BATCH = 100
POLL_S = 5.0
AGAIN_S = 1.0
ACK_WAIT_S = 30.0
"""What was not acknowledged for so long comes again."""
REMEMBERED = 10_000
"""Ids by which an event that comes again is left out, within one run of a program."""


class FollowedEvent(Struct, frozen=True):
    """One public event."""

    id: str
    """The same each time it arrives: store it together with your result."""
    type: str
    """``workload_admitted`` ..."""
    event: PublicEvent
    """One of ``muster.events.public``, by its type."""
    traceparent: str = ""
    """To go on with the trace of the job."""


async def follow(
    url: str = "nats://127.0.0.1:4222",
    *,
    reader: str = "reader",
    types: Collection[str] = (),
    subject: str = EVERYTHING,
    nkey_file: str = "",
    ca_file: str = "",
    api_prefix: str = "$JS.API",
) -> AsyncGenerator[FollowedEvent, None]:
    """Every public event, for ever. ``reader``: under which name NATS keeps the position, and the user where there are
    users; ``types``: only these, all for none. The last three sign in to a production NATS.

    Waits for a NATS that is away. Raises ValueError for an unknown type, PlainServerError where TLS is asked for and
    the server has none, and nats.errors.Error where it may not read.
    """
    unknown = sorted({*types} - PUBLIC_TYPES.keys())
    if unknown:
        raise ValueError(f"there is no public event {unknown[0]!r}; there are {', '.join(sorted(PUBLIC_TYPES))}")
    tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
    client = TlsClient(required=tls_required([url], tls))
    await client.connect(
        url,
        name=reader,
        max_reconnect_attempts=-1,
        inbox_prefix=f"_INBOX_{reader}".encode() if nkey_file else b"_INBOX",
        nkeys_seed=nkey_file or None,
        tls=tls,
    )
    try:
        config = ConsumerConfig(
            durable_name=reader, filter_subject=subject, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S
        )
        stream = client.jetstream(prefix=api_prefix)
        subscription = await stream.pull_subscribe(subject, durable=reader, stream=PUBLIC_STREAM, config=config)
        seen: OrderedDict[str, None] = OrderedDict()
        while True:
            try:
                messages = await subscription.fetch(BATCH, timeout=POLL_S)
            except TimeoutError:  # Nothing yet.
                continue
            except Error:  # NATS is away: what was not acknowledged comes again.
                await asyncio.sleep(AGAIN_S)
                continue
            for message in messages:
                told = _read(message)
                if told is not None and told.id not in seen and (not types or told.type in types):
                    yield told
                    seen[told.id] = None
                    if len(seen) > REMEMBERED:
                        seen.popitem(last=False)
                with contextlib.suppress(Error):
                    await message.ack()
    finally:
        await client.close()


def _read(message: Msg) -> FollowedEvent | None:
    """What a message tells; None for an event of a later version."""
    headers = message.headers or {}
    try:
        tag = str(msgspec.json.decode(message.data)["type"])
        event = msgspec.json.decode(message.data, type=PUBLIC_TYPES[tag])
    except (KeyError, TypeError, msgspec.MsgspecError):
        return None
    return FollowedEvent(headers.get("ce-id", ""), tag, event, headers.get("traceparent", ""))
