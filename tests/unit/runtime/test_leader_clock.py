"""A leader whose clock is ahead of the broker's appends nothing: log time would run ahead for good."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kit import facts
from kit.alone import alone, reader_of
from kit.doubles.log import MemoryLeases, MemoryLog
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import REQUIRED_KINDS
from muster.events.envelope import Commit
from muster.events.facts import Synced
from muster.events.system import LeaderStarted
from muster.ports import LogIdentity
from muster.runtime.runners.leader import CLOCK_CHECK_S, MAX_SKEW_MS, ClockSkewError, Leader

pytestmark = pytest.mark.looptime

BEGAN = 1_800_000_000_000
STAGE = "quota_accountant"


def steady_ms() -> int:
    return BEGAN + int(asyncio.get_running_loop().time() * 1000)


class Clock:
    """This machine's: runs as the loop does, `ahead_ms` of it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now(self) -> int:
        return steady_ms() + self.ahead_ms


class Broker(MemoryLog):
    """A log whose server has a clock of its own, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(LogIdentity(cell="main", log_id="log", generation=1))
        self.asked = 0
        self.ahead_ms = 0
        self.answers_after_s = 0.0

    async def time(self) -> int:
        self.asked += 1
        stamp = steady_ms() + self.ahead_ms
        await asyncio.sleep(self.answers_after_s)
        return stamp


class Scene:
    """An accountant that may lead, and quota trees to decide about."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.log = Broker()
        self._trees = 0
        self._last = 0
        self.leader = Leader(
            DECIDERS[STAGE](),
            log=reader_of(self.log),
            lease=MemoryLeases().lease(STAGE, "0", "p"),
            snapshots=None,
            clock=self.clock,
            process="p",
        )

    @property
    def appended(self) -> list[Commit]:
        return [stored.commit for stored in self.log.commits() if stored.commit.stage == STAGE]

    async def decide(self) -> None:
        """Give it something to decide, and time to."""
        self._trees += 1
        leaf = facts.node(f"leaf-{self._trees}", {}, {"cpu": 1}, ("video",))
        events = [Synced(kind=kind) for kind in REQUIRED_KINDS] if self._trees == 1 else []
        tree = facts.tree(facts.node("root", {}, {"cpu": 1}, children=(leaf,)))
        commit = Commit(
            commit_id=f"w-{self._trees}",
            stage="watcher",
            shard="elasticquotatrees",
            kind="input",
            at=steady_ms(),
            events=(*events, tree),
        )
        self._last = await self.log.append(commit, expected=self._last)
        await asyncio.sleep(1)


@asynccontextmanager
async def leading(scene: Scene) -> AsyncIterator["asyncio.Task[None]"]:
    """It runs beside the test."""
    task = asyncio.ensure_future(alone(scene.leader))
    try:
        await asyncio.sleep(1)
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refusal(task: "asyncio.Task[None]") -> str:
    assert task.done(), "it goes on"
    error = task.exception()
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ClockSkewError)
    return str(error)


async def test_does_not_take_over_with_a_clock_that_is_ahead() -> None:
    scene = Scene()
    scene.clock.ahead_ms = MAX_SKEW_MS + 1
    async with leading(scene) as task:
        assert "2001 ms ahead of the broker's" in refusal(task)
    assert scene.appended == []


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, MAX_SKEW_MS])
async def test_leads_with_a_clock_that_is_behind_or_a_little_ahead(ahead_ms: int) -> None:
    scene = Scene()
    scene.clock.ahead_ms = ahead_ms
    async with leading(scene) as task:
        await scene.decide()
        assert not task.done()
    assert isinstance(scene.appended[0].events[0], LeaderStarted)
    assert [commit.kind for commit in scene.appended] == ["input", "decision"]


async def test_appends_nothing_once_its_clock_has_jumped_ahead() -> None:
    scene = Scene()
    async with leading(scene) as task:
        await scene.decide()
        before = len(scene.appended)
        scene.clock.ahead_ms = 2 * MAX_SKEW_MS
        await scene.decide()
        assert "4000 ms ahead" in refusal(task)
        assert len(scene.appended) == before


async def test_notices_in_time_that_the_brokers_clock_was_put_back() -> None:
    scene = Scene()
    async with leading(scene) as task:
        scene.log.ahead_ms = -2 * MAX_SKEW_MS
        await asyncio.sleep(CLOCK_CHECK_S)
        await scene.decide()
        assert "4000 ms ahead" in refusal(task)


async def test_goes_on_when_both_clocks_are_put_forward() -> None:
    scene = Scene()
    async with leading(scene) as task:
        scene.clock.ahead_ms = scene.log.ahead_ms = 3_600_000
        await scene.decide()
        assert not task.done()
        assert scene.appended[-1].kind == "decision"


async def test_does_not_ask_for_every_commit() -> None:
    scene = Scene()
    async with leading(scene):
        for _ in range(20):
            await scene.decide()
    assert len(scene.appended) == 21
    assert scene.log.asked == 1


async def test_an_answer_that_is_long_on_its_way_is_no_clock_that_is_ahead() -> None:
    scene = Scene()
    scene.log.answers_after_s = 3 * MAX_SKEW_MS / 1000
    async with leading(scene) as task:
        await scene.decide()
        await asyncio.sleep(60)
        assert not task.done(), task.exception()
        assert len(scene.appended) > 1
        scene.clock.ahead_ms = MAX_SKEW_MS + 1_000
        await scene.decide()
        await asyncio.sleep(60)
        assert "3000 ms ahead" in refusal(task)
