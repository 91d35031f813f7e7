"""The publisher killed at every await point it has, with messages and answers lost: each event is public exactly once.

And what a batch costs, counted in round trips of virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import looptime
import pytest

from kit.alone import reader_of
from kit.doubles.log import MemoryLeases
from kit.doubles.publicstream import ROUND_TRIP_S, PublicStream
from kit.frozen import FrozenProcess, task_factory
from kit.histories.files import read
from kit.recorded import RecordedLog
from kit.snapshots import Few
from muster.bus.public import PublicPublisher
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.events.public import parse_ce_id
from muster.ports import LogIdentity, Snapshot
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.runtime.runners.publishing import Publisher
from muster.told.readmodel.model import ReadModel

HISTORY = "scenario-order"
LIMIT_S = 3_600.0


@cache
def history() -> Sequence[Stored]:
    return read(HISTORY)


class Cell:
    """Publishers of one log, one after the other, and the stream that they write."""

    def __init__(self, stream: PublicStream, kill_at: int = 0, window: int = 256, rests_s: float = 0.0) -> None:
        self.stream, self.kill_at, self.window, self.rests_s = stream, kill_at, window, rests_s
        self.log = RecordedLog(history())
        self.leases = MemoryLeases()
        self.processes: list[FrozenProcess] = []
        self.publisher: Publisher | None = None

    async def _main(self, process: str) -> None:
        reader = reader_of(self.log)
        await reader.begin()
        outlet = PublicPublisher(cast("Any", self.stream), "main", window=self.window)
        lease = self.leases.lease("publisher", "0", process)
        self.publisher = Publisher(log=reader, outlet=outlet, lease=lease)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.pump())
            tasks.create_task(self.publisher.run())

    def _done(self) -> bool:
        made = self.publisher
        return made is not None and made.caught_up and not made.unfolded_since

    async def run(self) -> float:
        """Until all is published; in how many seconds."""
        loop = asyncio.get_running_loop()
        while True:
            process = FrozenProcess(f"p{len(self.processes)}", kill_at=0 if self.processes else self.kill_at)
            self.processes.append(process)
            self.publisher = None
            task = process.start(self._main(process.name))
            while not self._done() and not process.dead and not task.done():
                assert loop.time() < LIMIT_S
                await asyncio.sleep(0.05)
            if task.done():
                raise AssertionError("it ended") from task.exception()
            if not process.dead:
                await asyncio.sleep(self.rests_s)
                process.kill()
                return loop.time()


class Pruned(Cell):
    """The first half of the log was deleted; what is left begins with the states of then."""

    first = len(history()) // 2 + 1

    async def _main(self, process: str) -> None:
        self.log.identity = LogIdentity("main", "log", 2, self.first)
        folder, state = Folder(ReadModel()), ReadModel().initial()
        for stored in self.log.commits[: self.first - 1]:
            folder.fold(state, stored)
        base = [make_snapshot(self.log.identity, "readmodel", "0", state)]

        async def begins() -> list[Snapshot]:
            return base

        reader = reader_of(self.log)
        await reader.begin()
        outlet = PublicPublisher(cast("Any", self.stream), "main", window=self.window)
        lease = self.leases.lease("publisher", "0", process)
        self.publisher = Publisher(log=reader, outlet=outlet, lease=lease, snapshots=Few(), base=begins)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reader.pump())
            tasks.create_task(self.publisher.run())


def test_where_its_place_in_the_log_is_gone_it_begins_with_the_first_commit_there_is() -> None:
    stream = PublicStream()
    cell = Pruned(stream)
    played(cell)
    sequences = [found.sequence for each in stream.stored if (found := parse_ce_id(each)) is not None]
    whole = [found.sequence for each in expected() if (found := parse_ce_id(each)) is not None]
    assert sequences == [each for each in whole if each >= Pruned.first]
    assert len(sequences) > 3


def play(stream: PublicStream, kill_at: int = 0, window: int = 256, rests_s: float = 0.0) -> tuple[float, Cell]:
    """``rests_s``: for so long there is nothing to publish before it ends."""
    return played(cell := Cell(stream, kill_at, window, rests_s)), cell


def played(cell: Cell) -> float:
    loop = looptime.new_event_loop(noop_cycles=2)
    loop.set_task_factory(task_factory)
    try:
        return loop.run_until_complete(cell.run())
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)
        for process in cell.processes:
            process.bury()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@cache
def expected() -> list[str]:
    stream = PublicStream()
    play(stream)
    return stream.stored


@pytest.mark.parametrize("lost", [0.0, 0.2], ids=["all arrives", "a fifth is lost"])
def test_killed_at_any_await_point_each_event_is_public_once(lost: float) -> None:
    whole = PublicStream(1, lost)
    _, cell = play(whole, window=4)
    steps = cell.processes[0].steps
    assert len(expected()) > 10
    assert steps > len(expected())
    for kill_at in range(1, steps + 1):
        stream = PublicStream(kill_at, lost)
        stream.order = expected()
        play(stream, kill_at, window=4)
        assert sorted(stream.stored) == sorted(expected()), f"killed at {kill_at}"
        if not lost:
            assert stream.stored == expected(), f"killed at {kill_at}"


@pytest.mark.parametrize("window", [1, 8, 256])
def test_a_window_of_events_costs_one_round_trip(window: int) -> None:
    stream = PublicStream()
    took, _ = play(stream, window=window)
    trips = -(-len(expected()) // window)
    assert stream.sent == len(expected())
    # Two more to learn that nothing was published; and what ends it is looked at now and then.
    assert (trips + 2) * ROUND_TRIP_S <= took < (trips + 3) * ROUND_TRIP_S


def test_what_is_too_old_to_be_in_the_stream_is_not_published_again() -> None:
    stream = PublicStream()
    play(stream, rests_s=60.0)
    stream.empty()
    play(stream)
    assert stream.ever == expected()


def test_a_stream_that_never_had_a_message_gets_all() -> None:
    """Also where another one had: somebody has removed it, and it was founded again."""
    before, stream = PublicStream(), PublicStream()
    play(before, rests_s=60.0)
    stream.beside = before.beside
    play(stream)
    assert stream.stored == expected()


@pytest.mark.parametrize("rests_s", [0.0, 60.0])
def test_emptied_while_it_is_killed_at_any_await_point_it_lacks_no_event(rests_s: float) -> None:
    _, cell = play(PublicStream(), window=4)
    for kill_at in range(1, cell.processes[0].steps + 1):
        stream = PublicStream()
        stream.order = expected()
        play(stream, kill_at, window=4, rests_s=rests_s)
        stream.empty()
        play(stream, kill_at, window=4)
        assert [*dict.fromkeys(stream.ever)] == expected(), f"killed at {kill_at}"
