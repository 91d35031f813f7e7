"""The view of the present, and waiting until the log shows what was asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from muster.core.stage import Folder
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Touched
from muster_cli.folding import present_view
from muster_cli.reading import LogReading, followed

LIMIT_S = 15.0
"""How long to wait for the log to show an effect."""


class Present:
    """A cell by its log: the present state, and each later state."""

    def __init__(self, reading: LogReading, touched: Touched | None = None) -> None:
        """``touched``: the jobs are noted there that may have to be shown otherwise."""
        self.reading = reading
        self._view = ReadModel(touched)
        self._folder = Folder(self._view)
        self.state: ReadState = self._view.initial()

    async def read(self) -> ReadState:
        """Fold everything up to the present end of the log."""
        self.state = await present_view(self.reading, self._view)
        return self.state

    async def until(self, done: Callable[[ReadState], bool], limit_s: float = LIMIT_S) -> bool:
        """Go on folding until something holds; false when it did not within the limit."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._until(done)
        except TimeoutError:
            return False

    async def _until(self, done: Callable[[ReadState], bool]) -> bool:
        async with contextlib.aclosing(self.states()) as states:
            async for state in states:
                if done(state):
                    return True
        return False

    async def states(self) -> AsyncGenerator[ReadState, None]:
        """The present state, then the state after each new batch, for ever, through every generation of the log."""
        yield self.state
        async with contextlib.aclosing(followed(self.reading, self.state.seq)) as stream:
            async for _, batch in stream:
                for stored in batch:
                    self._folder.fold(self.state, stored)
                if batch:
                    yield self.state
