"""When waiting jobs start, for all readers at once: the queues of now are played forward once in a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from muster.core.promising.projection import Projected
from muster.ports import Clock
from muster.serving.ahead import Ahead
from muster.serving.beside import AwayError, Beside, Here, LateError, LooksAhead
from muster.told.readmodel.readstate import ReadState

ANSWER_S = 2.0
"""The time after which a reader's question gets the answer known so far."""
PLAY_S = 60.0
"""The queues are played forward for all readers: a long line takes long, and only the first reader waits."""
FORESEEN_MS = 3_000
"""How long the queues played forward count as the present queues, ..."""
FORESEEN_EACH_MS = 2
"""... and how much longer for each start in them, so that a long queue is not played forward all the time."""


def serves(made: int, jobs: Mapping[str, Projected], now: int) -> bool:
    """Whether queues that were played forward at ``made`` count as the present queues."""
    return 0 <= now - made < max(FORESEEN_MS, FORESEEN_EACH_MS * len(jobs))


class Foresight:
    """The projections of one followed log. ``apart``: look ahead in a separate process."""

    def __init__(self, state: Callable[[], ReadState], clock: Clock, *, apart: bool) -> None:
        self.ahead: LooksAhead = Beside(state) if apart else Here(state)
        self._past: ReadState | None = None
        self._behind: Beside | None = Beside(lambda: self._past or state(), live=False) if apart else None
        self._going_back = asyncio.Lock()
        self._clock = clock
        self._foreseen: tuple[int, Mapping[str, Projected]] = (0, {})
        self._playing = asyncio.Lock()
        self._stale = asyncio.Event()

    async def looked(self, state: ReadState, now: int, method: str, *args: object, live: bool) -> Any:
        """The answer of a method of :class:`Ahead`, for now or for the state of a moment.

        Raises the errors of the method, LateError and AwayError.
        """
        if live:
            return await self.ahead.call(method, *args, now, limit_s=ANSWER_S)
        if self._behind is None:
            answer: Callable[..., Any] = getattr(Ahead(lambda: state, live=False), method)
            return await asyncio.to_thread(answer, *args, now)
        async with self._going_back:  # One moment at a time is kept in the process that answers about the past.
            if self._past is not state:
                await self._behind.stop()
                self._past = state
            return await self._behind.call(method, *args, now, limit_s=ANSWER_S)

    async def stop(self) -> None:
        """End the processes that look ahead."""
        await self.ahead.stop()
        if self._behind is not None:
            await self._behind.stop()

    async def foreseen(
        self, state: ReadState, now: int, path: Mapping[str, str], *, live: bool
    ) -> Mapping[str, Projected]:
        """The projected starts of waiting jobs.

        The first reader waits, and so does a reader of a job that is newer than the projection. All other readers get
        the
        projection before, also while a new projection is made.
        """
        if not live:
            jobs: Mapping[str, Projected] = await self.looked(state, now, "foreseen", live=False)
            return jobs
        if self._lacks(state, path):
            async with self._playing:
                if self._lacks(state, path):
                    await self._play(now)
        elif not serves(*self._foreseen, now):
            self._stale.set()
        return self._foreseen[1]

    async def keep(self) -> None:
        """Look ahead again whenever a reader met a projection that is too old."""
        while True:
            await self._stale.wait()
            async with self._playing:
                try:
                    await self._play(self._clock.now())
                except (AwayError, LateError):
                    pass  # The next reader asks for it again.
                finally:
                    self._stale.clear()

    def _lacks(self, state: ReadState, path: Mapping[str, str]) -> bool:
        """Whether the queues were not played forward yet, or not since the job of the question came."""
        made, jobs = self._foreseen
        key = (path.get("namespace"), path.get("name"))
        return not made or any(
            (job.ref.namespace, job.ref.name) == key and uid not in jobs and job.queued_at >= made
            for uid, job in (state.queues.jobs.items() if key[0] else ())
        )

    async def _play(self, now: int) -> None:
        self._foreseen = (now, await self.ahead.call("foreseen", now, limit_s=PLAY_S))
