"""A follower: restores a stage's state, folds the log into it, and does what its subclass does between batches.

A batch is folded in the turn of the loop in which it is read, and the task that acts is woken only where there is
something to do: most commits of a log concern most stages not at all. While it acts the state stays as it is; what is
read meanwhile is folded when it has acted. Folding never waits for acting's results: those come back through the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from muster.core.cell.seat import Seat
from muster.core.stage import Stage, StageState
from muster.events.envelope import Stored
from muster.ports import Clock, Log, LogGoneError, Snapshots
from muster.runtime.logkeeping.snapshotting import make_snapshot, restore
from muster.runtime.runners.hooks import Hooks, NoHooks

S = TypeVar("S", bound=StageState)

SNAPSHOT_COMMITS = 5_000
"""A standby keeps a snapshot every so many commits; a leader, who has better things to do, every fourth time."""

CHECK_COMMITS = 1_000
"""How often a running stage checks its own invariants."""

BUFFERED_BATCHES = 4


class Follower(Generic[S]):
    """Folds the log of a cell into one stage's state."""

    def __init__(
        self,
        stage: Stage[S],
        *,
        shard: str = "0",
        log: Log,
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
        """The end of the log, as it stood when following began, has been folded."""
        self.last_own = 0
        """Sequence of the last commit of this (stage, shard)."""
        self._unfolded: list[Sequence[Stored]] = []
        """What was read while it acted."""
        self._acting = True
        self._folded = asyncio.Event()
        """Set while there is room for what is read."""
        self._woken = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
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
            tasks.create_task(self._read())
            await self.started(tasks)
            while True:
                self._fold_rest()
                await self.act()
                await self._keep()
                if not self._unfolded:
                    await self._wait()

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        """Called once, when following begins."""
        self.hooks.role("following", 0)

    async def act(self) -> None:
        """Called where there is something to do (:meth:`has_work`), when woken, and at the deadline."""

    def has_work(self) -> bool:
        """Whether ``act`` is to be called after a batch."""
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

    async def _read(self) -> None:
        async with aclosing(self.log.follow(self.state.seq, self.state.docket.last)) as stream:
            async for batch in stream:
                if self._acting:
                    self._unfolded.append(batch)
                    if len(self._unfolded) >= BUFFERED_BATCHES:
                        self._folded.clear()
                        await self._folded.wait()
                    continue
                self._fold(batch)
                if self._woken.is_set():
                    continue
                if self._is_snapshot_due() or self.has_work():
                    self._woken.set()
                else:
                    self._set_alarm()

    def _fold_rest(self) -> None:
        """Fold what was read while it acted."""
        self._acting = True
        for batch in self._unfolded:
            self._fold(batch)
        self._unfolded.clear()
        self._folded.set()

    async def _wait(self) -> None:
        """Until there is something to do. What is read meanwhile is folded at once."""
        self._acting = False
        self._set_alarm()
        await self._woken.wait()
        self._woken.clear()

    def _set_alarm(self) -> None:
        """Be woken at the deadline; an alarm that rings too early does no harm, so it is only ever moved forward."""
        within_s = self.deadline_s()
        if within_s is None:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + within_s
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._woken.set()

    def _fold(self, batch: Sequence[Stored]) -> None:
        if not batch:
            self.caught_up = True
            return
        seat, counted = self.seat, []
        for stored in batch:
            found = seat.fold(stored)
            # What is void occupies its subject all the same: an append must come after it.
            own = found.commit.stage == self.stage.name and found.commit.shard == self.shard
            # What an earlier generation holds stands on other subjects: nothing of it is expected of this one.
            if own and stored.seq >= self.log.identity.first:
                self.last_own = stored.seq
            if found.void:
                self.voided(found)
            self.observed(found)
            counted.append(found)
        self.hooks.folded(counted, len(self._unfolded))
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
        if self._is_snapshot_due():
            await self.keep_snapshot()

    def _is_snapshot_due(self) -> bool:
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
