"""Whoever leaves in good order keeps a snapshot of everything up to the end: its successor goes on from there."""

from __future__ import annotations

import asyncio

import pytest

from kit.shell import Cell, play, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.runtime.runners.leader import Leader

LONG_S = 120.0


@pytest.mark.parametrize("service", ("watcher", *DECIDERS, "actuator", "presenter"))
def test_a_successor_leads_from_a_snapshot_that_lies_behind_its_last_commit(service: str) -> None:
    cell = Cell()

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("one"))
        await cell.until(lambda: cell.jobs().get("one") == "Complete", limit_s=600)
        await asyncio.sleep(LONG_S)
        first = cell.processes[service]
        for runner in cell.runners[first.name]:
            await (runner.stop() if isinstance(runner, Leader) else runner.keep_snapshot())
        first.kill()
        await asyncio.sleep(LONG_S)
        cell.create(small_job("two"))
        await cell.until(lambda: cell.jobs().get("two") == "Complete", limit_s=600)

    play(cell, scene)
    assert cell.starts[service] == 2
    assert cell.ended == [], "nobody took its own last commit for another's"
    runners = cell.runners[cell.processes[service].name]
    assert all(runner.leading() for runner in runners if isinstance(runner, Leader))
