"""What every Log promises, asked of the one in memory and of JetStream."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import pytest
from msgspec.structs import replace

from kit.doubles.log import MemoryLog
from kit.nats import SMALL, commit
from kit.waiting import until
from kit.words import odd
from muster.bus.cell import open_log
from muster.bus.jetstream import JetStream
from muster.bus.streams import Limits
from muster.core.cell.deciders import DECIDERS
from muster.events import subjects
from muster.events.base import Event
from muster.events.envelope import MAX_EVENTS, Commit, Stored, encode_commit
from muster.events.facts import ObjectUnreadable
from muster.events.system import Genesis, TimeReached
from muster.model.keys import Ref
from muster.ports import FencedError, Log, LogFullError, LogGoneError, LogIdentity


class World(Protocol):
    """One way of keeping a log."""

    async def open(self, max_bytes: int = 0) -> Log: ...

    async def again(self) -> Log:
        """The same log as another process sees it."""
        ...

    async def remove(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.log: MemoryLog | None = None

    async def open(self, max_bytes: int = 0) -> Log:
        self.log = MemoryLog(LogIdentity(cell="c", log_id="l", generation=1), max_bytes=max_bytes)
        return self.log

    async def again(self) -> Log:
        assert self.log is not None
        return self.log

    async def remove(self) -> None:
        assert self.log is not None
        self.log.remove()


class NatsWorld:
    def __init__(self, js: JetStream, cell: str) -> None:
        self.js, self.cell = js, cell

    async def open(self, max_bytes: int = 0) -> Log:
        return await open_log(self.js, self.cell, create=True, limits=Limits(max_bytes=max_bytes or SMALL.max_bytes))

    async def again(self) -> Log:
        return await open_log(self.js, self.cell)

    async def remove(self) -> None:
        await self.js.delete(subjects.log_stream(self.cell, 1))


@pytest.fixture(params=["memory", "nats"])
def world(request: pytest.FixtureRequest, cell: str) -> World:
    return MemoryWorld() if request.param == "memory" else NatsWorld(request.getfixturevalue("js"), cell)


class Reader:
    """Follows a log in the background and keeps what came."""

    def __init__(self, log: Log, after: int = 0) -> None:
        self.batches: list[list[Stored]] = []
        self.task = asyncio.create_task(self._read(log, after))

    async def _read(self, log: Log, after: int) -> None:
        async for batch in log.follow(after):
            self.batches.append(batch)

    @property
    def got(self) -> list[Stored]:
        return [stored for batch in self.batches for stored in batch]

    async def until(self, predicate: Callable[["Reader"], bool]) -> None:
        await until(lambda: self.task.done() or predicate(self))
        if self.task.done():
            self.task.result()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def read_to_end(log: Log, after: int = 0) -> list[Stored]:
    found: list[Stored] = []
    async for batch in log.follow(after):
        if not batch:
            break
        found += batch
    return found


async def test_a_log_begins_with_its_genesis(world: World) -> None:
    log = await world.open()
    first = (await read_to_end(log))[0]
    event = first.commit.events[0]
    assert first.seq == 1
    assert isinstance(event, Genesis)
    assert (event.log_id, event.generation, event.parent) == (log.identity.log_id, 1, "")


async def test_commits_come_back_in_order_as_they_were_written(world: World) -> None:
    log = await world.open()
    written: list[tuple[int, Commit, str]] = []
    seq = 0
    for number in range(5):
        one = commit(number)
        seq = await log.append(one, expected=seq, headers={"traceparent": f"00-{number}"})
        written.append((seq, one, f"00-{number}"))
    assert [seq for seq, _, _ in written] == [2, 3, 4, 5, 6]
    found = (await read_to_end(log))[1:]
    assert [(stored.seq, stored.commit, stored.trace) for stored in found] == written
    assert {stored.subject for stored in found} == {"1.watcher.pods"}
    assert await log.end() == 6


async def test_a_stale_expectation_is_fenced_and_stores_nothing(world: World) -> None:
    log = await world.open()
    first = await log.append(commit(1), expected=0)
    await log.append(commit(2), expected=first)
    with pytest.raises(FencedError, match="watcher-3"):
        await log.append(commit(3), expected=first)
    with pytest.raises(FencedError):
        await log.append(commit(4), expected=0)
    assert await log.end() == 3


async def test_two_writers_of_one_subject_cannot_both_win(world: World) -> None:
    log = await world.open()
    rival = await world.again()
    outcomes = await asyncio.gather(
        log.append(commit(1), expected=0), rival.append(commit(2), expected=0), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["FencedError", "int"]
    assert await log.end() == 2


async def test_the_same_commit_again_is_the_one_already_stored(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    assert await log.append(commit(1), expected=0) == seq
    assert await (await world.again()).append(commit(1), expected=0) == seq
    assert await log.end() == seq


async def test_another_body_under_the_same_commit_id_is_a_rival(world: World) -> None:
    log = await world.open()
    await log.append(commit(1), expected=0)
    with pytest.raises(FencedError):
        await log.append(replace(commit(1), at=99), expected=0)


async def test_the_same_body_under_another_commit_id_is_a_rival(world: World) -> None:
    log = await world.open()
    await log.append(commit(1), expected=0)
    with pytest.raises(FencedError):
        await log.append(replace(commit(1), commit_id="watcher-other"), expected=0)


async def test_a_commit_that_was_built_upon_is_fenced_when_sent_again(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    await log.append(commit(2), expected=seq)
    with pytest.raises(FencedError):
        await log.append(commit(1), expected=0)


async def test_stages_and_shards_do_not_fence_each_other(world: World) -> None:
    log = await world.open()
    first = await log.append(commit(1), expected=0)
    await log.append(commit(1, shard="nodes"), expected=0)
    await log.append(commit(1, stage="preemptor"), expected=0)
    assert await log.append(commit(2), expected=first) == 5


async def test_the_last_commit_of_each_writer_can_be_asked_for(world: World) -> None:
    log = await world.open()
    await log.append(commit(1), expected=0)
    newest = await log.append(commit(2, shard="nodes"), expected=0)
    assert [await log.last("watcher", shard) for shard in ("pods", "nodes", "jobs")] == [newest - 1, newest, 0]


async def test_an_expectation_beyond_the_end_means_that_the_log_lost_commits(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    with pytest.raises(LogGoneError):
        await log.append(commit(2), expected=seq + 5)
    assert await log.end() == seq


async def test_following_from_beyond_the_end_means_that_the_log_lost_commits(world: World) -> None:
    log = await world.open()
    with pytest.raises(LogGoneError):
        await anext(aiter(log.follow(50)))


async def test_a_follower_is_told_once_that_it_reached_the_end_as_it_was(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    reader = Reader(log)
    await reader.until(lambda seen: [] in seen.batches)
    for number in range(2, 6):
        seq = await log.append(commit(number), expected=seq)
        await reader.until(lambda seen, seq=seq: seen.got[-1].seq == seq)  # type: ignore[misc]
    assert reader.batches.count([]) == 1
    assert [stored.seq for batch in reader.batches[: reader.batches.index([])] for stored in batch] == [1, 2]
    assert [stored.seq for stored in reader.got] == [1, 2, 3, 4, 5, 6]
    await reader.stop()


async def test_a_follower_at_the_end_is_told_so_before_anything_else(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    reader = Reader(log, after=seq)
    await reader.until(lambda seen: seen.batches == [[]])
    await log.append(commit(2), expected=seq)
    await reader.until(lambda seen: len(seen.batches) == 2)
    assert [stored.commit for stored in reader.got] == [commit(2)]
    await reader.stop()


async def test_following_starts_right_after_the_position_given(world: World) -> None:
    log = await world.open()
    seq = 0
    for number in range(6):
        seq = await log.append(commit(number), expected=seq)
    assert [stored.seq for stored in await read_to_end(log, after=4)] == [5, 6, 7]


async def test_a_long_log_comes_in_bounded_batches_and_whole(world: World) -> None:
    log = await world.open()
    writers = [asyncio.create_task(write(log, f"stage{index}", 150)) for index in range(20)]
    await asyncio.gather(*writers)
    reader = Reader(log)
    await reader.until(lambda seen: [] in seen.batches)
    assert [stored.seq for stored in reader.got] == list(range(1, 3002))
    assert max(map(len, reader.batches)) <= 500
    assert reader.batches.index([]) == len(reader.batches) - 1
    await reader.stop()


async def test_all_followers_see_one_order_while_many_write(world: World) -> None:
    log = await world.open()
    readers = [Reader(log), Reader(await world.again())]
    await asyncio.gather(*(write(log, stage, 40) for stage in DECIDERS))
    for reader in readers:
        await reader.until(lambda seen: len(seen.got) >= 201)
        await reader.stop()
    assert readers[0].got == readers[1].got
    for stage in DECIDERS:
        own = [stored.commit.at for stored in readers[0].got if stored.commit.stage == stage]
        assert own == list(range(40))


async def test_the_largest_commit_comes_back_whole(world: World) -> None:
    log = await world.open()
    events: list[Event] = [
        ObjectUnreadable(ref=Ref("Pod", "ns", f"p{index}", f"u{index}"), rv=index, problem=odd("é" * 900))
        for index in range(MAX_EVENTS)
    ]
    big = replace(commit(1), events=tuple(events))
    assert len(encode_commit(big)) > 450_000
    await log.append(big, expected=0)
    assert (await read_to_end(log, after=1))[0].commit == big


async def test_a_removed_log_ends_writers_and_readers(world: World) -> None:
    log = await world.open()
    seq = await log.append(commit(1), expected=0)
    reader = Reader(log)
    await reader.until(lambda seen: [] in seen.batches)
    await world.remove()
    with pytest.raises(LogGoneError, match="restart"):
        await log.append(commit(2), expected=seq)
    with pytest.raises(LogGoneError, match="restart"):
        await reader.until(lambda _: False)
    with pytest.raises(LogGoneError):
        await log.end()


async def test_a_full_log_says_so_and_stores_nothing(world: World) -> None:
    log = await world.open(max_bytes=64 * 1024)
    big = [replace(commit(number), events=(TimeReached(at=number),) * 250) for number in range(100)]
    seq = 0
    with pytest.raises(LogFullError):
        for number in range(100):
            seq = await log.append(big[number], expected=seq)
    assert seq > 2
    assert await log.end() == seq
    with pytest.raises(LogFullError):
        await log.append(big[99], expected=seq)


async def write(log: Log, stage: str, count: int) -> None:
    seq = 0
    for number in range(count):
        seq = await log.append(commit(number, stage=stage), expected=seq)
