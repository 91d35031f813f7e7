"""A lease that ran out while nobody else wanted it is taken again; one that another took is lost."""

import asyncio

import pytest

from kit.doubles.log import MemoryLeases
from muster.runtime.runners.leasing import LEASE_RENEWAL_S, KeptLease, LostLeadershipError

pytestmark = pytest.mark.looptime


async def test_a_lease_that_ran_out_is_taken_again_in_place() -> None:
    leases, taken = MemoryLeases(), []
    kept = KeptLease(leases.lease("watcher", "nodes", "mine"), "watcher/nodes", taken=lambda: taken.append(1))
    keeping = asyncio.ensure_future(kept.keep())
    await asyncio.sleep(LEASE_RENEWAL_S / 2)
    # The machine slept for longer than the lease lasts: the entry is gone, and no standby was there.
    leases.held.clear()
    await asyncio.sleep(10 * LEASE_RENEWAL_S)
    assert not keeping.done()
    assert kept.held
    assert [lease.process for lease in leases.held.values()] == ["mine"]
    assert len(taken) == 1, "nobody led in between: nothing begins anew"
    leases.take("watcher", "nodes", "another")
    with pytest.raises(LostLeadershipError):
        await keeping
    assert not kept.held


async def test_the_leases_of_a_process_are_renewed_in_the_same_turns_whenever_each_was_taken() -> None:
    leases, loop = MemoryLeases(), asyncio.get_running_loop()
    at: list[float] = []

    class Noted:
        def __init__(self, shard: str) -> None:
            self._lease = leases.lease("watcher", shard, "mine")

        async def acquire(self) -> bool | None:
            return await self._lease.acquire()

        async def renew(self) -> bool:
            at.append(round(loop.time(), 3))
            return await self._lease.renew()

        async def release(self) -> None:
            await self._lease.release()

    tasks = []
    for number in range(30):
        tasks.append(asyncio.ensure_future(KeptLease(Noted(str(number)), str(number)).keep()))
        await asyncio.sleep(0.07)
    at.clear()
    await asyncio.sleep(10 * LEASE_RENEWAL_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(at) == 300
    assert len(set(at)) == 10
