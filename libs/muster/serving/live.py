"""The read model as of now, followed along the log: for answers, for streams, and for the ladder of moments."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from msgspec import Struct

from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.ports import Clock, Snapshots
from muster.runtime.runners.follower import Follower
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.shared import SharedLog
from muster.serving.foresight import Foresight
from muster.serving.moments import Moments
from muster.serving.series import UseSeries
from muster.told.codes.happenings import Happening
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.narrator import Narrator, entry_of
from muster.told.views.tellings import NarratedEvent

RING = 5_000
"""Happenings that are kept for streams; older happenings are read again from the log."""


class Said(Struct, frozen=True):
    """A happening of a job."""

    ref: Ref
    happening: Happening


class Live(Follower[ReadState]):
    """Follows the log. ``changed`` is set whenever a commit was folded; readers wait with :meth:`news`."""

    def __init__(
        self,
        *,
        log: SharedLog,
        snapshots: Snapshots | None,
        clock: Clock,
        moments: Moments,
        hooks: Hooks | None = None,
        apart: bool = False,
    ) -> None:
        """``apart``: look ahead in a separate process."""
        super().__init__(
            ReadModel(listener=self._hear), log=log, snapshots=snapshots, clock=clock, hooks=hooks, every=1 << 62
        )  # The gateway reads snapshots and keeps none, without a right to write.
        self.moments = moments
        self.foresight = Foresight(lambda: self.state, clock, apart=apart)
        self.series = UseSeries()
        self._ring: deque[Said] = deque(maxlen=RING)
        self.told_from = 0
        """The sequence after which the ring is complete."""
        self._news = asyncio.Condition()
        self._noted = 0

    def _hear(self, ref: Ref, happening: Happening) -> None:
        if happening.weight == "detail":
            return
        if len(self._ring) == RING:
            self.told_from = self._ring[0].happening.seq
        self._ring.append(Said(ref, happening))

    def concerned(self, stage: str, shard: str, kinds: frozenset[type[Event]]) -> bool:
        return True  # The rungs, and what looks ahead, go by every commit.

    def _after(self, batch: Sequence[Stored]) -> None:
        super()._after(batch)
        self.foresight.ahead.fold(batch)

    async def _restore(self) -> None:
        await super()._restore()
        await self.foresight.ahead.stop()  # It was given another state.

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        await super().started(tasks)
        tasks.create_task(self.foresight.keep())
        self.told_from = self.state.seq
        if self.state.seq:
            self.moments.keep(self.state)
            tasks.create_task(self._past(self.state.seq))

    def due(self) -> bool:
        return True

    async def act(self) -> None:
        self._noted = self.series.note(self.state, self._noted)
        async with self._news:
            self._news.notify_all()

    def observed(self, stored: Stored) -> None:
        if self.moments.is_due(stored.seq):
            self.moments.keep(self.state)

    async def news(self, after: int) -> None:
        """Wait until something after a sequence has been folded."""
        async with self._news:
            await self._news.wait_for(lambda: self.state.seq > after)

    async def told(self, after: int) -> AsyncIterator[NarratedEvent]:
        """The happenings of jobs after a sequence, up to now: from the ring, else told again from the log."""
        if after < self.told_from:
            narrator, ends = Narrator(await self.moments.copy_at(after)), self.told_from
            async with aclosing(self.log.follow(narrator.state.seq)) as stream:
                while narrator.state.seq < ends and (batch := await anext(stream)):
                    for stored in batch:
                        for entry in narrator.feed(stored) if stored.seq <= ends else ():
                            if entry.weight != "detail" and entry.ref is not None:
                                yield entry
        for notice in list(self._ring):
            if notice.happening.seq > max(after, self.told_from):
                yield entry_of(notice.ref, notice.happening)

    async def _past(self, until: int) -> None:
        """Fold the log before the state with which following began, once, for the rungs and the series."""
        state, folder = await asyncio.to_thread(self.moments.beginning), Folder(ReadModel())
        noted = 0

        def fold(batch: Sequence[Stored], noted: int) -> int:
            for stored in batch:
                if stored.seq > until:
                    break
                folder.fold(state, stored)
                noted = self.series.note(state, noted)
                if self.moments.is_due(stored.seq):
                    self.moments.keep(state)
            return noted

        async with aclosing(self.log.follow(state.seq)) as stream:
            while state.seq < until and (batch := await anext(stream)):
                noted = await asyncio.to_thread(fold, batch, noted)
