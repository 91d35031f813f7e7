"""A lost lease ends no process: the service stands by, and the demo goes on at the port that it had."""

import asyncio
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from kit.accounts import shipped
from kit.beside import beside
from kit.cli import Cli
from kit.compose import Running
from kit.nats import SMALL
from kit.shell import NODES
from kit.simulated import cluster
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.lease import LeaseHolder
from muster.bus.server import EmbeddedServer
from muster.events.registry import encode
from muster.events.subjects import lease_bucket
from muster.fakecluster.world import SimCluster
from muster.ports import ApiTransport
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.process import Process
from muster_cli.local.services import Services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


async def take(js: JetStream, key: str) -> None:
    """Another process has the lease from now on."""
    bucket = KvBucket(js, lease_bucket("main"))
    rival = encode(LeaseHolder(process="rival", log_id="another"))
    entry = await bucket.get(key)
    while await bucket.set(key, rival, revision=entry.revision if entry is not None else 0) is None:
        entry = await bucket.get(key)


async def holder(js: JetStream, key: str) -> bytes:
    entry = await KvBucket(js, lease_bucket("main")).get(key)
    return entry.value or b"" if entry is not None else b""


async def test_a_watcher_that_loses_a_lease_stands_by_and_leads_again(tmp_path: Path) -> None:
    async with shipped(tmp_path) as (url, accounts), cluster(tmp_path) as (_, kubeconfig):
        connection = await connect(url, name="test")
        js = JetStream(connection)
        await open_stores(js, "main", create=True, limits=SMALL)
        await open_log(js, "main", create=True, limits=SMALL)
        env = {**accounts.env("watcher"), "MUSTER_NATS_URL": url, "MUSTER_HEALTH_PORT": "-1"}
        watcher = Running("watcher", tmp_path, 0, {**env, "MUSTER_KUBECONFIG": str(kubeconfig)})
        await watcher.start()
        try:

            async def leads() -> bool:
                return b"rival" not in (value := await holder(js, "watcher.nodes")) and bool(value)

            await until(leads, 60.0, what="the watcher to lead")
            await take(js, "watcher.nodes")
            await until(lambda: '"stands_by"' in watcher.log.read_text(), 30.0, what="it to stand by")
            await until(leads, 60.0, what="it to lead again, once the lease of the other ran out")
            assert watcher.log.read_text().count('"health_served"') <= 1
        finally:
            code, _ = await watcher.stop()
        assert code == 0, watcher.tail()
        await connection.close()


async def test_the_demo_keeps_its_port_and_waits_for_its_broker(tmp_path: Path) -> None:
    notes: list[str] = []
    simulated = SimCluster(NODES)

    async def reach(_process: Process) -> ApiTransport:
        return simulated.transport()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with EmbeddedServer() as server, beside(simulated.run()):
            config = Config(
                nats_url=server.url,
                log_create=True,
                log_max_bytes=SMALL.max_bytes,
                health_port=-1,
                gateway_host="127.0.0.1",
                gateway_access="none",
                gateway_port=taken.getsockname()[1],
            )
            services = Services(config, SystemClock(), reach, notes.append, tmp_path / "moments")
            await services.open()
            url = services.dashboard_url
            connection = await connect(server.url, name="test")

            async with beside(services.run()):
                await until(lambda: not services._not_ready(), 60.0, what="the demo to be ready")
                await take(JetStream(connection), "quota_accountant.0")
                await until(lambda: any("lost" in note for note in notes), 30.0, what="the loss of the lease")
                await until(lambda: _answers(url), 60.0, what="the dashboard at its port of before")
                await until(lambda: not services._not_ready(), 60.0, what="the demo to be ready again")
                # Away while it starts again: the first try cannot connect.
                await take(JetStream(connection), "queue_sorter.0")
                await until(lambda: sum("lost" in note for note in notes) > 1, 30.0, what="the second loss")
                await server.kill()
                await until(lambda: any("cannot connect" in note for note in notes), 60.0, what="a start in vain")
                await server.restart()
                await until(lambda: _answers(url), 60.0, what="the dashboard at its port of before")
            await connection.close()
            await services.close()


async def test_a_demo_that_gets_no_processor_for_longer_than_its_leases_goes_on_at_its_port(tmp_path: Path) -> None:
    async with Cli(tmp_path).start("up", "--headless") as up:
        url = (await up.line("Dashboard")).split()[-1]
        bus = next(word for word in (await up.line("nats://")).split() if word.startswith("nats://"))
        connection = await connect(bus, name="test")
        js = JetStream(connection)

        async def led() -> bool:
            return bool(await holder(js, "quota_accountant.0"))

        async def lapsed() -> bool:
            return not await led()

        await until(led, 60.0, what="the demo to lead")
        up.process.send_signal(signal.SIGSTOP)
        await until(lapsed, 60.0, what="the lease to run out")
        up.process.send_signal(signal.SIGCONT)
        await until(led, 60.0, what="the demo to lead again")
        await until(lambda: _answers(url), 60.0, what="the dashboard at its port of before")
        await connection.close()
        assert sum("Dashboard" in line for line in up.lines) == 1
        assert sum("starting the services again" in line for line in up.errors) <= 1
        assert (await up.stop()).code == 0


async def _answers(url: str) -> bool:
    try:
        return bool(await asyncio.to_thread(lambda: urlopen(f"{url}api/v1/position", timeout=2).read()))
    except OSError:
        return False
