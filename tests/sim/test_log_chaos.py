"""Hostile keys and a forgetful broker, by seed: junk, forged decisions, foreign times, and a log that loses its end.

The scene is two RayJobs of which only one fits. Both end, each started once, never both at once; what counts of the
log replays without divergence. Meanwhile one service is killed, or stopped for a while: each seed plays one cell of
the matrix LOSSES x FATES x processes x LAYOUTS, and as many seeds in a row play all of it. Three seeds of four have one
of TROUBLES of the servers as well: JetStream is off, a right is denied, a copy has a hole. `make chaos SEED=N COUNT=M`
plays other seeds; `make chaos MINUTES=N` plays the same with real processes (tests/e2e/test_bad_day.py).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from random import Random

import pytest

from kit.hostilelog import hostile, judged
from kit.shell import PAUSE_S, Cell, play, process_of, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api
from muster.model.keys import Ref
from muster.runtime.layouts import LAYOUTS

FIRST = int(os.environ.get("MUSTER_TEST_SEED", "1"))
COUNT = int(os.environ.get("MUSTER_TEST_SEEDS", "6"))
DONE = {"one": "Complete", "two": "Complete"}
JOBS = [Ref("RayJob", "video", name, f"uid-{name}") for name in DONE]
LOSSES = (1, 8, 1_000)
"""How many commits the log loses; the last is all of them."""
FATES = ("none", "killed", "stopped")
MATRIX = list(
    dict.fromkeys(
        (loss, fate, process_of(service, layout) if service else "", layout)
        for loss in LOSSES
        for fate in FATES
        for service in (("",) if fate == "none" else ("watcher", *DECIDERS, "actuator"))
        for layout in LAYOUTS
    )
)
TROUBLES = ("", "off", "denied", "hole")
KEEPS = 20
"""Steps between two looks of the keeper at the copies of the log"""


async def trouble(cell: Cell, rng: Random) -> None:
    """One of TROUBLES, from a time that chance chooses, for a while."""
    broker, which = cell.broker, TROUBLES[cell.seed % len(TROUBLES)]
    await asyncio.sleep(rng.randrange(4, 120) / 4)
    if which == "off":
        broker.on = False
    elif which == "denied":
        services = ("watcher", *DECIDERS, "actuator")
        broker.denied |= {(rng.choice(("append", "lease", "snapshots")), rng.choice(services))}
    elif which == "hole" and (end := len(cell.commits())) > 3:
        first = rng.randrange(2, end)
        broker.tear(cell.log.identity, first, rng.choice((end, rng.randrange(first, end))))
    await asyncio.sleep(rng.randrange(4, 160) / 4)
    broker.on = True
    broker.denied.clear()


async def scene(cell: Cell) -> None:
    loss, fate, process, _ = MATRIX[cell.seed % len(MATRIX)]
    rng = Random(cell.seed)
    cell.create(small_tree())
    cell.create(small_job("one"))
    cell.create(small_job("two"))
    loses_at = rng.randrange(4, 60)
    # Before the log loses its end, meanwhile, or after it.
    struck_at = max(2, loses_at + rng.randrange(-8, 9))
    troubled = asyncio.ensure_future(trouble(cell, Random(~cell.seed)))
    for step in range(320):
        if step % KEEPS == 0:
            cell.broker.keep(cell.log.identity, len(cell.commits()))
        if step == struck_at and fate == "killed":
            cell.processes[process].kill()
        elif step == struck_at and fate == "stopped":
            cell.processes[process].paused_until = asyncio.get_running_loop().time() + PAUSE_S
        if rng.random() < 0.3:
            now = cell.clock.now()
            seat, body = hostile(rng, now, JOBS)
            cell.log.write(seat, body, now)
        if step == loses_at:
            # As the keeper does where the services agree: the next generation begins from the cluster.
            cell.log.lose(loss)
            cell.new_log()
        await asyncio.sleep(0.25)
    await troubled
    await cell.until(lambda: cell.jobs() == DONE, limit_s=600, what="both jobs complete")
    assert not cell.refounded, "no log is given up that the servers have"
    torn = [copy for copy in cell.broker.torn() if copy[0] == cell.log.identity.log_id]
    assert not torn, "the keeper has rebuilt the copy with a hole"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_both_jobs_end_whatever_is_written_and_lost(seed: int) -> None:
    cell = Cell(seed=seed, layout=MATRIX[seed % len(MATRIX)][-1], witnessed=True)
    started: Counter[str] = Counter()

    def heard(change: StoredChange) -> None:
        if change.type == "ADDED":
            started[change.object["metadata"]["ownerReferences"][0]["name"]] += 1

    cell.cluster.server.subscribe(heard, api.RAYCLUSTERS)
    play(cell, scene)
    assert started == Counter(["one", "two"]), "each job is started exactly once"
    assert judged(cell.commits()) > 0
