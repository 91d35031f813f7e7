"""The scoreboard in small: figures beside Kueue's and KAI's rules on drawn days that must not get worse.

`make bench ARGS="--only scoreboard"` has the large one. A bound here follows a change of the rules downwards; a bound
that must go up needs a reason in the commit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import fmean

import pytest

from kit.compose import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "perf"))
import bench_scoreboard as board
from figures import Progress

pytestmark = pytest.mark.timeout(300)

COPIES, JOBS, NODES = 2, 120, 6
LOST, EVICTIONS, UNSERVED = 4, 5, 6

BOUNDS = {
    "off": {"ratio": 1.04, "worst": 1.13, "lost": 1.0, "unserved": 0.3, "evictions": 9},
    "pack": {"ratio": 1.04, "worst": 1.14, "lost": 1.0, "unserved": 0.3, "evictions": 8},
}
"""placement -> completion / better peer (geometric mean, worst family), lost GPU-h / Kueue's, unserved GPU-h of all
families, most evictions of one job
"""


@pytest.fixture(scope="module")
def copies() -> board.Copies:
    return board.run(board.FAMILIES, COPIES, JOBS, 1, Progress(), NODES)


@pytest.mark.parametrize("mode", board.MODES)
def test_no_figure_beside_the_peers_gets_worse(copies, mode):
    better = {family: board.ratios(copies, family, mode)[:2] for family in board.FAMILIES}
    ours = [copies[family, mode, board.MUSTER] for family in board.FAMILIES]
    kueue = [copies[family, mode, "kueue-like"] for family in board.FAMILIES]
    found = {
        "ratio": board.geometric_mean(list(better.values()))[0],
        "worst": max(ratio for ratio, _ in better.values()),
        "lost": total(ours, LOST) / max(total(kueue, LOST), 1),
        "unserved": total(ours, UNSERVED),
        "evictions": max(each[EVICTIONS] for drawn in ours for each in drawn),
    }
    print(mode, {name: round(value, 3) for name, value in found.items()}, better)
    assert {name: value for name, value in found.items() if value > BOUNDS[mode][name]} == {}


def total(rows: Sequence[list[list[float]]], at: int) -> float:
    return sum(fmean(each[at] for each in drawn) for drawn in rows)
