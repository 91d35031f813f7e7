"""The keeper of the log: rolls it over when it is getting full, keeps its archive, and its copies whole.

One keeper per cell acts; others are standbys. The one that finds a sealed log without successor completes the
roll-over.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from muster.bus.beat import beat
from muster.bus.errors import BusError, NoRoomError
from muster.bus.fills import ALARM_PERCENT, Fill, fills
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.marks import give_up, hear_marks, rolled_over
from muster.bus.shares import LogUsage, close, shares
from muster.ports import Clock, Generations, Lease, LogSealedError, Snapshots
from muster.runtime.layouts import USERS
from muster.runtime.logkeeping.archive import ArchiveError
from muster.runtime.logkeeping.archiving import archive, archive_of
from muster.runtime.logkeeping.budget import WINDOW_S, Budget
from muster.runtime.logkeeping.pruning import PruneError, deletable, delete, sealed, surplus
from muster.runtime.logkeeping.rolling import kept_snapshots, roll
from muster.runtime.pairing import recorded_cluster
from muster.runtime.runners.guarding import Guard
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.leasing import KeptLease

LOOK_S = 5.0
"""How often the keeper looks how full the log is, or whether it was sealed."""

ARCHIVE_EVERY_S = 600.0
"""How often the archive is brought up to date between roll-overs."""

FILLS_EVERY_S = 60.0
"""How often the keeper looks how full the streams beside the log are."""


class KeptGenerations(Generations, Protocol):
    """Generations whose log can be measured and copied."""

    async def current(self) -> tuple[JetStreamLog, bool]: ...


class LogKeeper:
    """Runs until another generation than ``log_id`` is in force.

    ``percent``: how full the log may be; ``stage_percent``: how much of a generation a stage may write in ten minutes,
    0 for no limit; ``folder``: where its archive is, None for none; ``keep``: how many sealed
    generations stay once the archive has them; ``guard``: looks at the servers and their copies.
    """

    def __init__(
        self,
        js: JetStream,
        generations: KeptGenerations,
        log_id: str,
        *,
        lease: Lease,
        snapshots: Snapshots,
        clock: Clock,
        hooks: Hooks,
        guard: Guard | None = None,
        percent: int,
        stage_percent: int = 0,
        folder: Path | None = None,
        keep: int = 2,
    ) -> None:
        self._js = js
        self._generations = generations
        self._log_id = log_id
        self.lease = KeptLease(lease, "the keeper")
        self._snapshots = snapshots
        self._clock = clock
        self._hooks = hooks
        self.guard = guard
        self._percent = percent
        self._budget = Budget(stage_percent)
        self._folder = folder
        self._keep = keep
        self._archived_at = self._filled_at = float("-inf")
        self.fills: list[Fill] = []
        """How full the streams beside the log were when they were looked at last."""
        self._looks_since: float | None = None
        """Since when (time of the loop) it looks after the log."""

    async def run(self) -> None:
        """Keep the log until cancelled. Raises LostLeadershipError, RollError and what the bus raises."""
        self._hooks.role("standby", 0)
        await self.lease.acquire()
        self._hooks.role("leading", 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.lease.keep())
            if self.guard is not None:
                tasks.create_task(self.guard.run())
            while True:
                self._looks_since = asyncio.get_running_loop().time()
                await self._look()
                if self.guard is not None:
                    await self.guard.repair(self._js)
                self._looks_since = None
                await beat(LOOK_S)

    def waits_s(self) -> float:
        """For how many seconds it has been looking after the log without an end; 0 while it rests."""
        return 0.0 if self._looks_since is None else asyncio.get_running_loop().time() - self._looks_since

    async def stop(self) -> None:
        """Give up the lease."""
        await self.lease.release()

    async def _look(self) -> None:
        log, sealed = await self._generations.current()
        if log.identity.log_id != self._log_id:
            raise LogSealedError(f"generation {log.identity.generation} of the log is in force: go on with that")
        unheard = await self._check_whole(log)
        await self._check_cluster(log)
        await self._check_budgets(log)
        usage = await log.usage()
        full = usage.max_bytes > 0 and usage.bytes * 100 >= usage.max_bytes * self._percent > 0
        if sealed or full:
            self._hooks.note("warning", "log_rolls_over", generation=log.identity.generation, completing=sealed)
            kept = await kept_snapshots(self._snapshots)
            why = "it was already sealed" if sealed else f"it was {usage.bytes * 100 // usage.max_bytes} % full"
            why += f"; it lacks what was read by {', '.join(unheard)}" if unheard else ""
            try:
                done = await roll(
                    self._generations, clock=self._clock, snapshots=kept, by="the keeper", reason=why, only=log.identity
                )
            except NoRoomError as err:
                self._hooks.note("error", "log_has_no_room", message=str(err))
                await self._archive(log)
                return
            self._hooks.note(
                "error" if done.unlike else "warning",
                "log_rolled_over",
                generation=done.after.generation,
                first=done.after.first,
                snapshots_compared=done.compared,
                snapshots_unlike=list(done.unlike),
            )
            log, _ = await self._generations.current()
            self._archived_at = float("-inf")
        else:
            await self._hold_to_budget(log, usage)
        await self._archive(log)

    async def _check_whole(self, log: JetStreamLog) -> list[str]:
        """Found the next generation where the processes agree that this one lost commits that they have read.

        Else `user at sequence` of each user with a lost commit: a key in other hands, or the only witness.
        """
        testimony = await hear_marks(self._js, log, USERS)
        if testimony.whole:
            return []
        names = [f"{user} at {mark.seq}" for user, mark in testimony.lost.items()]
        self._hooks.note("error", "log_lost_commits", witnesses=names, agree=testimony.agrees)
        if testimony.agrees:
            made = await give_up(self._js, log.identity, self._clock.now(), by="the keeper")
            raise LogSealedError(f"generation {made.generation} of the log is in force: go on with that")
        return names

    async def _check_cluster(self, log: JetStreamLog) -> None:
        """Found the next generation where the cluster or NATS is older than it was known to be."""
        known = await recorded_cluster(self._js, log.identity)
        if known is None or not known.set_back or await rolled_over(self._js, log.identity):
            return
        self._hooks.note("error", "log_given_up", message=known.set_back)
        made = await give_up(
            self._js,
            log.identity,
            self._clock.now(),
            by="the keeper",
            reason=known.set_back,
            generation=known.generation,
            parent=known.parent,
        )
        raise LogSealedError(f"generation {made.generation} of the log is in force: go on with that")

    async def _check_budgets(self, log: JetStreamLog) -> None:
        """Raise the alarm for a stream beside the log that has used half of its budget, or has none."""
        now = asyncio.get_running_loop().time()
        if now - self._filled_at < FILLS_EVERY_S:
            return
        self._filled_at, self.fills = now, await fills(self._js, log.identity)
        for fill in self.fills:
            if fill.percent >= ALARM_PERCENT or not fill.bounded:
                self._hooks.note(
                    "error", "store_half_full", stream=fill.stream, percent=fill.percent, bounded=fill.bounded
                )

    async def _hold_to_budget(self, log: JetStreamLog, use: LogUsage) -> None:
        """Close a stage that writes more than its part of the log; open it again after a while."""
        now, budget = asyncio.get_running_loop().time(), self._budget
        growth = budget.look(now, use)
        over: dict[str, int] = {}
        if growth is not None:
            after, grown = growth
            over = budget.beyond(now, use, grown, await shares(self._js, log.identity, after, use.last_seq))
        ended = budget.over(now)
        if over or ended:
            await close(self._js, log.identity, budget.closed)
        for stage, size in over.items():
            self._hooks.note("error", "log_stage_closed", stage=stage, bytes=size, seconds=int(WINDOW_S))
        for stage in ended:
            self._hooks.note("warning", "log_stage_opened", stage=stage)

    async def _archive(self, log: JetStreamLog) -> None:
        now = asyncio.get_running_loop().time()
        if self._folder is None or now - self._archived_at < ARCHIVE_EVERY_S:
            return
        self._archived_at = now
        try:
            folder = archive_of(self._folder, log.identity)
            done = await archive(folder, log)
        except (ArchiveError, OSError) as err:
            self._hooks.note("error", "log_not_archived", folder=str(self._folder), message=str(err))
        else:
            self._hooks.note("info", "log_archived", folder=str(folder), last=done.last)
            await self._prune(folder)

    async def _prune(self, folder: Path) -> None:
        """Delete sealed generations that the archive has, all but the newest; then there is room for the next one."""
        try:
            log, _ = await self._generations.current()
            for generation in surplus(await sealed(self._js, log.identity), self._keep):
                await delete(self._js, log, await deletable(self._js, log, generation.generation, folder))
                self._hooks.note("info", "log_generation_deleted", generation=generation.generation, folder=str(folder))
                log, _ = await self._generations.current()
            await self._generations.reserve(log.identity)
        except (PruneError, ArchiveError, BusError, OSError) as err:
            self._hooks.note("error", "log_not_pruned", folder=str(folder), message=str(err))
