"""A start goes on from the newest snapshot that can be used, whatever newer ones are."""

import pytest
from msgspec.structs import replace

from kit.doubles.log import MemoryLog
from kit.snapshots import IDENTITY, STAGE, Few, at
from muster.runtime.logkeeping.snapshotting import restore


class Whole(MemoryLog):
    """It shows whatever it is asked for."""

    async def prove(self, seq: int, digest: bytes) -> None:
        pass


LOG = Whole(IDENTITY)
BAD = {
    "other_schema": replace(at(160), schema="another"),
    "unreadable": replace(at(160), body=b"\xc1"),
    "other_log": replace(at(160), log_id="another"),
    "ahead": replace(at(1_000_000), seq=160),
}


@pytest.mark.parametrize("bad", BAD)
async def test_the_one_before_is_used(bad: str) -> None:
    """Also one that says another position than its state: it would have the log looked for where it never was."""
    state, how = await restore(Few(BAD[bad], at(150)), LOG, STAGE.name, "0", STAGE.initial())
    assert (state.seq, how) == (150, "restored")


async def test_where_none_can_be_used_the_newest_says_why() -> None:
    kept = Few(BAD["other_schema"], BAD["unreadable"])
    state, how = await restore(kept, LOG, STAGE.name, "0", STAGE.initial())
    assert (state.seq, how) == (0, "other_schema")
