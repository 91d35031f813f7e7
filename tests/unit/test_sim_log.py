"""The faults of the log in memory, and that its time is the loop's alone."""

import asyncio

import pytest

from kit.doubles.log import AckLost, MemoryLeases, MemoryLog, MemorySnapshots
from kit.nats import commit
from kit.snapshots import loaded
from muster.events.envelope import Commit
from muster.ports import FencedError, LogFullError, LogIdentity, Snapshot

IDENTITY = LogIdentity(cell="c", log_id="l", generation=1)


class Faults:
    """Raises or waits as told, once each."""

    def __init__(self, before: BaseException | float | None = None, after: BaseException | float | None = None) -> None:
        self.before, self.after = before, after

    async def before_store(self, commit: Commit) -> None:
        fault, self.before = self.before, None
        await self._do(fault)

    async def after_store(self, commit: Commit, seq: int) -> None:
        fault, self.after = self.after, None
        await self._do(fault)

    async def _do(self, fault: BaseException | float | None) -> None:
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await asyncio.sleep(fault)


async def test_a_lost_acknowledgement_is_found_out_about() -> None:
    log = MemoryLog(IDENTITY, faults=Faults(after=AckLost()))
    assert await log.append(commit(1), expected=0) == 2
    assert len(log.commits()) == 2


async def test_a_refusal_stores_nothing() -> None:
    log = MemoryLog(IDENTITY, faults=Faults(before=LogFullError("full")))
    with pytest.raises(LogFullError):
        await log.append(commit(1), expected=0)
    assert await log.append(commit(1), expected=0) == 2


async def test_a_writer_that_crashes_after_storing_leaves_its_commit() -> None:
    class Crash(Exception):
        pass

    log = MemoryLog(IDENTITY, faults=Faults(after=Crash()))
    with pytest.raises(Crash):
        await log.append(commit(1), expected=0)
    assert [stored.commit for stored in log.commits()[1:]] == [commit(1)]
    with pytest.raises(FencedError):
        await log.append(commit(2), expected=0)


@pytest.mark.looptime
async def test_a_slow_acknowledgement_lets_others_and_readers_go_first() -> None:
    log = MemoryLog(IDENTITY, faults=Faults(after=100.0))
    slow = asyncio.create_task(log.append(commit(1), expected=0))
    batches = log.follow(1)
    assert await anext(batches) == []
    assert [stored.commit for stored in await anext(batches)] == [commit(1)]
    assert await log.append(commit(1, stage="actuator"), expected=0) == 3
    assert not slow.done()
    assert await slow == 2
    assert asyncio.get_running_loop().time() == 100
    await batches.aclose()


@pytest.mark.looptime
async def test_a_rival_that_overtakes_a_slow_commit_wins() -> None:
    log = MemoryLog(IDENTITY, faults=Faults(before=10.0))
    slow = asyncio.create_task(log.append(commit(1), expected=0))
    await asyncio.sleep(5)
    assert await log.append(commit(2), expected=0) == 2
    with pytest.raises(FencedError):
        await slow


@pytest.mark.looptime
async def test_a_lost_acknowledgement_comes_too_late_when_somebody_built_on_the_commit() -> None:
    class Overtaken(Faults):
        async def after_store(self, stored: Commit, seq: int) -> None:
            if seq == 2:
                log.faults = None
                await log.append(commit(2), expected=2)
                raise AckLost

    log = MemoryLog(IDENTITY)
    log.faults = Overtaken()
    with pytest.raises(FencedError):
        await log.append(commit(1), expected=0)


async def test_what_is_stored_shares_nothing_with_the_writer() -> None:
    log = MemoryLog(IDENTITY)
    one = commit(1)
    await log.append(one, expected=0)
    assert log.commits()[1].commit == one
    assert log.commits()[1].commit is not one
    fast = MemoryLog(IDENTITY, isolate=False)
    await fast.append(one, expected=0)
    assert fast.commits()[1].commit is one


@pytest.mark.looptime
async def test_leases_run_out_in_the_time_of_the_loop() -> None:
    leases = MemoryLeases(lease_s=10.0)
    one, two = leases.lease("watcher", "0", "one"), leases.lease("watcher", "0", "two")
    assert await one.acquire()
    await asyncio.sleep(9.9)
    assert await one.renew()
    await asyncio.sleep(9.9)
    assert not await two.acquire()
    await asyncio.sleep(0.2)
    assert not await one.renew()
    assert await two.acquire()
    assert two.holder() == "two"


async def test_snapshots_are_shared_only_through_their_store() -> None:
    snapshot = Snapshot(log_id="l", stage="watcher", shard="0", seq=5, schema="s", body=b"x")
    kept = MemorySnapshots(IDENTITY)
    assert await kept.save(snapshot)
    assert await loaded(MemorySnapshots(IDENTITY), "watcher", "0") is None
