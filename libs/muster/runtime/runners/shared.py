"""A reader for all stages of a process: the log is read, decoded and judged once, and all stages fold in the same
turn.

A follower at its own pace (the publisher), or one that catches up, holds no other: a follower behind by a whole window
reads apart, until it is within the window again. Followers that are equally far behind share what they read apart: a
watcher that starts again has a stage for each resource.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from muster.bus.shares import LogUsage
from muster.events.envelope import Commit, Stored
from muster.ports import Clock, Log, LogIdentity
from muster.runtime.runners.folding import Folding

WINDOW = 10_000
"""Commits that are kept for those that follow at their own pace, or catch up."""

BATCH = 500

REREAD = 8
"""Batches before the window that are kept for others that catch up."""


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


class Batch(NamedTuple):
    """Commits in their order. ``last``: digest of the commit before the first."""

    after: int
    last: bytes
    commits: list[Stored]

    def later(self, after: int, last: bytes) -> list[Stored]:
        """Those after a commit; none where the commit is not before one of them."""
        index = after - self.after
        if not 0 <= index < len(self.commits):
            return []
        before = self.commits[index - 1].digest if index else self.last
        return self.commits[index:] if before == last else []


class Rereading:
    """What lies before the window, for all that catch up: the first to ask reads, and others take what was read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._askers = 0
        self._batches: deque[Batch] = deque(maxlen=REREAD)
        self._readers: dict[tuple[int, bytes], AsyncGenerator[list[Stored], None]] = {}
        """Those at rest, by sequence and digest of the last commit that they gave."""
        self._reads: dict[tuple[int, bytes], asyncio.Task[list[Stored]]] = {}

    def enter(self) -> None:
        self._askers += 1

    async def leave(self) -> None:
        """The last that leaves closes the readers."""
        self._askers -= 1
        if not self._askers:
            reads, self._reads = self._reads, {}
            readers, self._readers = self._readers, {}
            self._batches.clear()
            for read in reads.values():
                read.cancel()
            await asyncio.gather(*reads.values(), return_exceptions=True)
            for reader in readers.values():
                await reader.aclose()

    async def next(self, after: int, last: bytes) -> list[Stored]:
        """The next commits; none at the end of the log. ``last``: digest of the commit at ``after``.

        Raises what the log raises.
        """
        for batch in self._batches:
            if later := batch.later(after, last):
                return later
        read = self._reads.get((after, last))
        if read is None:
            read = self._reads[after, last] = asyncio.get_running_loop().create_task(self._read(after, last))
        await asyncio.wait((read,))  # One that is cancelled meanwhile leaves the read to the others.
        return read.result()

    async def _read(self, after: int, last: bytes) -> list[Stored]:
        place = after, last
        reader: AsyncGenerator[list[Stored], None] | None
        reader = self._readers.pop(place, None) or self._log.follow(after, last)
        try:
            commits = await anext(reader)
            if commits:
                self._batches.append(Batch(after, last, commits))
                end = commits[-1].seq, commits[-1].digest
                rests, self._readers[end] = self._readers.get(end), reader
                reader = rests
            return commits
        finally:
            if self._reads.get(place) is asyncio.current_task():
                del self._reads[place]
            if reader is not None:
                await reader.aclose()


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
        self._rereading = Rereading(log)
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
        self._rereading.enter()
        try:
            while cursor.after < self._base:
                batch = await self._rereading.next(cursor.after, last)
                if batch:
                    last = batch[-1].digest
                    cursor.move(batch[-1].seq)
                    yield batch
        finally:
            await self._rereading.leave()

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
