"""What is about to change is not written to a QueueUnit, unless it stays."""

import asyncio
from typing import Any

from kit.shell import Cell, play, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.fakecluster.apiserver.kinds import KINDS
from muster.model import api
from muster.runtime.presenting.objectwriting import ABSENT_S
from muster.runtime.presenting.presenter import PASSING_S, SETTLE_S


def told(cell: Cell, job: str) -> str:
    """What the QueueUnit of a job says, as Kubernetes shows it."""
    units = cell.request("GET", api.QUEUE_UNITS, "")["items"]
    found = [unit for unit in units if unit["metadata"]["name"].startswith(job)]
    return found[0].get("status", {}).get("message", "") if found else ""


def test_admitted_is_written_only_when_nobody_resumes_the_job() -> None:
    """Without an actuator an admission stands, and must be seen in the end."""

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        running = small_job("first", runtime="60s")
        running["spec"]["suspend"] = False
        cell.create(running)
        await cell.until(lambda: cell.jobs()["first"] == "Running", what="the first job to run")
        cell.create(small_job("second"))
        await cell.until(lambda: "quota" in told(cell, "second"), what="the second job to be told why it waits")
        before = told(cell, "second")
        cell.request("DELETE", api.RAYJOBS, running["metadata"]["namespace"], "first")
        await cell.until(lambda: admissions(cell) == 1, what="the second job to be admitted")
        admitted = cell.clock.now()
        await cell.until(lambda: told(cell, "second") != before, what="the admission to be told")
        assert told(cell, "second").startswith("Admitted"), told(cell, "second")
        waited = (cell.clock.now() - admitted) / 1000
        assert PASSING_S <= waited <= PASSING_S + 2 * SETTLE_S["unit"] + 1, waited
        events = [each for each in cell.request("GET", api.EVENTS, "")["items"] if about(each) == "second"]
        assert [each["reason"] for each in events] == ["InsufficientQuota", "Admitted"], "the refusal is not the last"

    play(Cell(services=("watcher", *DECIDERS, "presenter")), scene)


def about(event: dict[str, Any]) -> str:
    """Name of the object an Event is on."""
    return str(event["involvedObject"]["name"])


def admissions(cell: Cell) -> int:
    return sum(type(event).__name__ == "GangAdmitted" for stored in cell.commits() for event in stored.commit.events)


def test_what_the_server_does_not_have_is_not_asked_for_until_it_has_it() -> None:
    """A cluster without kube-queue has no QueueUnits; its jobs cost no request for one."""

    async def scene(cell: Cell) -> None:
        asked = list[str]()
        server = cell.cluster.server
        handle = server.handle

        def heard(method: str, path: str, *args: Any, **options: Any) -> Any:
            if "queueunits" in path and method != "GET":
                asked.append(path)
            return handle(method, path, *args, **options)

        server.handle = heard  # type: ignore[method-assign]
        server.retire(api.QUEUE_UNITS)
        cell.create(small_tree())
        for name in ("first", "second"):
            cell.create(small_job(name, runtime="60s"))
        await cell.until(lambda: cell.jobs()["second"] == "Running", what="both jobs to run, one after the other")
        assert not asked
        server.serve(next(kind for kind in KINDS if kind.resource == api.QUEUE_UNITS))
        await asyncio.sleep(ABSENT_S)
        cell.create(small_job("third"))
        await cell.until(lambda: "quota" in told(cell, "third"), what="the third job to be told why it waits")

    play(Cell(), scene)
