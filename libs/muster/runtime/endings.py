"""Why a process does not do its work, written down beside the log: `muster doctor` tells it.

Key ``ended.<user>`` of the cell's state bucket. A process writes the key when it ends for something that a restart does
not correct, and again and again while /readyz answers no; one that has nothing to say for a while removes the key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.bus.beat import beat
from muster.bus.errors import BusError, ConnectError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus

ENDED = "ended"
"""Below it in the state bucket: one key for each user."""
RESTART = 75
"""Exit code: nothing is wrong with the configuration, start me again (another log, a hole in the log)."""
UNAVAILABLE = 69
"""Exit code: something this process needs cannot be reached."""
MISCONFIGURED = 78
"""Exit code: the configuration cannot work as it is."""
LASTED_S = 10.0
"""A process that has been ready for so long does not end as the one before did."""
UNREADY_S = 4.0
"""What a process lacks for less is not written down."""
AGAIN_S = 10.0
"""How often a process that still lacks it says so."""
LOOK_S = 1.0
LIMIT_S = 3.0
"""So long writing down, or removing, may take."""
MOST = 2_000
"""Characters that are kept."""


class ProcessEnd(Struct, frozen=True):
    """A process ended for something that a restart does not correct, or runs and is not ready (``waits``).

    ``at``: ms since the epoch, by the broker where it is read.
    """

    at: int
    why: str
    waits: bool = False


_endings = msgspec.json.Decoder(ProcessEnd)


async def write_ending(config: Config, user: str, why: Exception, at: int) -> None:
    """Write down why a process of a user ends, by a connection of its own; nothing where NATS does not take it."""
    if not isinstance(why, ConnectError):
        await _write(config, user, ProcessEnd(at, str(why)[:MOST]))


async def tell_lacks(config: Config, user: str, lacks: Callable[[], Sequence[str]]) -> None:
    """Keep written down what a process lacks for its work, until cancelled; remove what was written of its user once it
    has lacked nothing.
    """
    loop = asyncio.get_running_loop()
    since, told_at, lacking, told, own = loop.time(), 0.0, True, True, False
    while True:
        await beat(LOOK_S)
        now, why = loop.time(), "; ".join(lacks())
        if bool(why) != lacking:
            lacking, since = bool(why), now
        if lacking and now - since >= UNREADY_S and now - told_at >= AGAIN_S:
            await _write(config, user, ProcessEnd(0, why[:MOST], waits=True))
            told_at, told, own = now, True, True
        elif not lacking and told and (own or now - since >= LASTED_S):
            await _remove(config, user)
            told_at, told, own = 0.0, False, False


async def endings(js: JetStream, cell: str) -> dict[str, ProcessEnd]:
    """Those that are written down, by user. Raises BusError."""
    ends: dict[str, ProcessEnd] = {}
    bucket = _bucket(js, cell)
    for key in await bucket.keys(ENDED):
        entry = await bucket.get(key)
        if entry is not None and entry.value is not None:
            with contextlib.suppress(*UNREADABLE):
                at = int(datetime.fromisoformat(entry.time).timestamp() * 1000)
                ends[key.partition(".")[2]] = replace(_endings.decode(entry.value), at=at)
    return ends


async def _write(config: Config, user: str, ending: ProcessEnd) -> None:
    async def put(bucket: KvBucket, key: str) -> None:
        entry = await bucket.get(key)
        await bucket.put(key, msgspec.json.encode(ending), revision=entry.revision if entry is not None else 0)

    await _beside(config, user, put)


async def _remove(config: Config, user: str) -> None:
    async def delete(bucket: KvBucket, key: str) -> None:
        entry = await bucket.get(key)
        if entry is not None and entry.value is not None:
            await bucket.delete(key, revision=entry.revision)

    await _beside(config, user, delete)


async def _beside(config: Config, user: str, act: Callable[[KvBucket, str], Awaitable[None]]) -> None:
    """Act on the key of a user, by a connection of its own: that of the process may be what fails. What NATS does not
    take within LIMIT_S is not done.
    """
    with contextlib.suppress(BusError, UnansweredError, TimeoutError, OSError):
        async with asyncio.timeout(LIMIT_S):
            connection = await connect_bus(config, f"muster-{user}-tells", lambda _event, _fields: None)
            try:
                await act(_bucket(JetStream(connection), config.cell), f"{ENDED}.{user}")
            finally:
                await connection.close()


def _bucket(js: JetStream, cell: str) -> KvBucket:
    return KvBucket(js, subjects.state_bucket(cell))
