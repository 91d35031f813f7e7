"""One reader for all stages of a process: the log is read and decoded once, and every follower folds from one list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

from muster.bus.log import LogUsage
from muster.events.envelope import Commit, Stored
from muster.ports import Clock, Log, LogIdentity

WINDOW = 10_000
"""Commits the reader may be ahead of the slowest follower."""

BATCH = 500


class MeasuredLog(Log, Protocol):
    """A log that tells how full it is."""

    async def usage(self) -> LogUsage: ...

    def waits_s(self) -> float: ...


class SharedLog:
    """A Log whose followers share one reader. Call :meth:`begin`, then run :meth:`pump` beside them.

    ``clock``: counts as the broker's own, where the broker is ours alone and time may run faster than real time.
    """

    def __init__(self, log: MeasuredLog, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock
        self._kept: list[Stored] = []
        self._base = 0
        """Sequence before the first commit kept."""
        self._cursors: dict[asyncio.Event, int] = {}
        """{what wakes a follower: the last sequence it has been given}"""
        self._room = asyncio.Event()
        """Set when the slowest follower has gone on."""
        self._end_reached = False

    @property
    def identity(self) -> LogIdentity:
        return self._log.identity

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        return await self._log.append(commit, expected=expected, headers=headers)

    async def prove(self, seq: int, digest: bytes) -> None:
        await self._log.prove(seq, digest)

    async def end(self) -> int:
        return await self._log.end()

    async def last(self, stage: str, shard: str) -> int:
        return await self._log.last(stage, shard)

    async def time(self) -> int:
        return await self._log.time() if self._clock is None else self._clock.now()

    async def usage(self) -> LogUsage:
        """How full the log is."""
        return await self._log.usage()

    def waits_s(self) -> float:
        """For how many seconds a commit has been waiting to be stored; 0 where none is."""
        return self._log.waits_s()

    async def begin(self) -> None:
        """Decide where the shared reader begins: at the end of the log as it is now. Call it before any follower."""
        self._base = await self._log.end()

    async def pump(self) -> None:
        """Read for the followers, for ever; raises what the log raises."""
        async with aclosing(self._log.follow(self._base)) as stream:
            async for batch in stream:
                self._end_reached = self._end_reached or not batch
                if self._cursors:
                    self._kept += batch
                else:
                    self._base += len(batch)
                for news in self._cursors:
                    news.set()
                while len(self._kept) >= WINDOW:
                    self._room.clear()
                    await self._room.wait()

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        """As :meth:`ports.Log.follow`; what lies before the shared reader is read apart, once."""
        news, told = asyncio.Event(), False
        self._cursors[news] = after
        try:
            while True:
                if after < self._base:
                    async with aclosing(self._log.follow(after, last)) as stream:
                        async for batch in stream:
                            if not batch:
                                break
                            after = self._cursors[news] = batch[-1].seq
                            last = batch[-1].digest
                            yield batch
                    continue
                batch = self._kept[after - self._base : after - self._base + BATCH]
                if batch:
                    after = self._cursors[news] = batch[-1].seq
                    self._forget()
                    yield batch
                elif self._end_reached and not told:
                    told = True
                    yield []
                else:
                    news.clear()
                    await news.wait()
        finally:
            del self._cursors[news]
            self._forget()

    def _last(self) -> int:
        return self._base + len(self._kept)

    def _forget(self) -> None:
        """Drop what every follower has been given."""
        seen = min((self._last(), *self._cursors.values())) - self._base
        if seen >= min(BATCH, len(self._kept)) > 0:
            del self._kept[:seen]
            self._base += seen
            self._room.set()
