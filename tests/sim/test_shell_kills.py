"""Killed, paused, delayed, unacknowledged: the real runners at every await point they have, under virtual time.

The scene is two RayJobs of which only one fits. Whatever happens to whichever process, both end, each having been
started exactly once, never both at once, and the log replays without divergence.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from kit.depth import DEEP, points
from kit.doubles.log import AckLost
from kit.proof import proven
from kit.shell import Cell, play, small_job, small_tree
from muster.core.cell.deciders import DECIDERS
from muster.events.base import Cause, Event
from muster.events.envelope import Commit
from muster.fakecluster.apiserver import FaultDraw
from muster.fakecluster.apiserver.faults import FaultRates
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api
from muster.runtime.layouts import LAYOUTS

pytestmark = pytest.mark.timeout(300)  # hundreds of runs each

NONE = Cause(0, 0)
DONE = {"one": "Complete", "two": "Complete"}


class Witness:
    """Counts RayClusters on the cluster itself."""

    def __init__(self, cell: Cell) -> None:
        self.started: Counter[str] = Counter()
        self.live = 0
        self.most = 0
        cell.cluster.server.subscribe(self._heard, api.RAYCLUSTERS)

    def _heard(self, change: StoredChange) -> None:
        if change.type == "ADDED":
            self.started[change.object["metadata"]["ownerReferences"][0]["name"]] += 1
            self.live += 1
        elif change.type == "DELETED":
            self.live -= 1
        self.most = max(self.most, self.live)


async def two_jobs(cell: Cell) -> None:
    cell.create(small_tree())
    cell.create(small_job("one"))
    cell.create(small_job("two"))
    await two_jobs_end(cell)


async def two_jobs_end(cell: Cell) -> None:
    await cell.until(lambda: cell.jobs() == DONE, limit_s=600, what="both jobs complete")
    await cell.until(lambda: "QuotaReleased" in str(cell.commits()[-40:]), what="the last quota is released")


async def two_jobs_and_a_while(cell: Cell) -> None:
    """Long enough for whoever is killed or paused at the end to be started again, or to find out."""
    await two_jobs(cell)
    await asyncio.sleep(60)


def witnessed(cell: Cell, scene: Callable[[Cell], Awaitable[None]] = two_jobs_and_a_while) -> Cell:
    witness = Witness(cell)
    play(cell, scene)
    assert witness.started == Counter(["one", "two"]), "each job is started exactly once"
    assert witness.most == 1, "12 of 14 cpu are taken by one job: two must never run at once"
    proven(cell.commits())
    return cell


def test_the_scene_plays_without_faults() -> None:
    cell = witnessed(Cell())
    assert not cell.ended
    assert set(cell.starts.values()) == {1}


SERVICES = ("watcher", "quota_accountant", "queue_sorter", "gang_admitter", "actuator", "presenter")
PARTS = 4 if DEEP else 1
"""Tests that share the points of one service, for a run on several cores."""


def steps_of(service: str) -> int:
    """How many await points the service passes in a run without faults."""
    cell = Cell()
    play(cell, two_jobs)
    return cell.processes[service].steps


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("service", SERVICES)
def test_killed_at_every_await_point(service: str, part: int) -> None:
    for point in points(1 + part, steps_of(service), PARTS):
        cell = Cell()
        cell.kills[service] = point
        witnessed(cell)
        assert cell.starts[service] >= 2, f"{service} was not killed at {point}"


SHARED = [layout for layout, processes in LAYOUTS.items() if layout in processes]
"""Layouts with a process of several services, which is named like them."""
SAMPLE = 3


def decisions(cell: Cell) -> dict[str, list[Event]]:
    """What every decider said, without where it and its causes lie in the log."""
    said: dict[str, list[Event]] = {stage: [] for stage in DECIDERS}
    for stored in cell.commits():
        if stored.commit.kind == "decision":
            said[stored.commit.stage] += [
                replace(event, cause=NONE) if hasattr(event, "cause") else event for event in stored.commit.events
            ]
    return said


def test_every_layout_decides_the_same() -> None:
    alone = decisions(witnessed(Cell()))
    for layout in SHARED:
        together = decisions(witnessed(Cell(layout=layout)))
        assert together == alone, layout
    assert all(alone[stage] for stage in ("quota_accountant", "queue_sorter", "gang_admitter"))


def killed_together(layout: str, points: int) -> None:
    """The process of several stages is killed at so many of its await points: one start each mends it."""
    quiet = Cell(layout=layout)
    play(quiet, two_jobs)
    steps = quiet.processes[layout].steps
    for point in range(steps // (points + 1), steps, steps // (points + 1)):
        cell = Cell(layout=layout)
        cell.kills[layout] = point
        witnessed(cell)
        assert cell.starts[layout] == 2, f"{layout} was killed at {point}"


@pytest.mark.parametrize("layout", SHARED)
def test_stages_that_share_a_process_are_killed_together(layout: str) -> None:
    killed_together(layout, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("layout", SHARED)
def test_stages_that_share_a_process_are_killed_together_at_many_points(layout: str) -> None:
    killed_together(layout, 60 if DEEP else 12)


@pytest.mark.parametrize("layout", SHARED)
@pytest.mark.parametrize("stage", ("quota_accountant", "preemptor"))
def test_one_stage_loses_its_lease_and_all_of_its_process_start_again(layout: str, stage: str) -> None:
    cell = Cell(layout=layout)

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("one"))
        cell.create(small_job("two"))
        await cell.until(lambda: cell.jobs().get("one") == "Running", limit_s=600, what="the first job runs")
        cell.leases.take(stage, "0", "another")
        await two_jobs_end(cell)

    witnessed(cell, scene)
    assert cell.ended == [(f"{layout}-1", "LostLeadershipError")]
    assert cell.starts[layout] == 2
    assert {name: count for name, count in cell.starts.items() if name != layout} == dict.fromkeys(
        {*cell.layout} - {layout}, 1
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("service", ("watcher", "quota_accountant", "queue_sorter", "gang_admitter", "actuator"))
def test_an_old_leader_that_was_paused_at_any_await_point_does_no_harm(service: str, part: int) -> None:
    stopped: Counter[str] = Counter()
    for point in points(1 + part, steps_of(service), PARTS):
        cell = Cell()
        cell.pauses[service] = point
        witnessed(cell)
        for process, task in cell.stale:
            leads = any(runner.leading() for runner in cell.runners.get(process.name, ()))
            assert task.done() or not leads, f"{process.name}, paused at {point}, leads beside its successor"
            stopped["ended" if task.done() else "stands by"] += 1
    assert stopped["ended"] > stopped["stands by"], "most of them had led, and found out that they no longer do"


class Delays:
    """Delays one append, so that whatever others have to say is stored before it, or loses its acknowledgement."""

    def __init__(self, number: int, *, delay_s: float = 0.0, lose_ack: bool = False) -> None:
        self.number = number
        self.delay_s = delay_s
        self.lose_ack = lose_ack
        self.count = 0

    async def before_store(self, commit: Commit) -> None:
        self.count += 1
        if self.count == self.number and self.delay_s:
            await asyncio.sleep(self.delay_s)

    async def after_store(self, commit: Commit, seq: int) -> None:
        if self.lose_ack and self.count == self.number:
            self.number = -1
            raise AckLost


def appends() -> int:
    delays = Delays(-1)
    play(Cell(log_faults=delays), two_jobs)
    return delays.count


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", (3.0, 8.0))
def test_every_append_delayed_until_others_have_written(delay_s: float) -> None:
    gaps = 0
    for number in points(1, appends() + 1):
        cell = witnessed(Cell(log_faults=Delays(number, delay_s=delay_s)))
        gaps += sum(
            stored.commit.in_seq < stored.seq - 1 for stored in cell.commits() if stored.commit.kind == "decision"
        )
    assert gaps > (10 if DEEP else 1)


@pytest.mark.slow
def test_every_acknowledgement_lost_once() -> None:
    for number in points(1, appends() + 1):
        cell = witnessed(Cell(log_faults=Delays(number, lose_ack=True)))
        ids = Counter(stored.commit.commit_id for stored in cell.commits())
        assert set(ids.values()) == {1}, "no commit is stored twice"
        assert not cell.ended, "a lost acknowledgement is not a lost race"


RATES = FaultRates(
    lose_request=0.05,
    lose_response=0.1,
    outage=0.01,
    outage_s=30.0,
    delay=0.1,
    throttle=0.05,
    error=0.05,
    cut_watch=0.05,
    end_watch=0.05,
    expire_watch=0.05,
    repeat_line=0.2,
)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10 if DEEP else 4))
def test_a_bad_api_server(block: int) -> None:
    for seed in range(block * 3, block * 3 + 3):
        cell = Cell(seed=seed, faults=FaultDraw(RATES, seed=seed))
        witnessed(cell)


def test_all_deciders_are_killed_somewhere_above() -> None:
    idle = {"preemptor", "autoscaler_bridge"}
    assert set(DECIDERS) - idle <= set(SERVICES)
