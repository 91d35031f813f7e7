"""Followers fold in the turn of the reader: what a commit costs them, counted in steps of tasks, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit import nodes
from kit.alone import alone, reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from kit.frozen import FrozenProcess, task_factory
from muster.core import docket, stage
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import Seat
from muster.core.reading.watched import WATCHED
from muster.core.reading.watcher import Watcher
from muster.core.stage import Folder, StageState
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.events.system import TimeReached
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.snapshotting import encode_state
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

    def follows(self, name: str, kind: type[AnyFollower] = Follower) -> AnyFollower:
        """A follower that only folds."""
        self.runners.append(kind(DECIDERS[name](), log=self.reader, snapshots=None, clock=SystemClock()))
        return self.runners[-1]

    def leads(self, name: str) -> Leader[Any]:
        lease = MemoryLeases().lease(name, "0", "p")
        made: Leader[Any] = Leader(
            DECIDERS[name](), log=self.reader, lease=lease, snapshots=None, clock=SystemClock(), process="p"
        )
        self.runners.append(made)
        return made

    async def say(self, count: int = COMMITS, made: Callable[[int], Event] = lambda _index: TimeReached(at=1)) -> None:
        """So many commits, each read before the next is stored."""
        for index in range(count):
            self._last = await self.log.append(
                Commit(
                    commit_id=f"w-{self._last}",
                    stage="watcher",
                    shard="nodes",
                    kind="input",
                    at=1,
                    events=(made(index),),  # type: ignore[arg-type]
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
    leaders = [scene.leads(name) for name in DECIDERS]
    async with running(scene):
        assert all(each.leading() for each in leaders)
        assert await scene.steps() == 1


async def test_while_a_commit_is_under_way_folding_goes_on() -> None:
    scene = Scene()
    slow, other = scene.leads("preemptor"), scene.follows("preemptor")
    async with running(scene):
        was = slow.state.seq
        scene.faults.open.clear()
        slow.announce(TimeReached(at=1))
        await settled()
        await scene.say()
        assert slow.state.seq == other.state.seq == was + COMMITS
        assert slow.state.docket is other.state.docket
        scene.faults.open.set()
        await settled()
        assert slow.state.seq == was + COMMITS + 1
        commits = [each.commit for each in scene.log.commits()]
        assert commits[-1].in_seq == was, "it says on what it was decided, not what was folded since"
        assert await scene.steps() == 1


class Counted:
    """How often a commit is judged, and which states it is folded into."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.judged: list[int] = []
        self.folded: list[tuple[int, int]] = []
        judge, fold = docket.judged, Folder.hear

        def judged(kept: docket.Docket, log_id: str, generation: int, stored: Stored) -> Stored:
            self.judged.append(stored.seq)
            return judge(kept, log_id, generation, stored)

        def hear(folder: Folder, state: StageState, found: Stored) -> None:
            self.folded.append((found.seq, id(state)))
            fold(folder, state, found)

        monkeypatch.setattr(docket, "judged", judged)
        monkeypatch.setattr(stage, "judged", judged)
        monkeypatch.setattr(Folder, "hear", hear)


async def test_a_commit_is_judged_once_and_folded_by_the_shard_that_it_concerns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    for shard in WATCHED:
        made = Follower(Watcher(shard), shard=shard, log=scene.reader, snapshots=None, clock=SystemClock())
        scene.runners.append(made)
    async with running(scene):
        counted = Counted(monkeypatch)
        await scene.say(10, lambda index: nodes.node(f"n-{index}"))
        assert len(counted.judged) == len(counted.folded) == 10
        assert len({state for _, state in counted.folded}) == 1
    assert {each.state.seq for each in scene.runners} == {11}
    kept = [encode_state(each.state) for each in scene.runners]
    alone = [Seat(Watcher(shard)) for shard in WATCHED]
    for stored in scene.log.commits():
        for seat in alone:
            seat.fold(stored)
    assert kept == [encode_state(each.state) for each in alone], "each is what it is where it is folded by itself"


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
