"""Followers fold in the turn of the reader: what a commit costs them, counted in steps of tasks, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.alone import alone, reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from kit.frozen import FrozenProcess, task_factory
from muster.core.cell.deciders import DECIDERS
from muster.events.envelope import Commit, Stored
from muster.events.system import TimeReached
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.runners import shared
from muster.runtime.runners.follower import AnyFollower, Follower
from muster.runtime.runners.leader import Leader

pytestmark = pytest.mark.looptime

COMMITS = 60


class HeldUp:
    """Faults of a log: while ``closed`` no commit of a decider is stored."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    async def before_store(self, commit: Commit) -> None:
        if commit.stage != "watcher":
            await self.open.wait()

    async def after_store(self, commit: Commit, seq: int) -> None:
        pass


class Scene:
    """A log in which time passes, and followers that share one reader of it in one process."""

    def __init__(self) -> None:
        self.faults = HeldUp()
        self.log = MemoryLog(LogIdentity("main", "log", 1), faults=self.faults)
        self.reader = reader_of(self.log)
        self.process = FrozenProcess("p")
        self.runners: list[Any] = []
        self._last = 0

    def follows(self, stage: str, kind: type[AnyFollower] = Follower) -> AnyFollower:
        """A follower that only folds."""
        self.runners.append(kind(DECIDERS[stage](), log=self.reader, snapshots=None, clock=SystemClock()))
        return self.runners[-1]

    def leads(self, stage: str) -> Leader[Any]:
        lease = MemoryLeases().lease(stage, "0", "p")
        made: Leader[Any] = Leader(
            DECIDERS[stage](), log=self.reader, lease=lease, snapshots=None, clock=SystemClock(), process="p"
        )
        self.runners.append(made)
        return made

    async def say(self, count: int = COMMITS) -> None:
        """So many commits, each read before the next is stored."""
        for _ in range(count):
            self._last = await self.log.append(
                Commit(
                    commit_id=f"w-{self._last}",
                    stage="watcher",
                    shard="nodes",
                    kind="input",
                    at=1,
                    events=(TimeReached(at=1),),
                ),
                expected=self._last,
            )
            await settled()

    async def steps(self) -> float:
        """Steps of all tasks of the process for each commit."""
        before = self.process.steps
        await self.say()
        return (self.process.steps - before) / COMMITS


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
    asyncio.get_running_loop().set_task_factory(task_factory)
    task = scene.process.start(alone(*scene.runners))
    await settled()
    yield task
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize("followers", [1, 5, 20])
async def test_a_commit_is_one_step_however_many_followers_fold_it(followers: int) -> None:
    scene = Scene()
    for _ in range(followers):
        scene.follows("preemptor")
    async with running(scene):
        assert await scene.steps() == 1
    assert {each.state.seq for each in scene.runners} == {COMMITS + 1}


async def test_a_leader_with_nothing_to_say_is_not_woken() -> None:
    scene = Scene()
    leaders = [scene.leads(stage) for stage in DECIDERS]
    async with running(scene):
        assert all(each.leading() for each in leaders)
        assert await scene.steps() == 1


async def test_while_a_commit_is_under_way_nothing_is_folded_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "WINDOW", 20)
    monkeypatch.setattr(shared, "BATCH", 5)
    scene = Scene()
    slow, other = scene.leads("preemptor"), scene.follows("preemptor")
    async with running(scene):
        was = slow.state.seq
        scene.faults.open.clear()
        slow.announce(TimeReached(at=1))
        await settled()
        await scene.say()
        assert slow.state.seq == was
        assert slow.unfolded_since
        assert other.state.seq == was + 20, "the reader is not ahead of the slowest by more than its window"
        scene.faults.open.set()
        await settled()
        assert slow.state.seq == other.state.seq == was + COMMITS + 1
        assert not slow.unfolded_since
        assert await scene.steps() == 1


class Broken(Follower[Any]):
    def observed(self, stored: Stored) -> None:
        if stored.seq == 5:
            raise ArithmeticError("fold of 5")


async def test_what_fails_in_the_turn_of_the_reader_ends_the_process_and_is_named() -> None:
    scene = Scene()
    scene.follows("preemptor", Broken)
    scene.follows("preemptor")
    async with running(scene) as task:
        await scene.say(3)
        assert not task.done()
        await scene.say(1)
        await settled()
        assert task.done()
    error = task.exception()
    assert isinstance(error, ExceptionGroup)
    assert error.subgroup(lambda each: str(each) == "fold of 5") is not None
