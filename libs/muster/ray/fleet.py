"""The heads of all clusters: a client each, read side by side, closed when the cluster is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from muster.model.raydemand import RayDemand
from muster.ports import Clock
from muster.ray.heads import Head
from muster.ray.reader import HeadReader, OnRead, unnoticed

SIDE_BY_SIDE = 16
"""Heads that are read at the same time."""
EVERY_MS = 2_000
"""How often a head is read."""
LONGEST_MS = 60_000
"""How often, at the least, a head is read that does not answer."""


class Heard(Struct, frozen=True):
    """The news of a head since its last report."""

    head: Head
    demand: RayDemand
    read_at: int
    """ms since the epoch, before it was asked."""


class Fleet:
    """Reads all heads, each head in a task of its own, so that a slow head delays no other.

    ``tell``: called with each new demand; a settled cluster is silent. ``tasks``: the group of the tasks. ``make``:
    gives the reader of a head, from the known demand.
    """

    def __init__(
        self,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        tell: Callable[[Heard], None],
        *,
        on_read: OnRead = unnoticed,
        make: Callable[[Head, RayDemand | None], HeadReader] | None = None,
        every_ms: int = EVERY_MS,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._tell = tell
        self._every_ms = every_ms
        self._make = make or (lambda head, known: HeadReader(head, clock=clock, known=known, on_read=on_read))
        self._followed: dict[str, tuple[HeadReader, asyncio.Task[None]]] = {}
        self._limit = asyncio.Semaphore(SIDE_BY_SIDE)

    def reader(self, uid: str) -> HeadReader | None:
        """The reader of a RayCluster."""
        return self._followed[uid][0] if uid in self._followed else None

    async def follow(self, heads: Mapping[str, Head], known: Mapping[str, RayDemand]) -> None:
        """Read these heads from now on, by uid of the RayCluster; close others, and open again what changed."""
        for uid in [uid for uid, (reader, _) in self._followed.items() if heads.get(uid) != reader.head]:
            reader, task = self._followed.pop(uid)
            task.cancel()
            await asyncio.wait([task])
            await reader.close()
        for uid, head in heads.items():
            if uid not in self._followed:
                reader = self._make(head, known.get(uid))
                self._followed[uid] = (reader, self._tasks.create_task(self._read(reader)))

    async def close(self) -> None:
        """Close all connections."""
        await self.follow({}, {})

    async def _read(self, reader: HeadReader) -> None:
        while True:
            async with self._limit:
                before, now = reader.demand, self._clock.now()
                demand = await reader.read()
            if demand != before:
                self._tell(Heard(reader.head, demand, now))
            await asyncio.sleep(min(LONGEST_MS, self._every_ms << min(reader.failures, 10)) / 1000)
