"""The processes that are alive: a key for each process, stage and shard in a bucket of its own, which expires.

A process chooses the name of its key, so a key in other hands may fill this bucket: not the bucket of the leases.
"""

from __future__ import annotations

import contextlib

import msgspec

from muster.bus.errors import UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.events.registry import encode
from muster.ports import Replica

REPLICA = "replica"
_replicas = msgspec.json.Decoder(Replica)


class JetStreamReplicas:
    """The replicas of one cell (see ports.Replicas)."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._js = js
        self._name = subjects.replica_bucket(cell)
        self._bucket = KvBucket(js, self._name)

    async def announce(self, replica: Replica) -> None:
        """See ports.Replicas. What does not arrive is made up for by the next one."""
        key = (
            f"{REPLICA}.{replica.stage}.{subjects.escape_token(replica.shard)}.{subjects.escape_token(replica.process)}"
        )
        with contextlib.suppress(UnansweredError):
            await self._js.publish(f"$KV.{self._name}.{key}", encode(replica), {})

    async def live(self) -> list[Replica]:
        """See ports.Replicas. Raises BusError."""
        replicas: list[Replica] = []
        for key in await self._bucket.keys(REPLICA):
            entry = await self._bucket.get(key)
            if entry is not None and entry.value is not None:
                with contextlib.suppress(*UNREADABLE):  # Junk is no replica.
                    replicas.append(_replicas.decode(entry.value))
        return replicas
