"""How services end: also while they wait for the log's next generation, and their successors need not wait."""

from pathlib import Path

import pytest

from kit.compose import ANONYMOUS, STOP_S, Running
from kit.nats import SMALL
from kit.simulated import cluster
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.server import EmbeddedServer

pytestmark = pytest.mark.timeout(180)


async def sealed(js: JetStream, cell: str) -> None:
    """As after a roll-over that broke off."""
    log = await open_log(js, cell)
    await JetStreamGenerations(js, cell).seal(log.identity)


@pytest.mark.parametrize("before", [True, False], ids=["sealed before its start", "sealed under it"])
async def test_ends_while_the_log_is_sealed(
    before: bool, nats_server: EmbeddedServer, js: JetStream, cell: str, tmp_path: Path
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    await open_log(js, cell, create=True, limits=SMALL)
    env = {**ANONYMOUS, "MUSTER_NATS_URL": nats_server.url, "MUSTER_CELL": cell, "MUSTER_HEALTH_PORT": "-1"}
    service = Running("publisher", tmp_path, 0, env)
    if before:
        await sealed(js, cell)
    await service.start()
    try:
        if not before:
            await until(lambda: "log_opened" in service.log.read_text(), 60.0, what="it to start")
            await sealed(js, cell)
        await until(lambda: "log_sealed" in service.log.read_text(), 60.0, what="it to wait for the next generation")
    finally:
        code, took_s = await service.stop()
    assert (code, took_s < STOP_S) == (0, True), service.tail()


@pytest.mark.parametrize(("name", "seats"), [("publisher", ["publisher"]), ("actuator", ["actuator", "presenter"])])
async def test_its_leases_are_free_at_once(
    name: str, seats: list[str], nats_server: EmbeddedServer, js: JetStream, cell: str, tmp_path: Path
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL)
    leases = [JetStreamLease(js, log.identity, seat, "0", "onlooker") for seat in seats]

    async def held() -> bool:
        return all([await lease.holder() is not None for lease in leases])

    async with cluster(tmp_path) as (_, kubeconfig):
        env = {**ANONYMOUS, "MUSTER_NATS_URL": nats_server.url, "MUSTER_CELL": cell, "MUSTER_HEALTH_PORT": "-1"}
        service = Running(name, tmp_path, 0, {**env, "MUSTER_KUBECONFIG": str(kubeconfig)})
        await service.start()
        try:
            await until(held, 60.0, what="it to hold its leases")
        finally:
            code, _ = await service.stop()
    assert code == 0, service.tail()
    assert [await lease.holder() for lease in leases] == [None] * len(seats)
