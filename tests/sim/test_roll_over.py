"""The log is rolled over under running and waiting jobs: nothing is lost, doubled, admitted again or reordered."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kit.beside import beside
from kit.doubles.log import MemoryGenerations
from kit.proof import proven
from kit.shell import Cell, play, small_job, small_tree
from muster.core.actuation.intents import ActuatorState
from muster.core.cell.deciders import DECIDERS
from muster.events.decisions import GangAdmitted, QuotaReserved, WorkloadQueued
from muster.events.system import Genesis, LogNearlyFull
from muster.fakecluster.apiserver.store import StoredChange
from muster.model import api
from muster.model.keys import Intent
from muster.ports import RollError
from muster.runtime.logkeeping.rolling import States, roll
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.runtime.replaying.replay import replay
from muster.runtime.runners.leader import Leader

JOBS = [f"job-{number}" for number in range(5)]
SERVICES = ("watcher", *DECIDERS, "actuator", "presenter", "keeper")


class Starts:
    """How often each RayCluster was made, and the most that were there at once."""

    def __init__(self, cell: Cell) -> None:
        self.of: Counter[str] = Counter()
        self.live = 0
        self.most = 0
        cell.cluster.server.subscribe(self._heard, api.RAYCLUSTERS)

    def _heard(self, change: StoredChange) -> None:
        if change.type == "ADDED":
            self.of[change.object["metadata"]["ownerReferences"][0]["name"]] += 1
            self.live += 1
            self.most = max(self.most, self.live)
        elif change.type == "DELETED":
            self.live -= 1


async def one_runs_and_four_wait(cell: Cell) -> None:
    cell.create(small_tree())
    for name in JOBS:
        cell.create(small_job(name, runtime="20s"))
    await cell.until(lambda: cell.jobs().get("job-0") == "Running", limit_s=600)


async def all_run(cell: Cell) -> None:
    await cell.until(lambda: cell.jobs() == dict.fromkeys(JOBS, "Complete"), limit_s=1200, what="all to complete")
    await asyncio.sleep(60)


async def rolled_under_load(cell: Cell) -> None:
    await one_runs_and_four_wait(cell)
    cell.roll_wanted = 2
    await all_run(cell)


def judged(cell: Cell, starts: Starts, generations: int = 2) -> None:
    assert starts.of == Counter(JOBS), "each job is started exactly once"
    assert starts.most == 1, "two must never run at once"
    commits = cell.commits()
    assert [stored.seq for stored in commits] == list(range(1, len(commits) + 1)), "one log, without a hole"
    born = [event for stored in commits for event in stored.commit.events if isinstance(event, Genesis)]
    assert [event.generation for event in born] == list(range(1, generations + 1))
    admitted = [
        event.ref.name for stored in commits for event in stored.commit.events if isinstance(event, GangAdmitted)
    ]
    assert admitted == JOBS, "in the order they came, each once"
    queued = Counter(
        event.ref.name for stored in commits for event in stored.commit.events if isinstance(event, WorkloadQueued)
    )
    assert set(queued.values()) == {1}, "nobody loses his place"
    proven(commits)


def test_a_roll_over_under_load() -> None:
    cell = Cell(services=SERVICES)
    starts = Starts(cell)
    play(cell, rolled_under_load)
    judged(cell, starts)
    assert {why for _, why in cell.ended} == {"LogSealedError"}, "everybody follows by starting again, once"
    assert Counter(name.rpartition("-")[0] for name, _ in cell.ended) == Counter(
        service for service in SERVICES if service != "keeper"
    )
    old, new = cell.logs
    assert old.sealed
    assert new.identity.first == len(old.commits()) + 1
    intents = [Intent.parse(job["metadata"]["annotations"]["muster.dev/intent"]) for job in listed(cell)]
    generations = {intent.generation for intent in intents if intent is not None}
    assert generations == {1, 2}, "admissions before and after"


def listed(cell: Cell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cell.request("GET", api.RAYJOBS, "")["items"]
    return found


def test_a_generation_is_replayed_from_the_states_it_began_with() -> None:
    cell = Cell(services=SERVICES)
    play(cell, rolled_under_load)
    new = cell.log
    tail = [stored for stored in cell.commits() if stored.seq >= new.identity.first]
    base = cell.snapshots.bases[new.identity.state]
    report = replay(tail, silences=False, base=base)
    assert report.decisions > 0
    assert not report.divergences, report.divergences[0]
    assert not report.violations, report.violations[0]
    whole, from_base = States(), States(base)
    for stored in cell.commits():
        whole.fold(stored)
    for stored in tail:
        from_base.fold(stored)
    for seat, state in whole.states.items():
        assert encode_state(state) == encode_state(from_base.states[seat]), seat


def test_order_and_charges_are_the_same_before_and_after() -> None:
    cell = Cell(services=SERVICES)
    play(cell, rolled_under_load)
    before, after = States(), States(cell.snapshots.bases[cell.log.identity.state])
    for stored in cell.commits()[: cell.log.identity.first - 1]:
        before.fold(stored)
    ledger, order = before.states["quota_accountant", "0"], before.states["queue_sorter", "0"]
    assert encode_state(ledger) == encode_state(after.states["quota_accountant", "0"])
    assert encode_state(order) == encode_state(after.states["queue_sorter", "0"])
    assert ledger.seq == len(cell.logs[0].commits())


def test_a_log_that_admits_nothing_more_admits_again_in_its_next_generation() -> None:
    cell = Cell(services=SERVICES)
    starts = Starts(cell)

    async def scene(cell: Cell) -> None:
        await one_runs_and_four_wait(cell)
        for name, runners in list(cell.runners.items()):
            if name.startswith("quota_accountant"):
                for runner in runners:
                    assert isinstance(runner, Leader)
                    runner.announce(LogNearlyFull(percent=95))
        await asyncio.sleep(60)
        assert list(cell.jobs().values()).count("Complete") == 1, "nothing is admitted any more"
        cell.roll_wanted = 2
        await all_run(cell)

    play(cell, scene)
    judged(cell, starts)
    reserved = [
        stored.seq
        for stored in cell.commits()
        for event in stored.commit.events
        if isinstance(event, QuotaReserved) and event.ref.name != "job-0"
    ]
    assert min(reserved) > cell.log.identity.first


def test_several_in_a_row() -> None:
    cell = Cell(services=SERVICES)
    starts = Starts(cell)

    async def scene(cell: Cell) -> None:
        await one_runs_and_four_wait(cell)
        for generation in (2, 3, 4):
            cell.roll_wanted = generation
            await asyncio.sleep(15)
        await all_run(cell)

    play(cell, scene)
    judged(cell, starts, 4)
    assert [each.generation for each in cell.log.identity.earlier] == [1, 2, 3]
    assert all(not rolled.unlike for rolled in cell.rolled)


def test_snapshots_of_the_stages_are_compared_with_the_log() -> None:
    cell = Cell(services=SERVICES)

    async def scene(cell: Cell) -> None:
        await one_runs_and_four_wait(cell)
        for runners in list(cell.runners.values()):
            for runner in runners:
                if isinstance(runner, Leader):
                    await runner.keep_snapshot()
        generation, kept = cell.snapshots.kept["queue_sorter", "0"]
        state = runner_state(cell, "queue_sorter")
        state.now += 1
        body = encode_state(state)
        state.now -= 1
        assert body != kept.body
        cell.snapshots.kept["queue_sorter", "0"] = (generation, type(kept)(**{**fields(kept), "body": body}))
        cell.roll_wanted = 2
        await all_run(cell)

    play(cell, scene)
    (rolled,) = cell.rolled
    assert rolled.compared >= len(DECIDERS)
    assert [each.split(" at ")[0] for each in rolled.unlike] == ["queue_sorter/0"]


def fields(snapshot: Any) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}


def runner_state(cell: Cell, service: str) -> Any:
    return cell.runners[cell.processes[service].name][0].state


def test_states_of_another_version_are_refused_where_nothing_else_tells() -> None:
    cell = Cell(services=SERVICES)
    play(cell, rolled_under_load)
    base = [
        type(each)(**{**fields(each), "schema": "another"}) for each in cell.snapshots.bases[cell.log.identity.state]
    ]
    with pytest.raises(RollError, match="not one of this version's"):
        States(base)

    async def again() -> None:
        generations = MemoryGenerations(cell.logs, cell.snapshots)
        cell.snapshots.bases[cell.log.identity.state] = base
        rolled = await roll(generations, clock=FixedClock())
        assert rolled.after.generation == 3, "the generation before is still there: it is folded from the beginning"

    asyncio.run(again())


def test_who_cannot_read_the_states_folds_the_generations_before() -> None:
    cell = Cell(services=SERVICES)
    starts = Starts(cell)

    async def scene(cell: Cell) -> None:
        await one_runs_and_four_wait(cell)
        cell.roll_wanted = 2
        await cell.until(lambda: len(cell.logs) == 2)
        bases = cell.snapshots.bases
        for digest, base in bases.items():
            bases[digest] = [type(each)(**{**fields(each), "schema": "another"}) for each in base]
        await all_run(cell)

    play(cell, scene)
    judged(cell, starts)


class FixedClock:
    def now(self) -> int:
        return 0


def first_step_of_the_roll() -> int:
    """How many await points the keeper passes before it is asked to roll over."""
    cell = Cell(services=SERVICES)
    play(cell, one_runs_and_four_wait)
    return cell.processes["keeper"].steps


@pytest.mark.slow
def test_the_keeper_is_killed_at_every_await_point_of_a_roll_over() -> None:
    first = first_step_of_the_roll()
    waits = 0
    for point in range(first + 1, first + 16):
        cell = Cell(services=SERVICES)
        cell.kills["keeper"] = point
        starts = Starts(cell)
        play(cell, rolled_under_load)
        assert cell.starts["keeper"] == 2, f"the keeper was not killed at {point}"
        judged(cell, starts)
        waits += any(log.sealed for log in cell.logs)
    assert waits


@pytest.mark.slow
@pytest.mark.parametrize("service", [each for each in SERVICES if each != "keeper"])
def test_anybody_is_killed_while_the_log_is_rolled_over(service: str) -> None:
    steps = Counter[str]()

    async def count(cell: Cell) -> None:
        await one_runs_and_four_wait(cell)
        steps[service] = cell.processes[service].steps

    play(Cell(services=SERVICES), count)
    for point in range(steps[service] + 1, steps[service] + 8):
        cell = Cell(services=SERVICES)
        cell.kills[service] = point
        starts = Starts(cell)
        play(cell, rolled_under_load)
        judged(cell, starts)


def test_an_actuator_that_was_told_before_carries_it_out_after() -> None:
    """The admission is in the old generation, its effect in the new one."""
    cell = Cell(services=tuple(service for service in SERVICES if service != "actuator"))
    starts = Starts(cell)

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("job-0", runtime="20s"))
        await cell.until(lambda: any(isinstance(e, GangAdmitted) for s in cell.commits() for e in s.commit.events))
        cell.roll_wanted = 2
        await cell.until(lambda: len(cell.logs) == 2)
        state = States(cell.snapshots.bases[cell.log.identity.state]).states["actuator", "0"]
        assert isinstance(state, ActuatorState)
        assert [order.intent.generation for order in state.outstanding.values()] == [1]
        async with beside(cell.supervise("actuator")):
            await cell.until(lambda: cell.jobs() == {"job-0": "Complete"}, limit_s=600)
            await asyncio.sleep(10)
            cell.processes["actuator"].kill()

    play(cell, scene)
    assert starts.of == Counter(["job-0"])
