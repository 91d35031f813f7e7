"""A follower: restores a stage's state, folds the log into the state, and acts through its subclass when something is
due.

Until it has caught up a follower reads for itself. From then on the follower folds in the turn of the event loop in
which the reader of the process judged a commit (:mod:`muster.runtime.runners.folding`), also during other work:
folding never waits for acting, whose results come back through the log. So the state may go on at any ``await``. The
task is woken only when something is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from muster.core.cell.seats import Seat
from muster.core.stage import Stage, StageState
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.ports import Clock, LogGoneError, Snapshots
from muster.runtime.logkeeping.snapshotting import make_snapshot, restore
from muster.runtime.runners.hooks import Hooks, NoHooks
from muster.runtime.runners.leasing import KeptLease
from muster.runtime.runners.shared import Cursor, SharedLog

S = TypeVar("S", bound=StageState)

SNAPSHOT_COMMITS = 5_000
"""A standby keeps a snapshot every so many commits; a leader, which has more to do, every fourth time."""

BYTES_A_COMMIT = 30_000
"""A snapshot is kept less often where it has more bytes than this for each commit since the last one."""

CHECK_COMMITS = 1_000
"""How often a running stage checks its own invariants."""

CLOCK_STEP_S = 0.002
"""The clock of the log counts whole milliseconds, that of the loop does not: a deadline is known no better."""


class Follower(Generic[S]):
    """Folds the log of a cell into one stage's state."""

    lease: KeptLease | None = None
    """What it must hold to do more than that."""

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
        """When the commit was stored (ms) up to which it has folded while it catches up; 0 once it has."""
        self._cursor = Cursor(log, self.wake)
        self._counted: list[Stored] = []
        """What was folded in this turn of the reader."""
        self._resting = False
        """Its task waits to be woken."""
        self._wakes_at = float("inf")
        """When (time of the loop) a rest ends by itself."""
        self._failure: Exception | None = None
        """What went wrong while a commit was folded in the turn of the reader."""
        self._woken = asyncio.Event()
        self._every = every
        self._kept = 0
        self._size = 0
        """Bytes of the last snapshot."""
        self._checked = 0

    @property
    def folds(self) -> bool:
        """Whether nothing went wrong: its state is at the position of its docket."""
        return self._failure is None

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
        async with asyncio.TaskGroup() as tasks:
            self._cursor.open(self.state.seq)
            try:
                await self.started(tasks)
                await self._catch_up()
                while True:
                    self._woken.clear()
                    await self.act()
                    await self._keep()
                    await self._rest()
                    if self._failure is not None:
                        raise self._failure
            finally:
                self._cursor.close()

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        """Called once, when following begins."""
        self.hooks.role("following", 0)

    async def stop(self, *, keep: bool = True) -> None:
        """Called at the end; ``keep``: what it has may be kept."""

    async def act(self) -> None:
        """Called when something is due, and when woken."""

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
            state, how = await restore(self.snapshots, self.log, self.stage.name, self.shard, self.stage.initial())
            self.seat = Seat(self.stage, state)
            self._kept = self.state.seq
            # A snapshot may lie behind our last commit, and nothing that follows would tell of it.
            self.last_own = await self.log.last(self.stage.name, self.shard)
            self.hooks.note("info", "state_restored", seq=self.state.seq, how=how)

    async def _catch_up(self) -> None:
        while True:
            self._woken.clear()
            async with aclosing(self.log.earlier(self._cursor, self.state.docket.last)) as stream:
                async for batch in stream:
                    self._fold(batch)
                    self.unfolded_since = batch[-1].stored_at
                    await self.act()
                    await asyncio.sleep(0)
            if self._joins():
                return
            await self._woken.wait()

    def _joins(self) -> bool:
        """Fold the commits that were read, and with the process from here on; False where the state is ahead."""
        for batch in iter(self._cursor.take, None):
            self._fold(batch)
        if self.state.seq != self.log.read:
            return False
        self.log.folding.join(self, self.state)
        self._cursor.close()
        self.unfolded_since = 0
        return True

    def concerned(self, stage: str, shard: str, kinds: frozenset[type[Event]]) -> bool:
        """Whether a commit with such events must be folded: the stage's own events, and events with a meaning for the
        stage.
        """
        return (stage, shard) == (self.stage.name, self.shard) or self.seat.hears(kinds)

    def take(self, stored: Stored, before: int) -> None:
        """Fold a commit as it counts. The commits that do not concern the stage move only the time, to ``before``."""
        try:
            self.state.now = max(self.state.now, before)
            self.seat.hear(stored)
            self._folded(stored)
            self._counted.append(stored)
        except Exception as err:
            self._fail(err)

    def turn(self, seq: int, now: int) -> None:
        """All is read and folded up to there: see whether anything is due."""
        state = self.seat.state
        state.seq, state.now = seq, max(state.now, now)
        counted, self._counted = self._counted, []
        try:
            if counted:
                self._after(counted)
            if self._keeps() or (counted and (not self._resting or self._urges())):
                self._woken.set()
        except Exception as err:
            self._fail(err)

    def reached(self) -> None:
        """The end that the log had when the process began to read has been folded."""
        self.caught_up = True
        self._woken.set()

    def _fail(self, err: Exception) -> None:
        """Have it raised by the task; nothing more is folded."""
        self._failure = self._failure or err
        self.log.folding.leave(self)
        self._woken.set()

    def _urges(self) -> bool:
        return self.due() or self._deadline() < self._wakes_at - CLOCK_STEP_S

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

    def _deadline(self) -> float:
        """When (time of the loop) ``act`` should be called though nothing happens."""
        seconds = self.deadline_s()
        return float("inf") if seconds is None else asyncio.get_running_loop().time() + seconds

    def _fold(self, batch: Sequence[Stored]) -> None:
        """Fold commits of the follower's own reader."""
        if not batch:
            self.caught_up = True
            return
        folded: list[Stored] = []
        for stored in batch:
            folded.append(self.seat.fold(stored))
            self._folded(folded[-1])
        self._after(folded)

    def _folded(self, stored: Stored) -> None:
        # What is void occupies its subject all the same: an append must come after it.
        own = stored.commit.stage == self.stage.name and stored.commit.shard == self.shard
        # Commits of an earlier generation are on other subjects: none of them is expected of this one.
        if own and stored.seq >= self.log.identity.first:
            self.last_own = stored.seq
        if stored.void:
            self.voided(stored)
        self.observed(stored)

    def _after(self, batch: Sequence[Stored]) -> None:
        """Commits were folded, all that were read at once."""
        self.hooks.folded(batch)
        state = self.seat.state
        if state.seq - self._checked >= CHECK_COMMITS:
            self._checked = state.seq
            violations = self.stage.check(state)
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
        every = max(self._every * (4 if self.leading() else 1), self._size // BYTES_A_COMMIT)
        return self.snapshots is not None and self.caught_up and self.state.seq - self._kept >= every

    async def keep_snapshot(self) -> None:
        """Keep a snapshot of the present state, if the log still has the folded commits. Raises LogLostError."""
        if self.snapshots is None or self.state.seq <= self._kept or self._failure is not None:
            return
        snapshot, last = (
            make_snapshot(self.log.identity, self.stage.name, self.shard, self.state),
            self.state.docket.last,
        )
        self._kept, self._size = snapshot.seq, len(snapshot.body)
        await self.log.prove(snapshot.seq, last)
        if await self.snapshots.save(snapshot, end=await self.log.end()):
            self.hooks.snapshot(snapshot.seq, len(snapshot.body))


AnyFollower = Follower[Any]
