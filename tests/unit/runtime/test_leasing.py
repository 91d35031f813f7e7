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
