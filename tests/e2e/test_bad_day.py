"""A bad day in production (kit.badday): real servers, the shipped accounts and layouts, a judge that believes nobody.

`make chaos MINUTES=60 SEED=1` plays faults by chance for an hour, and ends with a table; here one of them is played.
`make chaos PLANT=n` plays with bug n planted, which the judge must find.
"""

import os
import sys
from pathlib import Path

import pytest

from kit.badday.day import day, find, play_all
from kit.badday.faults import FAULTS
from kit.badday.plants import PLANTS
from kit.badday.shim import planted
from kit.container import runs_here

MINUTES = float(os.environ.get("MUSTER_CHAOS_MINUTES", "0"))
SEED = int(os.environ.get("MUSTER_TEST_SEED", "1"))
PLANT = int(os.environ.get("MUSTER_CHAOS_PLANT") or "0")
LAYOUT = os.environ.get("MUSTER_CHAOS_LAYOUT", "deciders")
ONLY = [name for name in os.environ.get("MUSTER_CHAOS_ONLY", "").split(",") if name]
SHORT = ("rolling restart",)
"""What is played where no time is given: what no other test plays with the probes of an installation."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600 + MINUTES * 90),
    pytest.mark.skipif(not runs_here(), reason="`unshare --map-root-user --mount` is refused: no disk of its own"),
]


@pytest.mark.skipif(not PLANT, reason="no bug is planted: make chaos PLANT=n")
async def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    plant = PLANTS[PLANT]
    lacking = planted.missing(PLANT)
    assert not lacking, f"bug {PLANT} ({plant.what}) cannot be planted, the code has no {', '.join(lacking)}"
    async with day(tmp_path, SEED, LAYOUT, plant=PLANT) as made:
        took = await find(made, plant, MINUTES or 10)
        said = "not found" if took is None else f"found after {took:.0f} s"
        sys.stderr.write(f"\n{made.table()}\nbug {PLANT} ({plant.what}): {said}\n")
    unused = planted.unused(PLANT, tmp_path)
    assert not unused, f"bug {PLANT} ({plant.what}) was not planted: no service loaded {', '.join(unused)}"
    assert took is not None, f"{plant.what}: not found"


@pytest.mark.skipif(bool(PLANT), reason="a bug is planted")
async def test_a_bad_day(tmp_path: Path) -> None:
    async with day(tmp_path, SEED, LAYOUT) as made:
        try:
            if MINUTES:
                await play_all(made, MINUTES, ONLY)
            else:
                for name in ONLY or SHORT:
                    await made.play(FAULTS[name])
            await made.settle(90.0)
        finally:
            sys.stderr.write(f"\n{made.table()}\n")
        assert not made.judge.violations
