"""Hostile keys and a forgetful broker, by seed: junk, forged decisions, foreign times, and a log that loses its end.

The scene is two RayJobs of which only one fits. Both end, each started once, never both at once; what counts of the
log replays without divergence. What a seat's own key says under the epoch of its leader counts: the replay names that,
and nothing else. Meanwhile one service is killed, or stopped for a while: each seed plays one cell of the matrix LOSSES
x FATES x processes x LAYOUTS, and as many seeds in a row play all of it. `make chaos SEED=N COUNT=M` plays other seeds.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from kit.proof import proven
from kit.shell import PAUSE_S, Cell, play, process_of, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.judge import RIGHTS
from muster.core.docket import Docket, Judge
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Commit, encode_commit
from muster.events.system import Genesis
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api
from muster.model.keys import Ref
from muster.runtime.layouts import LAYOUTS
from muster.runtime.replaying.replay import replay

FIRST = int(os.environ.get("MUSTER_TEST_SEED", "1"))
COUNT = int(os.environ.get("MUSTER_TEST_SEEDS", "6"))
DONE = {"one": "Complete", "two": "Complete"}
SEATS = sorted(RIGHTS)
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


def hostile(rng: Random, cell: Cell) -> tuple[str, bytes, int]:
    """What somebody with one key or another might write, where, and the broker's time then."""
    seat, now = rng.choice([*SEATS, "oracle.0", "gang_admitter.9"]), cell.clock.now()
    stage, _, shard = seat.partition(".")
    job = rng.choice(["one", "two"])
    forged = GangAdmitted(cause=Cause(1, 0), ref=Ref("RayJob", "video", job, f"uid-{job}"), attempt=1, queue="root")
    commit = Commit(commit_id="h", stage=stage, shard=shard, kind="decision", at=now, in_seq=1, events=(forged,))
    bodies = (
        b'{"commit_id":"x"}',
        rng.randbytes(40),
        encode_commit(commit),
        encode_commit(replace(commit, stage="gang_admitter", shard="0", epoch=rng.randrange(40))),
        encode_commit(replace(commit, kind="input", events=(), at=now + 10**12)),
        encode_commit(replace(commit, kind="input", events=(), prefix="00" * 8)),
        encode_commit(commit).replace(b"gang_admitted", b"gang_teleported"),
        encode_commit(replace(commit, kind="input", events=(Genesis(log_id="mine", generation=1),))),
    )
    return seat, rng.choice(bodies), now


async def scene(cell: Cell, written: set[tuple[str, int]]) -> None:
    """``written``: takes the log and the sequence of what is hostile."""
    loss, fate, process, _ = MATRIX[cell.seed % len(MATRIX)]
    rng = Random(cell.seed)
    cell.create(small_tree())
    cell.create(small_job("one"))
    cell.create(small_job("two"))
    loses_at = rng.randrange(4, 60)
    # Before the log loses its end, meanwhile, or after it.
    struck_at = max(2, loses_at + rng.randrange(-8, 9))
    for step in range(240):
        if step == struck_at and fate == "killed":
            cell.processes[process].kill()
        elif step == struck_at and fate == "stopped":
            cell.processes[process].paused_until = asyncio.get_running_loop().time() + PAUSE_S
        if rng.random() < 0.3:
            written.add((cell.log.identity.log_id, cell.log.write(*hostile(rng, cell))))
        if step == loses_at:
            # As the keeper does where the services agree: the next generation begins from the cluster.
            cell.log.lose(loss)
            cell.new_log()
        await asyncio.sleep(0.25)
    await cell.until(lambda: cell.jobs() == DONE, limit_s=600, what="both jobs complete")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_both_jobs_end_whatever_is_written_and_lost(seed: int) -> None:
    cell = Cell(seed=seed, layout=MATRIX[seed % len(MATRIX)][-1])
    started: Counter[str] = Counter()

    def heard(change: StoredChange) -> None:
        if change.type == "ADDED":
            started[change.object["metadata"]["ownerReferences"][0]["name"]] += 1

    cell.cluster.server.subscribe(heard, api.RAYCLUSTERS)
    written: set[tuple[str, int]] = set()
    play(cell, partial(scene, written=written))
    assert started == Counter(["one", "two"]), "each job is started exactly once"
    judge = Judge(Docket())
    counted = [judge.hear(stored) for stored in cell.commits()]
    assert any(stored.void for stored in counted)
    hostile_seqs = {seq for log_id, seq in written if log_id == cell.log.identity.log_id}
    guessed = {stored.seq for stored in counted if stored.seq in hostile_seqs and not stored.void}
    if not guessed:
        proven(counted)
    else:
        named = {each.seq for each in replay(counted, silences=False).divergences}
        assert named == guessed
