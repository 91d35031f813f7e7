"""Why a process ended, or waits for a person, written down beside the log: `muster doctor` tells it.

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
from muster.ports import Clock
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
    waits: bool = False
    """The process is there, and waits: another process of the user may do the work."""


_endings = msgspec.json.Decoder(ProcessEnd)


async def write_ending(config: Config, user: str, why: Exception, at: int) -> None:
    """Write down why a process of a user ends, by a connection of its own; nothing where NATS does not take it."""
    if isinstance(why, ConnectError):
        return
    with contextlib.suppress(BusError, UnansweredError, TimeoutError, OSError):
        async with asyncio.timeout(LIMIT_S):
            connection = await connect_bus(config, f"muster-{user}-ends", lambda _event, _fields: None)
            try:
                await _put(JetStream(connection), config.cell, user, ProcessEnd(at, str(why)[:MOST]))
            finally:
                await connection.close()


async def write_wait(js: JetStream, cell: str, user: str, clock: Clock, why: str) -> None:
    """Write down the wait of a process of a user; nothing where NATS does not take it."""
    with contextlib.suppress(BusError, UnansweredError, TimeoutError):
        async with asyncio.timeout(LIMIT_S):
            await _put(js, cell, user, ProcessEnd(clock.now(), why[:MOST], waits=True))


async def _put(js: JetStream, cell: str, user: str, end: ProcessEnd) -> None:
    bucket, key = _bucket(js, cell), f"{ENDED}.{user}"
    entry = await bucket.get(key)
    await bucket.put(key, msgspec.json.encode(end), revision=entry.revision if entry is not None else 0)


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
