"""Who is alive, as a real server knows it: what is announced is there, and forgotten when it is not repeated."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kit.doubles.log import MemoryReplicas
from kit.nats import SMALL, leases_last
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.errors import ForbiddenError
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.replicas import JetStreamReplicas
from muster.ports import LogIdentity, Replica
from muster.runtime.connecting import connect_bus

FIRST = Replica("queue_sorter", "0", "host.example-1a2b3c", 1)
SECOND = Replica("watcher", "podgroups_scheduling_x-k8s_io", "host-4d5e6f", 2)


async def test_announced_and_forgotten(js: JetStream, cell: str) -> None:
    await open_stores(js, cell, create=True, limits=SMALL, lease_s=60.0)
    replicas = JetStreamReplicas(js, cell)
    assert await replicas.live() == []
    lease = JetStreamLease(js, LogIdentity(cell, "log", 1), "queue_sorter", "0", "somebody")
    assert await lease.acquire()
    for replica in (SECOND, FIRST, FIRST):
        await replicas.announce(replica)
    assert await replicas.live() == [FIRST, SECOND], "each once, and no lease among them"
    await leases_last(js, cell, 2.0)

    async def forgotten() -> bool:
        await replicas.announce(SECOND)
        return await replicas.live() == [SECOND]

    await until(forgotten, 30.0, 0.2, what="the one that fell silent to be forgotten")


async def test_in_memory_it_is_the_same() -> None:
    replicas = MemoryReplicas(lease_s=60.0)
    await replicas.announce(FIRST)
    assert await replicas.live() == [FIRST]
    replicas.lease_s = 0.05

    async def forgotten() -> bool:
        return await replicas.live() == []

    await until(forgotten, 10.0, what="it to be forgotten")


async def test_a_service_speaks_for_its_own_stage_only(tmp_path: Path) -> None:
    keys = Keys(tmp_path, (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        admin = await connect_bus(server.config("admin"), "admin", _silent)
        js = JetStream(admin)
        await open_stores(js, "main", create=True, limits=SMALL)
        await open_log(js, "main", create=True, limits=SMALL)
        sorter = await connect_bus(server.config("queue_sorter"), "sorter", _silent)
        replicas = JetStreamReplicas(JetStream(sorter), "main")
        await replicas.announce(FIRST)
        assert await replicas.live() == [FIRST]
        with pytest.raises(ForbiddenError):
            async with asyncio.timeout(30):
                await replicas.announce(SECOND)
        await sorter.close()
        assert await JetStreamReplicas(js, "main").live() == [FIRST]
        await admin.close()


def _silent(*_: Any) -> None:
    pass
