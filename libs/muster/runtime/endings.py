"""Why a process ended, written down beside the log: `muster doctor` tells it.

Key ``ended.<user>`` of the cell's state bucket; the next process of the user removes it once it has lasted.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from msgspec import Struct

from muster.bus.errors import BusError, ConnectError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus

ENDED = "ended"
"""Below it in the state bucket: one key for each user."""
LASTED_S = 10.0
"""A process that has run for so long does not end as the one before did."""
LIMIT_S = 3.0
"""So long a process that ends may take to write down why."""
MOST = 2_000
"""Characters that are kept."""


class ProcessEnd(Struct, frozen=True):
    """A process ended for something that a restart does not correct. ``at``: ms since the epoch."""

    at: int
    why: str


_endings = msgspec.json.Decoder(ProcessEnd)


async def write_ending(config: Config, user: str, why: Exception, at: int) -> None:
    """Write down why a process of a user ends, by a connection of its own; nothing where NATS does not take it."""
    if isinstance(why, ConnectError):
        return
    with contextlib.suppress(BusError, UnansweredError, TimeoutError, OSError):
        async with asyncio.timeout(LIMIT_S):
            connection = await connect_bus(config, f"muster-{user}-ends", lambda _event, _fields: None)
            try:
                bucket = _bucket(JetStream(connection), config.cell)
                entry = await bucket.get(f"{ENDED}.{user}")
                body = msgspec.json.encode(ProcessEnd(at, str(why)[:MOST]))
                await bucket.put(f"{ENDED}.{user}", body, revision=entry.revision if entry is not None else 0)
            finally:
                await connection.close()


async def withdraw_ending(js: JetStream, cell: str, user: str) -> None:
    """Remove what was written of a user, once its process has lasted."""
    await asyncio.sleep(LASTED_S)
    with contextlib.suppress(UnansweredError, BusError):
        entry = await _bucket(js, cell).get(f"{ENDED}.{user}")
        if entry is not None and entry.value is not None:
            await _bucket(js, cell).delete(f"{ENDED}.{user}", revision=entry.revision)


async def endings(js: JetStream, cell: str) -> dict[str, ProcessEnd]:
    """Those that are written down, by user. Raises BusError."""
    ends: dict[str, ProcessEnd] = {}
    for key in await _bucket(js, cell).keys(ENDED):
        entry = await _bucket(js, cell).get(key)
        if entry is not None and entry.value is not None:
            with contextlib.suppress(*UNREADABLE):
                ends[key.partition(".")[2]] = _endings.decode(entry.value)
    return ends


def _bucket(js: JetStream, cell: str) -> KvBucket:
    return KvBucket(js, subjects.state_bucket(cell))
