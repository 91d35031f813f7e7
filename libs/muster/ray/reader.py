"""A head, read again and again: gRPC first, the dashboard while gRPC fails, and the changes between readings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from msgspec import structs

from muster.model.raydemand import RayDemand
from muster.ports import Clock
from muster.ray.dashboard import DashboardClient
from muster.ray.errors import DemandError, RefusedError
from muster.ray.gcs import GcsClient
from muster.ray.heads import DemandSource, Drained, Head
from muster.ray.joining import Joining
from muster.ray.pace import TickPace
from muster.ray.reading import Reading, demand_of, in_trouble

RETRY_GCS_MS = 30_000
"""While the dashboard answers, gRPC is tried again this often."""
FAILURES = 2
"""So many readings in a row have to fail before the head is reported."""


class OnRead(Protocol):
    """Called after every reading of one source."""

    def __call__(self, source: str, outcome: str, seconds: float) -> None:
        """``("gcs", "ok", 0.0005)``; the outcome is ``ok`` or the code of a DemandError."""


def unnoticed(source: str, outcome: str, seconds: float) -> None:
    """Nothing counts."""


class HeadReader:
    """Reads a head. One reading at a time; raises nothing: an unreadable head is a demand with a trouble.

    ``known``: the head's demand in the log, if any. ``gcs``, ``dashboard``: clients in place of clients made from the
    addresses; `close` closes both.
    """

    def __init__(
        self,
        head: Head,
        *,
        clock: Clock,
        known: RayDemand | None = None,
        on_read: OnRead = unnoticed,
        gcs: GcsClient | None = None,
        dashboard: DemandSource | None = None,
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.head = head
        self.gcs = gcs or GcsClient(head.gcs, token=head.token, tls=head.tls, certificates=head.certificates)
        self._dashboard = dashboard
        if dashboard is None and head.dashboard:
            self._dashboard = DashboardClient(head.dashboard, token=head.token)
        self._clock = clock
        self._seconds = seconds
        self._on_read = on_read
        self.demand = known
        """Of the last reading."""
        self.reading: Reading | None = None
        """The last one that succeeded."""
        self.error: DemandError | None = None
        """Why the last one did not."""
        self.failures = 0
        """Readings in a row that failed."""
        self._pace = TickPace(known.tick_ms if known is not None else 0)
        self._joining = Joining()
        self.closely = False
        """Workers of it are to go: what each holds is news."""
        self._avoid_gcs_until = 0

    async def read(self) -> RayDemand:
        """The demand as of now; equal to the one before as long as nothing changes."""
        before, now = self.demand, self._clock.now()
        try:
            reading = await self._read()
        except DemandError as err:
            self.error = err
            self.failures += 1
            self._pace.missed()
            if self.failures >= FAILURES or before is None:
                self.demand = in_trouble(err.trouble, before)
        else:
            last, self.reading, self.error, self.failures = self.reading, reading, None, 0
            taken = self._joining.taken(reading, now)
            demand = demand_of(reading, now, before, taken, last=last, closely=self.closely)
            stalled = self._stalled(reading, demand, before, now)
            self.demand = structs.replace(demand, tick_ms=self._pace.tick_ms)
            if stalled:
                self.demand = in_trouble("stalled", self.demand)
        assert self.demand is not None
        return self.demand

    async def drain(self, pod: str, *, deadline_ms: int, why: str, idle_only: bool = False) -> Drained:
        """Order the node in a pod to drain; see GcsClient. Raises DemandError."""
        node = self.reading.node_of(pod) if self.reading is not None else None
        if node is None:
            return Drained(False, f"{pod} is no node of {self.head.ref.name} that has joined")
        return await self.gcs.drain(node.id, deadline_ms=deadline_ms, why=why, idle_only=idle_only)

    async def close(self) -> None:
        """Close the connections."""
        await self.gcs.close()
        if self._dashboard is not None:
            await self._dashboard.close()

    async def _read(self) -> Reading:
        """By gRPC; by the dashboard where that fails, unless the token is wrong, which is the same for both."""
        now = self._clock.now()
        if self._dashboard is None:
            return await self._timed("gcs", self.gcs)
        if now < self._avoid_gcs_until:
            try:
                return await self._timed("dashboard", self._dashboard)
            except DemandError:
                self._avoid_gcs_until = 0
        try:
            reading = await self._timed("gcs", self.gcs)
        except RefusedError:
            raise
        except DemandError as err:
            try:
                reading = await self._timed("dashboard", self._dashboard)
            except DemandError:
                raise err from None
            self._avoid_gcs_until = now + RETRY_GCS_MS
        return reading

    async def _timed(self, name: str, source: DemandSource) -> Reading:
        began = self._seconds()
        outcome = "ok"
        try:
            return await source.read()
        except DemandError as err:
            outcome = err.code
            raise
        except Exception as err:  # a surprise of one head stops no other
            outcome = DemandError.code
            raise DemandError(f"{name} of {self.head!r}: {type(err).__name__}: {err}") from err
        finally:
            self._on_read(name, outcome, self._seconds() - began)

    def _stalled(self, reading: Reading, demand: RayDemand, before: RayDemand | None, now: int) -> bool:
        """Whether the autoscaler has made no tick for too long, while there is something to do."""
        if reading.ticks is None:  # the first version never says, the dashboard neither
            return before is not None and before.trouble == "stalled"
        self._pace.note(reading.ticks, now, version=reading.looks, launching=bool(reading.launching))
        return bool(demand.pending or demand.placement_groups or demand.idle) and self._pace.late(now)
