"""What every Lease promises, asked of the one in memory and of JetStream."""

import asyncio
from typing import Protocol

import pytest

from kit.doubles.log import MemoryLeases
from kit.nats import SMALL, leases_last
from kit.waiting import until
from muster.bus.cell import open_stores
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.ports import Lease, LogIdentity

LONG_S = 60.0
"""However long a test is held up, what it does with a lease meanwhile is in time."""
SHORT_S = 0.5


class World(Protocol):
    """Leases of one cell that last LONG_S seconds, until said otherwise."""

    async def last(self, lease_s: float) -> None:
        """Those taken or renewed from now on last so long; where a server keeps them, all others too."""
        ...

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.leases = MemoryLeases(LONG_S)

    async def last(self, lease_s: float) -> None:
        self.leases.lease_s = lease_s

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease:
        return self.leases.lease(stage, shard, process)


class NatsWorld:
    def __init__(self, js: JetStream, cell: str) -> None:
        self.js, self.cell = js, cell

    async def last(self, lease_s: float) -> None:
        await leases_last(self.js, self.cell, lease_s)

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease:
        await open_stores(self.js, self.cell, create=True, limits=SMALL, lease_s=LONG_S)
        identity = LogIdentity(cell=self.cell, log_id="l", generation=1)
        return JetStreamLease(self.js, identity, stage, shard, process, lease_s=LONG_S)


@pytest.fixture(params=["memory", "nats"])
def world(request: pytest.FixtureRequest, cell: str) -> World:
    return MemoryWorld() if request.param == "memory" else NatsWorld(request.getfixturevalue("js"), cell)


async def test_one_process_at_a_time_holds_it(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    assert not await two.acquire()
    assert await one.acquire()
    assert await one.renew()
    assert not await two.renew()


async def test_stages_and_shards_have_leases_of_their_own(world: World) -> None:
    assert await (await world.lease("one")).acquire()
    assert await (await world.lease("two", stage="watcher")).acquire()
    assert await (await world.lease("two", shard="1")).acquire()


async def test_it_is_free_at_once_when_given_up(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    await one.release()
    assert await two.acquire()
    assert not await one.renew()
    assert not await one.acquire()
    await two.release()
    assert await one.acquire()


async def run_out(world: World, lease: Lease, rival: Lease) -> None:
    """One has held it, and did not renew it: now the other holds it, for long."""
    assert await lease.acquire()
    await world.last(SHORT_S)
    assert await lease.renew() or await lease.acquire(), "it is as long as it says from here on"

    async def taken() -> bool:
        return await rival.acquire()

    await until(taken, what="it to run out")
    await world.last(LONG_S)
    # It may have run out once more before that.
    assert await rival.renew() or await rival.acquire()


async def test_giving_up_what_another_took_over_changes_nothing(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    await run_out(world, one, two)
    await one.release()
    assert await two.renew()
    assert not await one.acquire()


async def test_it_runs_out_without_renewal_and_the_old_holder_learns_it(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    await run_out(world, one, two)
    assert not await one.renew()
    assert await two.renew()


async def test_renewal_keeps_it_beyond_its_time(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    lease_s = 1.0
    await world.last(lease_s)
    loop = asyncio.get_running_loop()
    tries: list[bool] = []
    before = loop.time()

    async def rival_keeps_failing() -> bool:
        nonlocal before
        began = loop.time()
        renewed, taken = await one.renew(), await two.acquire()
        if loop.time() - before >= lease_s:
            # Held up for as long as it lasts: whatever became of it, once more from the beginning.
            tries.clear()
            await two.release()
            await until(one.acquire)
        else:
            assert renewed
            tries.append(taken)
        before = began
        return len(tries) >= 10

    # Ten rounds of a fifth of the lease each: it would have run out twice.
    await until(rival_keeps_failing, timeout_s=60, every_s=lease_s / 5)
    assert not any(tries)
