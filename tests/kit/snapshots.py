"""Snapshots of one stage, as a test wants them."""

from collections.abc import AsyncGenerator

from muster.core.cell.deciders import DECIDERS
from muster.ports import LogIdentity, Snapshot
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

    async def load(self, _stage: str, _shard: str) -> Snapshot | None:
        return self._kept[0]

    async def save(self, _snapshot: Snapshot) -> bool:
        return False


def at(seq: int, last: bytes = b"") -> Snapshot:
    """One that says it is of a position; ``last``: the digest of the commit there."""
    state = STAGE.initial()
    state.seq, state.docket.last = seq, last
    return make_snapshot(IDENTITY, STAGE.name, "0", state)
