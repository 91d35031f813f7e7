"""Snapshots of one stage, as a test wants them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from muster.core.cell.deciders import DECIDERS
from muster.ports import Fingerprint, LogIdentity, Snapshot, Snapshots
from muster.runtime.logkeeping.snapshotting import make_snapshot

IDENTITY = LogIdentity(cell="main", log_id="log", generation=1)
STAGE = DECIDERS["queue_sorter"]()


class Few:
    """So many snapshots, the newest first."""

    def __init__(self, *kept: Snapshot) -> None:
        self._kept = kept

    async def each(self, _stage: str, _shard: str) -> AsyncGenerator[Snapshot, None]:
        for snapshot in self._kept:
            yield snapshot

    async def newest(self, _stage: str, _shard: str) -> Fingerprint | None:
        return None

    async def save(self, _snapshot: Snapshot, *, end: int | None = None) -> bool:
        return False


async def loaded(snapshots: Snapshots, stage: str, shard: str) -> Snapshot | None:
    """The newest that is whole."""
    async with aclosing(snapshots.each(stage, shard)) as found:
        async for snapshot in found:
            return snapshot
    return None


def at(seq: int, last: bytes = b"") -> Snapshot:
    """One that says it is of a position; ``last``: the digest of the commit there."""
    state = STAGE.initial()
    state.seq, state.docket.last = seq, last
    return make_snapshot(IDENTITY, STAGE.name, "0", state)
