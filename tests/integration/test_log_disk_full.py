"""The disk of a real nats-server is full for a while: Muster says so, decides nothing, and goes on without a person."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.beside import beside
from kit.nats import SMALL
from kit.proof import commits_of, prove
from kit.simulated import NODES, create
from kit.smalldisk import SmallDisk, alive, small_disk
from kit.story import quota_tree, rayjob
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.core.cell.deciders import DECIDERS
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.config import Config
from muster.runtime.process import Process
from muster.runtime.service import RESTARTS, STANDS_BY, open_process
from muster.telemetry import logs
from muster_cli.local.broker import keep_alive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STORE = 'jetstream {{ store_dir: "{}/jetstream", max_file_store: 100GB, sync_interval: always }}\n'
"""Room that the disk does not have: what is reserved is not what is there."""


class Services:
    """All of Muster in this process; what ends for a restart is started again, as in a pod."""

    def __init__(self, url: str, simulated: SimCluster) -> None:
        self.config = Config(nats_url=url, health_port=-1, log_max_bytes=SMALL.max_bytes)
        self.simulated = simulated
        self.process: Process | None = None
        self.starts = 0

    async def run(self) -> None:
        while True:
            async with AsyncExitStack() as stack:
                try:
                    process = await open_process(self.config, "up", stack)
                    for stage in DECIDERS.values():
                        process.add_decider(stage)
                    process.add_watchers(self.simulated.transport())
                    process.add_actuator(self.simulated.transport())
                    process.add_publisher()
                    self.process, self.starts = process, self.starts + 1
                    await process.run()
                except (*STANDS_BY, *RESTARTS):
                    pass
                self.process = None
            await asyncio.sleep(1.0)

    def reasons(self) -> list[str]:
        return ["it is being started"] if self.process is None else list(self.process.not_ready())


class Scene(NamedTuple):
    disk: SmallDisk
    server: EmbeddedServer
    services: Services
    simulated: SimCluster


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    logs.configure(level="warning", style="json", stream=sys.stderr)
    simulated = SimCluster(NODES)
    with small_disk(tmp_path / "disk", 64) as disk:
        data = disk.folder / "data"
        async with EmbeddedServer(data=data, config=STORE.format(data), monitor_port=0) as server:
            server.room = 16 << 20
            connection = await connect(server.url, name="founder")
            await open_stores(JetStream(connection), "main", create=True, limits=SMALL)
            await open_log(JetStream(connection), "main", create=True, limits=SMALL, at=1)
            await connection.close()
            services = Services(server.url, simulated)
            async with beside(simulated.run()), beside(services.run()):
                await until(lambda: not services.reasons(), 60.0, what="Muster to be ready")
                yield Scene(disk, server, services, simulated)


async def finished(simulated: SimCluster, name: str) -> bool:
    answer = await simulated.transport().request("GET", api.RAYJOBS.path("video", name))
    return b'"jobDeploymentStatus":"Complete"' in answer.body.replace(b": ", b":")


async def test_decisions_wait_while_the_disk_is_full_and_go_on_by_themselves(tmp_path: Path) -> None:
    async with scene(tmp_path) as (disk, server, services, simulated):
        await create(simulated, api.QUOTA_TREES, quota_tree())
        await create(simulated, api.RAYJOBS, rayjob("before", runtime="1s"))
        await until(lambda: finished(simulated, "before"), 60.0)
        disk.fill()
        await create(simulated, api.RAYJOBS, rayjob("during", runtime="1s"))
        told = await until(lambda: next((each for each in services.reasons() if "room on its disk" in each), ""), 30.0)
        assert "NATS has no leader or no room" in told
        # As long as nothing is stored nothing is said to be well, whatever is started again meanwhile.
        loop = asyncio.get_running_loop()
        full_until, well = loop.time() + 25.0, 0
        while loop.time() < full_until:
            well += not services.reasons()
            await asyncio.sleep(0.1)
        assert (well, await finished(simulated, "during"), services.starts > 1) == (0, False, True)
        probed = tmp_path, server.monitor_port, server.directory, server.room
        assert alive(*probed), "a start would change nothing"
        disk.make_room()
        assert not alive(*probed), "a start would help"
        disk.fill()
        async with beside(keep_alive(server, lambda _: None)):
            assert not server.gave_up()
            disk.make_room()
            began = loop.time()
            await until(lambda: finished(simulated, "during"), 60.0)
            await until(lambda: not services.reasons(), 60.0)
            assert loop.time() - began < 30.0
        await prove(await commits_of(server.url, "main", whole=True), tmp_path)
