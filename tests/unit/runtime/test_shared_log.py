"""Followers of one reader that are slow: they hold nobody, miss nothing, and share the reader again later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.alone import reader_of
from kit.doubles.log import MemoryLog
from kit.waiting import until
from muster.core.cell.deciders import DECIDERS
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.events.facts import NodeGone, SyncStarted
from muster.events.system import TimeReached
from muster.model.keys import Ref
from muster.ports import LogIdentity
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.runtime.runners import shared
from muster.runtime.runners.folding import Folding
from muster.runtime.runners.follower import AnyFollower, Follower

pytestmark = pytest.mark.looptime

WINDOW = 50


class Opened(MemoryLog):
    """``opened``: how many read it at their own place."""

    opened = 0

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        self.opened += 1
        async for batch in super().follow(after, last):
            yield batch


class Scene:
    """A process that follows a log, and reads what is slow apart where it falls a window behind."""

    def __init__(self) -> None:
        self.log = Opened(LogIdentity("main", "log", 1))
        self.reader = reader_of(self.log)
        self.gate = asyncio.Event()
        self.gate.set()
        self.heard: list[list[int]] = []
        """What one that follows at its own pace was given: the sequences of each batch."""
        self._last = 0

    def follower(self, name: str) -> AnyFollower:
        return Follower(DECIDERS[name](), log=self.reader, snapshots=None, clock=SystemClock())

    async def follow(self) -> None:
        async for batch in self.reader.follow(0):
            self.heard.append([each.seq for each in batch])
            await self.gate.wait()

    async def say(self, count: int) -> None:
        for number in range(count):
            said = (TimeReached(at=number),)
            commit = Commit(
                commit_id=f"{self._last}", stage="watcher", shard="pods", kind="input", at=number, events=said
            )
            self._last = await self.log.append(commit, expected=self._last)
            if number % 10 == 0:
                await asyncio.sleep(0)

    @property
    def read(self) -> list[int]:
        return [seq for batch in self.heard for seq in batch]

    @asynccontextmanager
    async def running(self, *runners: AnyFollower) -> AsyncIterator[None]:
        await self.reader.begin()
        tasks = [asyncio.ensure_future(each) for each in (self.reader.pump(), *(one.run() for one in runners))]
        tasks.append(asyncio.ensure_future(self.follow()))
        await until(lambda: self.heard[-1:] == [[]])
        yield
        assert not any(each.done() for each in tasks)
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


class Slow(Follower[Any]):
    """It acts as often as ``gate`` is released, and folds no batch before that while it catches up."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(DECIDERS["preemptor"](), log=scene.reader, snapshots=None, clock=SystemClock())
        self.gate = asyncio.Semaphore(0)

    async def act(self) -> None:
        await self.gate.acquire()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(shared, "WINDOW", WINDOW)
    return Scene()


async def test_one_that_takes_nothing_holds_nobody(scene: Scene) -> None:
    """As a publisher does whose events are not stored."""
    sorter = scene.follower("queue_sorter")
    async with scene.running(sorter):
        scene.gate.clear()
        await scene.say(20 * WINDOW)
        end = await scene.log.end()
        await until(lambda: sorter.state.seq == end)
        assert scene.reader.read - scene.reader._base <= WINDOW
        scene.gate.set()
        await until(lambda: scene.read == [*range(1, end + 1)])
    assert scene.heard.count([]) == 1, "it is told once that it has caught up"


async def test_what_has_caught_up_shares_the_reader_again(scene: Scene) -> None:
    async with scene.running():
        for _ in range(3):
            scene.gate.clear()
            await scene.say(3 * WINDOW)
            scene.gate.set()
            end = await scene.log.end()
            await until(lambda: scene.read == [*range(1, end + 1)])  # noqa: B023
        opened = scene.log.opened
        await scene.say(3 * WINDOW)
        await until(lambda: len(scene.read) == scene.reader.read == end + 3 * WINDOW)
        assert scene.log.opened == opened


@pytest.mark.parametrize("more", [0, 1, 7, WINDOW, 4 * WINDOW])
async def test_one_that_catches_up_slowly_holds_nobody_and_folds_the_same(scene: Scene, more: int) -> None:
    await scene.say(3 * WINDOW)
    sorter, quick, slow = scene.follower("queue_sorter"), scene.follower("preemptor"), Slow(scene)
    async with scene.running(sorter, quick, slow):
        for _ in range(4):
            await scene.say(more)
            end = await scene.log.end()
            await until(lambda: sorter.state.seq == quick.state.seq == end)  # noqa: B023
            slow.gate.release()
        await scene.say(more)
        for _ in range(100):
            slow.gate.release()
        await until(lambda: slow.caught_up)
        await scene.say(WINDOW)
        end = await scene.log.end()
        await until(lambda: slow.state.seq == quick.state.seq == end)
    assert encode_state(slow.state) == encode_state(quick.state)


async def test_stages_that_are_equally_far_behind_read_the_log_once(scene: Scene) -> None:
    """As the shards of a watcher are that was killed."""
    await scene.say(30 * WINDOW)
    behind = [scene.follower(name) for name in ("queue_sorter", "preemptor", "gang_admitter", "quota_accountant")]
    async with scene.running(*behind):
        end = await scene.log.end()
        await until(lambda: all(each.state.seq == end and each.caught_up for each in behind))
        assert scene.read == [*range(1, end + 1)]
        assert scene.log.opened == 2, "all that catch up have one reader, and the process has one"
    assert {each.state.docket.last for each in behind} == {scene.log._stored[-1].digest}


async def test_what_does_not_concern_a_stage_moves_its_time_before_the_next_commit() -> None:
    """Clocks of writers differ: under load a run was learned with another length than in a replay of the log."""
    sorter, folding = Scene().follower("queue_sorter"), Folding()
    folding.join(sorter, sorter.state)
    times: list[int] = []
    sorter.observed = lambda stored: times.append(sorter.state.now)  # type: ignore[method-assign, assignment]
    spoken: list[tuple[str, int, Event]] = [
        ("watcher", 1_000, NodeGone(ref=Ref("Node", "", "n", "u"), rv=1)),
        ("watcher", 960, SyncStarted(kinds=("pods",))),
    ]
    assert not sorter.concerned("watcher", "0", frozenset({NodeGone}))
    commits = [
        Stored(seq, Commit(commit_id=f"{seq}", stage=stage, shard="0", kind="input", at=at, events=(event,)))
        for seq, (stage, at, event) in enumerate(spoken, 1)
    ]
    folding.fold(commits)
    assert times == [1_000]
