"""Orders that are withdrawn while the actuator has not come to them: nothing is written for them, and it goes on."""

from __future__ import annotations

import pytest

from kit.shell import Cell, play, small_job, small_tree
from muster.events.decisions import GangAdmitted
from muster.fakecluster.apiserver import FaultDraw
from muster.fakecluster.apiserver.faults import FaultRates
from muster.model import api
from muster.runtime.runners import acting


def test_an_admitted_job_that_is_deleted_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MAX_IN_FLIGHT", 1)
    cell = Cell(faults=FaultDraw(FaultRates(delay=1.0, delay_s=8.0)))

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        names = [f"job-{number}" for number in range(5)]
        for name in names:
            cell.create(small_job(name, cpu="1", memory="500M", runtime="99h"))

        def admitted() -> set[str]:
            events = [event for stored in cell.commits() for event in stored.commit.events]
            return {event.ref.name for event in events if isinstance(event, GangAdmitted)}

        await cell.until(lambda: admitted() == set(names), what="all to be admitted")
        found = cell.request("GET", api.RAYJOBS, "")["items"]
        waiting = {job["metadata"]["name"] for job in found if job["spec"]["suspend"]}
        assert len(waiting) > 1, "the actuator makes one request at a time"
        for name in sorted(waiting):
            cell.request("DELETE", api.RAYJOBS, "video", name)
        cell.create(small_job("last", cpu="1", memory="500M", runtime="99h"))
        await cell.until(lambda: cell.jobs().get("last") == "Running", what="the last one to run")

    play(cell, scene)
    assert cell.starts["actuator"] == 1
