"""NATS is set back under all processes, which are killed: up to the record of the cell no sequence has two contents."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from kit.shell import Cell, play, small_job, small_tree
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api
from muster.runtime.layouts import LAYOUTS
from muster.runtime.witness import CellRecord

SEEDS = range(12)
DONE = {"one": "Complete", "two": "Complete"}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_sequence_is_used_twice_as_far_as_the_record_reaches(seed: int) -> None:
    rng = Random(seed)
    cell = Cell(seed=seed, layout=[*LAYOUTS][seed % len(LAYOUTS)], witnessed=True)
    contents: dict[tuple[int, int], bytes] = {}
    twice: list[tuple[int, int]] = []
    started: Counter[str] = Counter()

    def heard(change: StoredChange) -> None:
        if change.type == "ADDED":
            started[change.object["metadata"]["ownerReferences"][0]["name"]] += 1

    def look() -> None:
        for log in cell.logs:
            for stored in log.commits():
                position = log.identity.generation, stored.seq
                if contents.setdefault(position, stored.digest) != stored.digest:
                    twice.append(position)

    async def scene(cell: Cell) -> None:
        record = CellRecord(cell.cluster.transport(), "main", cell.clock)
        cell.create(small_tree())
        cell.create(small_job("one"))
        cell.create(small_job("two"))
        for _ in range(3):
            await asyncio.sleep(rng.randrange(4, 120) / 4)
            look()
            found = await record.read()
            if found is None or found.log_id != cell.log.identity.log_id:
                continue
            for process in cell.processes.values():
                process.kill()
            # What lies after the record may be lost unseen, and is no matter of this test.
            lost = len(cell.log.commits()) - rng.randrange(1, found.seq + 1)
            for position in [each for each in contents if each[0] == cell.generation and each[1] > found.seq]:
                del contents[position]
            cell.log.lose(lost)
        await cell.until(lambda: cell.jobs() == DONE, limit_s=900, what="both jobs complete")
        look()

    cell.cluster.server.subscribe(heard, api.RAYCLUSTERS)
    play(cell, scene)
    assert twice == []
    assert started == Counter(["one", "two"]), "each job is started once"
