"""A leader: a follower that may hold the lease of its (stage, shard) and then appends the decisions of the stage.

The ordering duties, in this order and no other: acquire the lease; append leader_started, which fences the former
leader; fold leader_started; only then produce. One commit is in flight per (stage, shard): the next commit is produced
from a state that has folded the commit before. A refused append makes a standby of the process: a newer
leader has written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from muster.core.stage import Stage, StageState
from muster.events.base import Event
from muster.events.effects import EffectApplied
from muster.events.envelope import MAX_EVENTS, Commit, CommitKind, Stored
from muster.events.system import LeaderStarted
from muster.ports import Clock, FencedError, Lease, LogGoneError, Snapshots
from muster.runtime.runners.follower import Follower
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.leasing import KeptLease
from muster.runtime.runners.shared import SharedLog

S = TypeVar("S", bound=StageState)

MAX_SKEW_MS = 2_000
"""A process whose clock is further ahead of the broker's does not append: log time would run ahead for good."""

CLOCK_CHECK_S = 60.0
"""How long what the broker's clock said is relied on, counted on by the machine's steady time."""

PROVOKED = 8
"""How often a stage may decide, since a fact or since something was done in the cluster, before each further commit is
counted: stages that go round in circles, whatever the circle is, are seen by the rate.
"""


class ClockSkewError(Exception):
    """The clock of this machine is ahead of the broker's: correct it, nothing is appended meanwhile."""


class Leader(Follower[S]):
    """Leads when it holds the lease, else it is a warm standby."""

    lease: KeptLease

    def __init__(
        self,
        stage: Stage[S],
        *,
        shard: str = "0",
        log: SharedLog,
        lease: Lease,
        snapshots: Snapshots | None,
        clock: Clock,
        process: str,
        hooks: Hooks | None = None,
        opening: Callable[[S], Event | None] | None = None,
    ) -> None:
        """``opening``: of the state as it begins to lead, what is to be said before anything is decided."""
        super().__init__(stage, shard=shard, log=log, snapshots=snapshots, clock=clock, hooks=hooks)
        self._opening = opening
        self.lease = KeptLease(lease, f"{stage.name}/{shard}", taken=self.wake)
        self.process = process
        self.epoch = 0
        """Sequence of our leader_started; 0 while not leading."""
        self._count = 0
        self._in_flight = 0
        """Sequence of our newest append."""
        self._broker_ms = 0
        """The broker's time when it was asked last, at `_asked_at` of our loop."""
        self._asked_at = float("-inf")
        self._unprovoked = 0
        """How often it has decided since the newest fact, or the newest effect."""
        self._announcements: list[Event] = []
        self._found: tuple[int, tuple[CommitKind, list[Event]] | None] = (0, None)
        """What the state at a sequence makes due: found when that was folded, and not appended yet."""

    def leading(self) -> bool:
        return self.epoch > 0 and self.state.seq >= self.epoch

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        self.hooks.role("standby", 0)
        tasks.create_task(self.lease.keep())

    async def act(self) -> None:
        if not self.lease.held or not self.caught_up or self.state.seq < self._in_flight:
            return
        if not self.epoch:
            await self._take_over()
            return
        if self._opening is not None:
            opening, self._opening = self._opening(self.state), None
            if opening is not None:
                self._announcements.append(opening)
        produced = await self.produce()
        if produced is not None:
            kind, events = produced
            if kind == "decision":
                self._unprovoked += 1
                if self._unprovoked > PROVOKED:
                    self.hooks.unprovoked()
            await self._append(kind, events)

    def due(self) -> bool:
        if not self.lease.held or not self.caught_up or self.state.seq < self._in_flight:
            return False
        return not self.epoch or self._opening is not None or bool(self._announcements) or self.has_work()

    def has_work(self) -> bool:
        """Whether there is something to produce."""
        self._found = self.state.seq, self.seat.commit_due(self.clock.now())
        return self._found[1] is not None

    async def _take_over(self) -> None:
        await self._append("input", [LeaderStarted(process=self.process)])
        self.epoch = self._in_flight
        if self.state.seq >= self.epoch:  # It was folded on the way.
            self._begins(self.state.docket.epochs.get(f"{self.stage.name}.{self.shard}", self.epoch))

    def _begins(self, newest: int) -> None:
        """It leads, unless another began after it: ``newest`` is the epoch of this seat."""
        if newest != self.epoch:
            raise self._fenced(f"another leader began at {newest}")
        self.hooks.role("leading", self.epoch)

    def _fenced(self, why: str) -> FencedError:
        return FencedError(
            f"{self.stage.name}/{self.shard} was led by this process since {self.epoch}, and {why}: "
            "this process becomes a standby"
        )

    async def _check_clock(self) -> None:
        """Raise ClockSkewError when our clock is ahead. The broker is asked now and then, and when it looks so."""
        loop = asyncio.get_running_loop()
        passed_s = loop.time() - self._asked_at
        if passed_s < CLOCK_CHECK_S and self.clock.now() <= self._broker_ms + int(passed_s * 1000) + MAX_SKEW_MS:
            return
        # By when it was asked: the answer may be long on its way, or lie here unread.
        asked_ms = self.clock.now()
        self._broker_ms, self._asked_at = await self.log.time(), loop.time()
        ahead = asked_ms - self._broker_ms
        if ahead > MAX_SKEW_MS:
            raise ClockSkewError(
                f"this machine's clock is {ahead} ms ahead of the broker's; it may be {MAX_SKEW_MS} at most: "
                f"set it right, then start {self.stage.name} again"
            )

    async def _append(self, kind: CommitKind, events: list[Event]) -> None:
        state = self.state
        # What it was decided on: the state may go on at any await.
        in_seq, ruleset, prefix = state.seq, state.ruleset, state.docket.hash_at(state.seq, state.seq)
        await self._check_clock()
        self._count += 1
        commit = Commit(
            commit_id=f"{self.process}-{self.stage.name}-{self.shard}-{self._count}",
            stage=self.stage.name,
            shard=self.shard,
            kind=kind,
            epoch=self.epoch,
            in_seq=in_seq,
            ruleset=ruleset,
            prefix=prefix,
            at=self.clock.now(),
            events=tuple(events),  # type: ignore[arg-type]
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        headers = self.hooks.trace_of(events)
        self._in_flight = await self.log.append(self.written(commit), expected=self.last_own, headers=headers)
        self.hooks.appended(commit, self._in_flight, loop.time() - began)

    def written(self, commit: Commit) -> Commit:
        """A commit as the log stores it."""
        return commit

    async def produce(self) -> tuple[CommitKind, list[Event]] | None:
        """The events of the next commit, or None when nothing is due."""
        if self._announcements:
            events, self._announcements = self._announcements[:MAX_EVENTS], self._announcements[MAX_EVENTS:]
            return "input", events
        (at, commit_found), self._found = self._found, (0, None)
        return (
            commit_found
            if commit_found is not None and at == self.state.seq
            else self.seat.commit_due(self.clock.now())
        )

    def announce(self, event: Event) -> None:
        """Have an input event appended before anything else is decided."""
        self._announcements.append(event)
        self.wake()

    def deadline_s(self) -> float | None:
        """Until the stage's own deadline."""
        if not self.leading():
            return None
        deadline = self.seat.deadline()
        return max(0.001, (deadline - self.clock.now()) / 1000) if deadline is not None else None

    def observed(self, stored: Stored) -> None:
        if stored.void:
            return
        if self.epoch and self.last_own == stored.seq and stored.commit.epoch != self.epoch != stored.seq:
            raise self._fenced(f"commit {stored.commit.commit_id} at {stored.seq} is another leader's")
        if self._unprovoked and _is_news(stored.commit):
            self._unprovoked = 0
        if self.epoch and stored.seq == self.epoch:
            self._begins(self.epoch)

    async def stop(self, *, keep: bool = True) -> None:
        """Leave in good order: give up the lease, so that a successor need not wait, and keep a snapshot."""
        await self.lease.release()
        if keep:
            with contextlib.suppress(LogGoneError):  # Then there is nothing to keep.
                await self.keep_snapshot()


def _is_news(commit: Commit) -> bool:
    """Whether something has happened in the cluster: it was seen, or something was done there."""
    return commit.stage == "watcher" or any(isinstance(event, EffectApplied) for event in commit.events)


AnyLeader = Leader[Any]
