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
from muster.bus.public import PublicPublisher
from muster.events.envelope import Stored
from muster.runtime.runners.publishing import Publisher

HISTORY = "scenario-order"
LIMIT_S = 3_600.0


@cache
def history() -> Sequence[Stored]:
    return read(HISTORY)


class Cell:
    """Publishers of one log, one after the other, and the stream that they write."""

    def __init__(self, stream: PublicStream, kill_at: int = 0, window: int = 256) -> None:
        self.stream, self.kill_at, self.window = stream, kill_at, window
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
                process.kill()
                return loop.time()


def play(stream: PublicStream, kill_at: int = 0, window: int = 256) -> tuple[float, Cell]:
    cell = Cell(stream, kill_at, window)
    loop = looptime.new_event_loop(noop_cycles=2)
    loop.set_task_factory(task_factory)
    try:
        took = loop.run_until_complete(cell.run())
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)
        for process in cell.processes:
            process.bury()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    return took, cell


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
    # One more to learn where to go on; and what ends it is looked at now and then.
    assert (trips + 1) * ROUND_TRIP_S <= took < (trips + 2) * ROUND_TRIP_S
