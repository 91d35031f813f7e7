"""What every Lease promises, asked of the one in memory and of JetStream."""

from typing import Protocol

import pytest

from kit.nats import SMALL
from kit.waiting import until
from muster.bus.cell import open_stores
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.ports import Lease, LogIdentity
from muster.sim.log import MemoryLeases

LEASE_S = 1.0


class World(Protocol):
    """Leases of one cell that last LEASE_S seconds."""

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.leases = MemoryLeases(LEASE_S)

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease:
        return self.leases.lease(stage, shard, process)


class NatsWorld:
    def __init__(self, js: JetStream, cell: str) -> None:
        self.js, self.cell = js, cell

    async def lease(self, process: str, stage: str = "preemptor", shard: str = "0") -> Lease:
        await open_stores(self.js, self.cell, create=True, limits=SMALL, lease_s=LEASE_S)
        identity = LogIdentity(cell=self.cell, log_id="l", generation=1)
        return JetStreamLease(self.js, identity, stage, shard, process, lease_s=LEASE_S)


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


async def test_giving_up_what_another_took_over_changes_nothing(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    await until(two.acquire, timeout_s=5)
    await one.release()
    assert await two.renew()
    assert not await one.acquire()


async def test_it_runs_out_without_renewal_and_the_old_holder_learns_it(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    await until(two.acquire, timeout_s=5)
    assert not await one.renew()
    assert await two.renew()


async def test_renewal_keeps_it_beyond_its_time(world: World) -> None:
    one, two = await world.lease("one"), await world.lease("two")
    assert await one.acquire()
    tries: list[bool] = []

    async def rival_keeps_failing() -> bool:
        assert await one.renew()
        tries.append(await two.acquire())
        return len(tries) >= 10

    # Ten rounds of a fifth of the lease each: it would have run out twice.
    await until(rival_keeps_failing, timeout_s=10, every_s=LEASE_S / 5)
    assert not any(tries)
