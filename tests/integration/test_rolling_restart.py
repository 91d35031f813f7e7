"""A rolling restart of a whole installation, in each layout, with its accounts, while five jobs a second arrive.

There are snapshots of every stage by then, which a second start reads and a first one does not. With
MUSTER_TEST_ROLLING=5000 there are so many commits before it, as many replicas as are installed, and compose as well.
"""

import os
from pathlib import Path

import pytest

from kit.accounts import shipped
from kit.installation import figure
from kit.proof import commits_of
from kit.rolling import CELL, FORMS, Arrivals, Installed, resumed
from kit.simulated import cluster
from kit.waiting import until

COMMITS = int(os.environ.get("MUSTER_TEST_ROLLING", "0"))
LONGEST_S = 15.0
"""Until a job is let go that would be let go at once otherwise."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + COMMITS)]


@pytest.mark.parametrize("form", FORMS if COMMITS else ["all", "separate"])
async def test_no_admission_waits_long_for_a_rolling_restart(
    form: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with (
        shipped(tmp_path) as (url, accounts),
        cluster(tmp_path) as (simulated, kubeconfig),
        Installed(tmp_path, url, accounts, kubeconfig, single=not COMMITS) as installed,
        resumed(url) as times,
    ):
        arrivals = Arrivals(simulated)
        await installed.start(form)
        async with arrivals.flowing():
            await until(lambda: _grown(url, max(COMMITS, 200)), timeout_s=60.0 + COMMITS, every_s=0.5)
            await installed.keep_read_model()
            first = len(arrivals.made)
            await installed.roll(form)
            names = [*arrivals.made]
            await until(lambda: {*names} <= times.keys(), timeout_s=60.0, every_s=0.5, what="all jobs to be let go")
        waits = {name: (times[name] - arrivals.made[name]) / 1000 for name in names[first - 10 :]}
        longest = max(waits, key=waits.__getitem__)
        figure(request, f"rolling restart, {form}", f"{len(waits)} jobs, the longest wait is {waits[longest]:.1f} s")
        assert installed.died() == {}
        assert waits[longest] <= LONGEST_S, f"{longest} waited {waits[longest]:.1f} s"


async def _grown(url: str, commits: int) -> bool:
    found = await commits_of(url, CELL)
    return bool(found) and found[-1].seq >= commits
