"""A follower: restores a stage's state, folds the log into it, and does what its subclass does between batches.

Order of work, always: fold what there is, then act, then look at the log again. Folding never waits for acting's
results: those come back through the log. A follower that rests folds in the turn of the event loop in which the reader
of the process decoded a commit. Its task is woken only when something is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from muster.core.cell.seat import Seat
from muster.core.stage import Stage, StageState
from muster.events.envelope import Stored
from muster.ports import Clock, LogGoneError, Snapshots
from muster.runtime.logkeeping.snapshotting import make_snapshot, restore
from muster.runtime.runners.hooks import Hooks, NoHooks
from muster.runtime.runners.shared import Cursor, SharedLog

S = TypeVar("S", bound=StageState)

SNAPSHOT_COMMITS = 5_000
"""A standby keeps a snapshot every so many commits; a leader, which has more to do, every fourth time."""

CHECK_COMMITS = 1_000
"""How often a running stage checks its own invariants."""

CLOCK_STEP_S = 0.002
"""The clock of the log counts whole milliseconds, that of the loop does not: a deadline is known no better."""


class Follower(Generic[S]):
    """Folds the log of a cell into one stage's state."""

    def __init__(
        self,
        stage: Stage[S],
        *,
        shard: str = "0",
        log: SharedLog,
        snapshots: Snapshots | None,
        clock: Clock,
        hooks: Hooks | None = None,
        every: int = SNAPSHOT_COMMITS,
    ) -> None:
        """``every``: how many commits after the last one a snapshot is kept."""
        self.stage = stage
        self.shard = shard
        self.log = log
        self.snapshots = snapshots
        self.clock = clock
        self.hooks: Hooks = hooks if hooks is not None else NoHooks()
        self.seat: Seat[S] = Seat(stage)
        self.caught_up = False
        """The end that the log had when following began has been folded."""
        self.last_own = 0
        """Sequence of the last commit of this (stage, shard)."""
        self.unfolded_since = 0
        """When the first commit was stored (ms) that was read and is not folded yet; 0 where there is none."""
        self._cursor = Cursor(log, self._more)
        self._resting = False
        """Nothing is under way that relies on the state as it is: commits are folded as they come."""
        self._wakes_at = float("inf")
        """When (time of the loop) a rest ends by itself."""
        self._failure: Exception | None = None
        """What went wrong while a commit was folded in the turn of the reader."""
        self._woken = asyncio.Event()
        self._every = every
        self._kept = 0
        self._checked = 0

    @property
    def state(self) -> S:
        return self.seat.state

    async def run(self) -> None:
        """Follow until cancelled. Raises what the log raises, and FencedError when a newer leader has written."""
        self.hooks.role("starting", 0)
        await self._restore()
        origin = self.log.identity.origin
        if self.state.seq + 1 < origin:
            raise LogGoneError(
                f"the state of {self.stage.name}/{self.shard} can neither be read nor folded again: the log begins at "
                f"sequence {origin}; run the version that kept it, or bring the generations before it back"
            )
        if self.state.seq:
            await self.log.prove(self.state.seq, self.state.docket.last)
        async with asyncio.TaskGroup() as tasks:
            self._cursor.open(self.state.seq)
            try:
                await self.started(tasks)
                async with aclosing(self.log.earlier(self._cursor, self.state.docket.last)) as stream:
                    async for batch in stream:
                        self._fold(batch)
                        self.unfolded_since = batch[-1].stored_at
                        await self.act()
                        await asyncio.sleep(0)
                while True:
                    self._woken.clear()
                    self._fold_new()
                    await self.act()
                    await self._keep()
                    await self._rest()
            finally:
                self._cursor.close()

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        """Called once, when following begins."""
        self.hooks.role("following", 0)

    async def act(self) -> None:
        """Called after commits were folded that make something due, and when woken."""

    def due(self) -> bool:
        """Whether ``act`` should be called now that commits were folded."""
        return False

    def deadline_s(self) -> float | None:
        """In how many seconds ``act`` should be called though nothing happens."""
        return None

    def leading(self) -> bool:
        return False

    def wake(self) -> None:
        """Have ``act`` called soon."""
        self._woken.set()

    async def _restore(self) -> None:
        if self.snapshots is not None:
            state, how = await restore(
                self.snapshots, self.log.identity, self.stage.name, self.shard, self.stage.initial()
            )
            self.seat = Seat(self.stage, state)
            self._kept = self.state.seq
            # A snapshot may lie behind our last commit, and nothing that follows would tell of it.
            self.last_own = await self.log.last(self.stage.name, self.shard)
            self.hooks.note("info", "state_restored", seq=self.state.seq, how=how)

    def _more(self) -> None:
        """There is more to take: it is folded here and now, unless something is under way."""
        if not self._resting or self._failure is not None:
            waiting = self._cursor.next()
            if waiting is not None and not self.unfolded_since:
                self.unfolded_since = waiting.stored_at
            self._woken.set()
            return
        try:
            self._fold_new()
            if self._keeps() or self.due() or self._deadline() < self._wakes_at - CLOCK_STEP_S:
                self._woken.set()
        except Exception as err:
            self._failure = err
            self._woken.set()

    def _fold_new(self) -> None:
        while (batch := self._cursor.take()) is not None:
            self._fold(batch)
        self.unfolded_since = 0

    async def _rest(self) -> None:
        """Wait to be woken, or for the deadline."""
        if self._woken.is_set():
            return
        self._resting, self._wakes_at = True, self._deadline()
        try:
            async with asyncio.timeout_at(self._wakes_at if self._wakes_at < float("inf") else None):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            self._resting = False
        if self._failure is not None:
            raise self._failure

    def _deadline(self) -> float:
        """When (time of the loop) ``act`` should be called though nothing happens."""
        seconds = self.deadline_s()
        return float("inf") if seconds is None else asyncio.get_running_loop().time() + seconds

    def _fold(self, batch: Sequence[Stored]) -> None:
        if not batch:
            self.caught_up = True
            return
        seat, counted = self.seat, []
        for stored in batch:
            found = seat.fold(stored)
            # What is void occupies its subject all the same: an append must come after it.
            own = found.commit.stage == self.stage.name and found.commit.shard == self.shard
            # Commits of an earlier generation are on other subjects: none of them is expected of this one.
            if own and stored.seq >= self.log.identity.first:
                self.last_own = stored.seq
            if found.void:
                self.voided(found)
            self.observed(found)
            counted.append(found)
        self.hooks.folded(counted, self._cursor.behind)
        if seat.state.seq - self._checked >= CHECK_COMMITS:
            self._checked = seat.state.seq
            violations = self.stage.check(seat.state)
            if violations:
                self.hooks.violated(violations)

    def observed(self, stored: Stored) -> None:
        """Called for every commit right after it was folded."""

    def voided(self, stored: Stored) -> None:
        """Called for every commit that is void."""
        self.hooks.voided(stored)

    async def _keep(self) -> None:
        if self._keeps():
            await self.keep_snapshot()

    def _keeps(self) -> bool:
        every = self._every * (4 if self.leading() else 1)
        return self.snapshots is not None and self.caught_up and self.state.seq - self._kept >= every

    async def keep_snapshot(self) -> None:
        """Keep a snapshot of the state as it is now, if the log has what it was folded from. Raises LogLostError."""
        if self.snapshots is None or self.state.seq <= self._kept:
            return
        await self.log.prove(self.state.seq, self.state.docket.last)
        self._kept = self.state.seq
        snapshot = make_snapshot(self.log.identity, self.stage.name, self.shard, self.state)
        if await self.snapshots.save(snapshot):
            self.hooks.snapshot(snapshot.seq, len(snapshot.body))


AnyFollower = Follower[Any]
