"""Each key writes everything that is not its own to say, while a cell works: all of it is void, and no service ends."""

from __future__ import annotations

import asyncio
from itertools import cycle

import pytest

from kit.hostilelog import SEATS, epochs, matrix
from kit.proof import proven
from kit.shell import Cell, play, small_job, small_tree
from muster.core.docket import Docket, Judge
from muster.runtime.layouts import LAYOUTS

DONE = {"one": "Complete", "two": "Complete"}
TRIES = [*matrix("watcher.pods", 1, 0)]


@pytest.mark.parametrize(("what", "layout"), [*zip(TRIES, cycle(LAYOUTS), strict=False)])
def test_what_no_key_may_say_is_void_and_fences_no_leader(what: str, layout: str) -> None:
    cell = Cell(layout=layout)
    written: set[int] = set()

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("one"))
        await cell.until(lambda: "one" in cell.jobs() and len(cell.commits()) > 20)
        cell.create(small_job("two"))
        for seat in SEATS:
            now = cell.clock.now()
            where, body = matrix(seat, epochs(cell.commits()).get(seat, 0), now)[what]
            written.add(cell.log.write(where, body, now))
            await asyncio.sleep(0.1)
        await cell.until(lambda: cell.jobs() == DONE, limit_s=600, what="both jobs complete")

    play(cell, scene)
    assert cell.ended == []
    counted = [*map(Judge(Docket()).hear, cell.commits())]
    assert {stored.seq for stored in counted if stored.void} == written
    proven(counted)
