"""A start goes on from the newest snapshot that can be used, whatever newer ones are."""

from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from muster.core.cell.deciders import DECIDERS
from muster.ports import LogIdentity, Snapshot
from muster.runtime.logkeeping.snapshotting import make_snapshot, restore

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


def at(seq: int) -> Snapshot:
    state = STAGE.initial()
    state.seq = seq
    return make_snapshot(IDENTITY, "queue_sorter", "0", state)


BAD = {
    "other_schema": replace(at(160), schema="another"),
    "unreadable": replace(at(160), body=b"\xc1"),
    "other_log": replace(at(160), log_id="another"),
    "ahead": replace(at(1_000_000), seq=160),
}


@pytest.mark.parametrize("bad", BAD)
async def test_the_one_before_is_used(bad: str) -> None:
    """Also one that says another position than its state: it would have the log looked for where it never was."""
    state, how = await restore(Few(BAD[bad], at(150)), IDENTITY, "queue_sorter", "0", STAGE.initial())
    assert (state.seq, how) == (150, "restored")


async def test_where_none_can_be_used_the_newest_says_why() -> None:
    kept = Few(BAD["other_schema"], BAD["unreadable"])
    state, how = await restore(kept, IDENTITY, "queue_sorter", "0", STAGE.initial())
    assert (state.seq, how) == (0, "other_schema")
