"""A reader for all stages of a process: the log is read, decoded and judged once, and all stages fold in the same
turn.

A follower at its own pace (the publisher), or one that catches up, holds no other: a follower behind by a whole window
reads for itself, until it is within the window again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol

from msgspec.structs import replace

from muster.bus.log import LogUsage
from muster.events.envelope import Commit, Stored
from muster.ports import Clock, Log, LogIdentity
from muster.runtime.runners.folding import Folding

WINDOW = 10_000
"""Commits that are kept for those that follow at their own pace, or catch up."""

BATCH = 500


class MeasuredLog(Log, Protocol):
    """A log that tells how full it is."""

    async def usage(self) -> LogUsage: ...

    def waits_s(self) -> float: ...


class Cursor:
    """A place in a shared log: up to WINDOW later commits are kept while the cursor is open.

    ``news``: called in the turn with more commits to take.
    """

    def __init__(self, log: SharedLog, news: Callable[[], None]) -> None:
        self.news = news
        self.after = 0
        """Sequence of the last commit that was taken."""
        self._log = log
        self._told = False

    def open(self, after: int) -> None:
        """Begin after a sequence; what lies before the window is :meth:`SharedLog.earlier`."""
        self.after = after
        self._log.enter(self)

    def take(self) -> list[Stored] | None:
        """What comes next; an empty list once, when the end that the log had is reached; None when nothing is kept."""
        batch = self._log.kept(self.after)
        if batch:
            self.move(batch[-1].seq)
            return batch
        if self._told or self.behind or not self._log.end_reached:
            return None
        self._told = True
        return []

    @property
    def behind(self) -> int:
        """How many commits were read and not taken."""
        return max(0, self._log.read - self.after)

    def move(self, after: int) -> None:
        """All up to there has been taken."""
        self.after = after
        self._log.forget()

    def close(self) -> None:
        self._log.leave(self)


class SharedLog:
    """A Log whose followers share a reader. Call :meth:`begin`, then run :meth:`pump` beside the followers.

    ``clock``: counts as the broker's own, if the broker belongs to this process and time may run faster than real
    time.
    """

    def __init__(self, log: MeasuredLog, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock
        self._kept: list[Stored] = []
        self._base = 0
        """Sequence before the first commit kept."""
        self._cursors: dict[Cursor, None] = {}
        self.folding = Folding()
        """The states that have caught up."""
        self.end_reached = False

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
        """How full the log is, and the time as :meth:`time` says it."""
        usage = await self._log.usage()
        return usage if self._clock is None else replace(usage, broker_ms=self._clock.now())

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
                self.end_reached = self.end_reached or not batch
                if self._cursors:
                    self._kept += batch
                    self._drop(len(self._kept) - WINDOW)
                else:
                    self._base += len(batch)
                self.folding.fold(batch)
                if not batch:
                    self.folding.reached()
                for cursor in tuple(self._cursors):
                    cursor.news()

    async def earlier(self, cursor: Cursor, last: bytes) -> AsyncGenerator[list[Stored], None]:
        """What lies before the window; it is read apart."""
        while cursor.after < self._base:
            async with aclosing(self._log.follow(cursor.after, last)) as stream:
                async for batch in stream:
                    if not batch:
                        break
                    last = batch[-1].digest
                    cursor.move(batch[-1].seq)
                    yield batch

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        """As :meth:`ports.Log.follow`."""
        news = asyncio.Event()
        cursor = Cursor(self, news.set)
        cursor.open(after)
        try:
            while True:
                news.clear()
                async with aclosing(self.earlier(cursor, last)) as stream:
                    async for batch in stream:
                        last = batch[-1].digest
                        yield batch
                while (stored := cursor.take()) is not None:
                    last = stored[-1].digest if stored else last
                    yield stored
                await news.wait()
        finally:
            cursor.close()

    def kept(self, after: int, most: int = BATCH) -> list[Stored]:
        """What was read after a sequence; nothing where that lies before the window."""
        return [] if after < self._base else self._kept[after - self._base : after - self._base + most]

    @property
    def read(self) -> int:
        """Sequence of the last commit that was read."""
        return self._base + len(self._kept)

    def forget(self) -> None:
        """Drop what every follower has taken."""
        seen = min((self.read, *(cursor.after for cursor in self._cursors))) - self._base
        if seen >= min(BATCH, len(self._kept)) > 0:
            self._drop(seen)

    def _drop(self, count: int) -> None:
        """Keep the oldest no longer."""
        if count > 0:
            del self._kept[:count]
            self._base += count

    def enter(self, cursor: Cursor) -> None:
        """A follower takes what comes."""
        self._cursors[cursor] = None

    def leave(self, cursor: Cursor) -> None:
        """A follower takes no more."""
        self._cursors.pop(cursor, None)
        self.forget()
