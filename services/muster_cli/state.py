"""The present state of a cell: the identity and size of the log, and the leader of each stage."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from muster.bus.lease import JetStreamLease
from muster.bus.shares import LogUsage
from muster.core.reading.watched import WATCHED
from muster.events.speakers import DECIDING
from muster.events.subjects import log_stream
from muster_cli.reading import LogReading

SEATS: tuple[tuple[str, str], ...] = (
    *(("watcher", shard) for shard in WATCHED),
    *((name, "0") for name in DECIDING),
    ("actuator", "0"),
    ("presenter", "0"),
    ("publisher", "0"),
    ("keeper", "0"),
)
"""(stage, shard) of every lease there is."""


class Lead(Struct, frozen=True):
    """The holder of one lease; an empty process: none."""

    stage: str
    shard: str
    process: str


class CellState(Struct, frozen=True):
    """What ``muster log info`` shows."""

    cell: str
    url: str
    stream: str
    log_id: str
    generation: int
    usage: LogUsage
    leads: list[Lead]

    @property
    def percent(self) -> int:
        """How full the log is."""
        return self.usage.bytes * 100 // self.usage.max_bytes if self.usage.max_bytes > 0 else 0


async def cell_state(reading: LogReading) -> CellState:
    """Ask the bus. Raises BusError."""
    identity = reading.log.identity
    usage, leads = await asyncio.gather(reading.log.usage(), leaders(reading))
    return CellState(
        cell=identity.cell,
        url=reading.place.config.nats_url,
        stream=log_stream(identity.cell, identity.generation),
        log_id=identity.log_id,
        generation=identity.generation,
        usage=usage,
        leads=leads,
    )


async def leaders(reading: LogReading) -> list[Lead]:
    """The present leader of each stage."""

    async def ask(stage: str, shard: str) -> Lead:
        holder = await JetStreamLease(reading.js, reading.log.identity, stage, shard, "muster-cli").holder()
        return Lead(stage, shard, holder.process if holder is not None else "")

    return list(await asyncio.gather(*(ask(stage, shard) for stage, shard in SEATS)))
