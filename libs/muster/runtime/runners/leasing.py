"""Keeping a lease: a helper for processes that act only while they hold a lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster.bus.beat import beat
from muster.ports import Lease

LEASE_RENEWAL_S = 3.0
"""How often a lease (10 s) is renewed."""
STANDBY_S = 1.0
"""How often a lease that another process holds is tried for: a dead leader is replaced within its lease and 2 s."""


class LostLeadershipError(Exception):
    """Another process has the lease: stop at once, and go on as a standby."""


class KeptLease:
    """``held``: whether this process holds the lease. ``of``: the subject of the lease, for errors and reasons."""

    def __init__(
        self, lease: Lease, of: str, taken: Callable[[], None] = lambda: None, lost: Callable[[], None] = lambda: None
    ) -> None:
        """``taken`` is called each time it becomes ours, ``lost`` each time it no longer is."""
        self.held = False
        self.of = of
        self._lease = lease
        self._taken, self._lost = taken, lost
        self._kept_at = float("-inf")
        """When it was known last that a process holds it."""

    def free_s(self) -> float:
        """The seconds since a holder was last known."""
        return 0.0 if self.held else asyncio.get_running_loop().time() - self._kept_at

    async def acquire(self) -> None:
        """Wait until it is ours."""
        while not (ours := await self._lease.acquire()):
            if ours is False:
                self._kept_at = asyncio.get_running_loop().time()
            await beat(STANDBY_S)
        self.held = True
        self._taken()

    async def keep(self) -> None:
        """Take the free lease, and renew it, for ever. Raises LostLeadershipError once another process has it.

        A lease that ran out is taken again: a leader in between would have appended, which fences this process.
        """
        if not self.held:
            await self.acquire()
        while True:
            await beat(LEASE_RENEWAL_S)
            if not await self._lease.renew() and not await self._lease.acquire():
                self.held = False
                self._lost()
                raise LostLeadershipError(f"lease of {self.of} was lost")

    async def keep_trying(self) -> None:
        """The same, but a standby again once it was lost."""
        while True:
            try:
                await self.keep()
            except LostLeadershipError:
                continue

    async def release(self) -> None:
        """Release the lease, so that a successor need not wait for its end."""
        if self.held:
            await self._lease.release()
