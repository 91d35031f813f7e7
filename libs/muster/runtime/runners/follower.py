"""A follower: restores a stage's state, folds the log into it, and does what its subclass does between batches.

Order of work, always: fold a whole batch, then act, then look at the log again. Folding never waits for acting's
results: those come back through the log.
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
"""A standby keeps a snapshot every so many commits; a leader, which has more to do, every fourth time."""

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
        """The end that the log had when following began has been folded."""
        self.last_own = 0
        """Sequence of the last commit of this (stage, shard)."""
        self.unfolded_since = 0
        """When the first commit was stored (ms) that was read and is not folded yet; 0 where there is none."""
        self._batches: asyncio.Queue[Sequence[Stored]] = asyncio.Queue(BUFFERED_BATCHES)
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
            tasks.create_task(self._pump())
            await self.started(tasks)
            while True:
                for batch in await self._next_batches():
                    self._fold(batch)
                await self.act()
                await self._keep()

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        """Called once, when following begins."""
        self.hooks.role("following", 0)

    async def act(self) -> None:
        """Called after every batch, and when woken."""

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

    async def _pump(self) -> None:
        async with aclosing(self.log.follow(self.state.seq, self.state.docket.last)) as stream:
            async for batch in stream:
                if batch and not self.unfolded_since:
                    self.unfolded_since = batch[0].stored_at
                await self._batches.put(batch)
                self._woken.set()

    async def _next_batches(self) -> list[Sequence[Stored]]:
        """What has arrived; waits for something to arrive, to be woken, or for the deadline."""
        if self._batches.empty() and not self._woken.is_set():
            try:
                async with asyncio.timeout(self.deadline_s()):
                    await self._woken.wait()
            except TimeoutError:
                return []
        self._woken.clear()
        found = []
        while not self._batches.empty():
            found.append(self._batches.get_nowait())
        self.unfolded_since = 0
        return found

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
        self.hooks.folded(counted, self._batches.qsize())
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
        every = self._every * (4 if self.leading() else 1)
        if self.snapshots is not None and self.caught_up and self.state.seq - self._kept >= every:
            await self.keep_snapshot()

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
