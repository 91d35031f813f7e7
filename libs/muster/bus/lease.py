"""Leases: a key per (stage, shard) in a bucket whose entries expire. Leases only avoid conflicts."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from msgspec import Struct

from muster.bus.errors import ApiError, BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.events.registry import encode
from muster.ports import LogIdentity

LEASE_S = 10.0
"""How long a lease lasts without renewal. Renew three times as often."""


class LeaseHolder(Struct, frozen=True):
    """The holder of a lease: a process (unique per start) and the log it writes to."""

    process: str
    log_id: str


class JetStreamLease:
    """The lease of one (stage, shard), as seen by one process (see ports.Lease)."""

    def __init__(
        self, js: JetStream, identity: LogIdentity, stage: str, shard: str, process: str, *, lease_s: float = LEASE_S
    ) -> None:
        self._connection = js.connection
        self._bucket = KvBucket(js, subjects.lease_bucket(identity.cell))
        self._key = f"{stage}.{shard}"
        self._value = encode(LeaseHolder(process=process, log_id=identity.log_id))
        self._lease_s = lease_s
        self._try_s = lease_s / 3
        self._revision = 0
        """Revision of our own entry, 0 while we hold nothing."""
        self._theirs = (0, float("-inf"))
        """Revision of another's entry, and when it was seen to move on."""
        self._until = 0.0
        """Loop time until which it is ours for certain."""

    async def acquire(self) -> bool | None:
        """See ports.Lease. None also when the bus does not answer."""
        asked = asyncio.get_running_loop().time()
        try:
            entry = await self._bucket.get(self._key, patience_s=self._try_s)
            if entry is not None and entry.value not in (None, self._value):
                self._revision = 0
                return False if self._renewed(entry.revision, asked) else None
            return await self._write(entry.revision if entry is not None else 0, asked) or None
        except (UnansweredError, BusError) as err:
            self._raise_if_final(err)
            return None

    async def renew(self) -> bool:
        """See ports.Lease. While the bus does not answer it stays ours until it must have expired."""
        if not self._revision:
            return False
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            if await self._write(self._revision, asked):
                return True
            # Refused: an earlier renewal whose answer was lost, or another process.
            entry = await self._bucket.get(self._key, patience_s=self._try_s)
            if entry is not None and entry.value == self._value and await self._write(entry.revision, asked):
                return True
        except (UnansweredError, BusError) as err:
            self._raise_if_final(err)
            if loop.time() < self._until:
                return True
        self._revision = 0
        return False

    async def release(self) -> None:
        """See ports.Lease. When the bus does not answer, the lease simply runs out."""
        revision, self._revision = self._revision, 0
        if revision:
            with contextlib.suppress(UnansweredError, BusError):
                await self._bucket.delete(self._key, revision=revision, timeout_s=self._try_s)

    async def holder(self) -> LeaseHolder | None:
        """Its holder now, None for none."""
        entry = await self._bucket.get(self._key)
        if entry is None or entry.value is None:
            return None
        try:
            return msgspec.json.decode(entry.value, type=LeaseHolder)
        except UNREADABLE:
            return LeaseHolder("unknown", "")

    def _renewed(self, revision: int, now: float) -> bool:
        """Whether another's entry is renewed: in a bucket that cannot be written to nothing runs out either."""
        before, moved_at = self._theirs
        if revision != before:
            self._theirs = (revision, moved_at := now if before else moved_at)
        return now - moved_at <= self._lease_s

    async def _write(self, revision: int, asked: float) -> bool:
        written = await self._bucket.put(self._key, self._value, revision=revision, timeout_s=self._try_s)
        if written is None:
            return False
        self._revision, self._until = written, asked + self._lease_s
        return True

    def _raise_if_final(self, error: Exception) -> None:
        """Silence passes; a bucket that is gone or a connection that failed does not."""
        if isinstance(error, ApiError) or self._connection.failure is not None:
            raise error
