"""How services end: also while they wait for the log's next generation, and their successors need not wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.accounts import Accounts, shipped
from kit.compose import STOP_S, Running
from kit.nats import SMALL
from kit.simulated import cluster
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease

pytestmark = pytest.mark.timeout(180)
CELL = "main"


@asynccontextmanager
async def founded(folder: Path) -> AsyncIterator[tuple[JetStream, dict[str, str], Accounts]]:
    """A cell on a NATS with the accounts that are shipped, and what its services have in common."""
    async with shipped(folder) as (url, accounts):
        connection = await connect(url, name="test")
        js = JetStream(connection)
        await open_stores(js, CELL, create=True, limits=SMALL)
        await open_log(js, CELL, create=True, limits=SMALL)
        yield js, {"MUSTER_NATS_URL": url, "MUSTER_HEALTH_PORT": "-1"}, accounts
        await connection.close()


async def sealed(js: JetStream) -> None:
    """As after a roll-over that broke off."""
    log = await open_log(js, CELL)
    await JetStreamGenerations(js, CELL).seal(log.identity)


@pytest.mark.parametrize("before", [True, False], ids=["sealed before its start", "sealed under it"])
async def test_ends_while_the_log_is_sealed(before: bool, tmp_path: Path) -> None:
    async with founded(tmp_path) as (js, env, accounts):
        service = Running("publisher", tmp_path, 0, {**env, **accounts.env("publisher")})
        if before:
            await sealed(js)
        await service.start()
        try:
            if not before:
                await until(lambda: "log_opened" in service.log.read_text(), 60.0, what="it to start")
                await sealed(js)
            await until(lambda: "log_sealed" in service.log.read_text(), 60.0, what="it to wait for the next one")
        finally:
            code, took_s = await service.stop()
        assert (code, took_s < STOP_S) == (0, True), service.tail()


@pytest.mark.parametrize(("name", "seats"), [("publisher", ["publisher"]), ("actuator", ["actuator", "presenter"])])
async def test_its_leases_are_free_at_once(name: str, seats: list[str], tmp_path: Path) -> None:
    async with founded(tmp_path) as (js, env, accounts), cluster(tmp_path) as (_, kubeconfig):
        identity = (await open_log(js, CELL)).identity
        leases = [JetStreamLease(js, identity, seat, "0", "onlooker") for seat in seats]

        async def held() -> bool:
            return all([await lease.holder() is not None for lease in leases])

        service = Running(name, tmp_path, 0, {**env, **accounts.env(name), "MUSTER_KUBECONFIG": str(kubeconfig)})
        await service.start()
        try:
            await until(held, 60.0, what="it to hold its leases")
        finally:
            code, _ = await service.stop()
        assert code == 0, service.tail()
        assert [await lease.holder() for lease in leases] == [None] * len(seats)
