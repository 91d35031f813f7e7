"""One reader for all stages of a process: the log is read and decoded once, and every follower folds from the same list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from muster.events.envelope import Commit, Stored
from muster.ports import Log, LogIdentity

WINDOW = 20_000
"""Commits kept for followers that lag behind the reader; the reader waits for a slower one."""

BATCH = 500


class SharedLog:
    """A Log whose followers share one reader. Call :meth:`begin`, then run :meth:`pump` beside them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept: list[Stored] = []
        self._first = 0
        """Sequence of the first commit kept; 0 while none is."""
        self._begin = 0
        self._cursors: dict[object, int] = {}
        self._news = asyncio.Condition()
        self._end_reached = False

    @property
    def identity(self) -> LogIdentity:
        return self._log.identity

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        return await self._log.append(commit, expected=expected, headers=headers)

    async def end(self) -> int:
        return await self._log.end()

    async def time(self) -> int:
        return await self._log.time()

    async def begin(self) -> None:
        """Decide where the shared reader begins: at the end of the log as it is now. Call it before any follower."""
        self._begin = await self._log.end()

    async def pump(self) -> None:
        """Read for the followers, for ever; raises what the log raises."""
        async for batch in self._log.follow(self._begin):
            async with self._news:
                if not batch:
                    self._end_reached = True
                self._kept += batch
                self._first = self._kept[0].seq if self._kept else 0
                self._news.notify_all()
                while len(self._kept) > WINDOW:
                    self._forget()
                    if len(self._kept) > WINDOW:
                        await self._news.wait()

    def _forget(self) -> None:
        """Drop what every follower has seen."""
        slowest = min(self._cursors.values(), default=self._kept[-1].seq)
        drop = min(max(0, slowest - self._first + 1), len(self._kept) - BATCH)
        if drop > 0:
            del self._kept[:drop]
            self._first = self._kept[0].seq

    async def follow(self, after: int) -> AsyncIterator[list[Stored]]:
        """As :meth:`ports.Log.follow`; what lies before the shared reader is read apart."""
        me = object()
        self._cursors[me] = after
        told = False
        try:
            if after < self._begin or (self._first and after < self._first - 1):
                async for batch in self._log.follow(after):
                    if not batch:
                        break
                    after = self._cursors[me] = batch[-1].seq
                    yield batch
            while True:
                async with self._news:
                    await self._news.wait_for(lambda: self._has(after) or (self._end_reached and not told))
                    start = after - self._first + 1 if self._first else 0
                    batch = self._kept[start : start + BATCH] if self._has(after) else []
                    after = self._cursors[me] = batch[-1].seq if batch else after
                    if len(self._kept) > WINDOW:
                        self._news.notify_all()
                if batch:
                    yield batch
                elif not told:
                    told = True
                    yield []
        finally:
            del self._cursors[me]

    def _has(self, after: int) -> bool:
        return bool(self._kept) and self._kept[-1].seq > after
