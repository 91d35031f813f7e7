"""Word, among the processes of a cell, that its log was compared with the witness outside NATS.

Only processes that reach the API server can compare. Another process that starts waits until one of them says so again:
keys ``watcher.witness`` and ``actuator.witness`` of the bucket of leases, whose entries expire, so that nothing that
lies in a store which was set back counts.
"""

from __future__ import annotations

import msgspec

from muster.bus.errors import UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket, KvEntry
from muster.bus.lease import LeaseHolder
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.events.registry import encode
from muster.ports import LogIdentity

SHARD = "witness"
REACHING = ("watcher", "actuator")
"""Services that reach the API server, and so can compare."""
PATIENCE_S = 5.0


class Vouches:
    """Of a cell, as one process gives or awaits them."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._bucket = KvBucket(js, subjects.lease_bucket(cell))
        self._seen: dict[str, int] = {}
        """{service: revision of its key when it was looked at last}"""
        self._asked = ""
        """The log it was asked of."""

    async def give(self, service: str, process: str, identity: LogIdentity) -> None:
        """Say that a log may be built on, unless another process has said so since the last time. Raises BusError."""
        entry = await self._bucket.get(f"{service}.{SHARD}", patience_s=PATIENCE_S)
        revision = entry.revision if entry is not None else 0
        again = _log_of(entry) == identity.log_id and revision != self._seen.get(service, revision)
        self._seen[service] = revision
        if again:
            return
        try:
            holder = encode(LeaseHolder(process=process, log_id=identity.log_id))
            written = await self._bucket.put(f"{service}.{SHARD}", holder, revision=revision, timeout_s=PATIENCE_S)
        except UnansweredError:
            return
        self._seen[service] = written or revision

    async def given(self, identity: LogIdentity) -> bool:
        """Whether a process has said so of a log since it was asked first. Raises BusError."""
        first, self._asked = self._asked != identity.log_id, identity.log_id
        witnessed = False
        for service in REACHING:
            entry = await self._bucket.get(f"{service}.{SHARD}", patience_s=PATIENCE_S)
            revision = entry.revision if entry is not None else 0
            if first:
                self._seen[service] = revision
            elif revision > self._seen[service] and _log_of(entry) == identity.log_id:
                witnessed = True
        return witnessed


def _log_of(entry: KvEntry | None) -> str:
    try:
        return msgspec.json.decode(entry.value or b"", type=LeaseHolder).log_id if entry is not None else ""
    except UNREADABLE:
        return ""
