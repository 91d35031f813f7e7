"""NATS is set back, log and key-value store together: every sequence keeps its content, and jobs go on."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from kit.compose import ANONYMOUS
from kit.fleet import Supervised
from kit.simulated import cluster, create
from kit.story import quota_tree, rayjob
from kit.threeservers import three_servers
from kit.waiting import until
from muster.bus.cell import open_log, open_stores, pointer_of
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.streams import Limits
from muster.events import subjects
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.clock import SystemClock
from muster.runtime.witness import CellRecord, WitnessedCommit

pytestmark = [pytest.mark.timeout(240)]

PROCESSES = ("watcher,actuator", "deciders", "keeper")
FOUNDED_S = 60.0


class Scene:
    """Three servers, or one, all of Muster as processes, and a simulated cluster behind HTTP."""

    def __init__(self, servers: list[EmbeddedServer], simulated: SimCluster, kubeconfig: Path, folder: Path) -> None:
        self.servers, self.simulated, self.folder = servers, simulated, folder
        self.url = ",".join(each.url for each in servers)
        env = {**ANONYMOUS, "MUSTER_NATS_URL": self.url, "MUSTER_HEALTH_PORT": "-1", "MUSTER_LOG_ARCHIVE": ""}
        env["MUSTER_KUBECONFIG"] = str(kubeconfig)
        self.processes = [
            Supervised("watcher", folder, 0, env, name=each.replace(",", "-"), command=("muster", "run", each))
            for each in PROCESSES
        ]
        self.record = CellRecord(simulated.transport(), "main", SystemClock())

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[JetStream]:
        connection = await connect(self.url.split(","), name="test")
        yield JetStream(connection)
        await connection.close()

    async def found(self) -> None:
        limits = Limits(max_bytes=16 << 20, replicas=len(self.servers))
        async with self.connected() as js:
            await open_stores(js, "main", create=True, limits=limits)
            await open_log(js, "main", create=True, limits=limits, at=1)

    async def generation(self) -> int:
        async with self.connected() as js:
            pointer = await pointer_of(js, "main")
            return pointer.generation if pointer is not None else 0

    async def contents(self, generation: int) -> dict[int, tuple[str, bytes]]:
        """{sequence: subject and bytes} of a generation, read from its stream."""
        stream, found = subjects.log_stream("main", generation), {}
        async with self.connected() as js:
            info = await js.info(stream)
            assert info is not None
            for seq in range(info.state.first_seq, info.state.last_seq + 1):
                message = await js.get(stream, seq)
                assert message is not None
                found[seq] = (message.subject, message.data)
        return found

    async def recorded(self) -> WitnessedCommit:
        found = await self.record.read()
        assert found is not None
        return found

    async def job(self, name: str) -> str:
        answer = await self.simulated.transport().request("GET", api.RAYJOBS.path("video", name))
        return str(json.loads(answer.body).get("status", {}).get("jobDeploymentStatus"))

    async def runs(self, name: str) -> None:
        await create(self.simulated, api.RAYJOBS, rayjob(name, runtime="1h", cpu="1", memory="1G"))

        async def running() -> bool:
            return await self.job(name) == "Running"

        await until(running, FOUNDED_S, what=f"{name} to run")

    async def stop_servers(self) -> None:
        for each in self.servers:
            await each.kill()

    async def copy(self) -> None:
        """Of all servers at one moment."""
        pids = [each.pid for each in self.servers if each.pid is not None]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for index, each in enumerate(self.servers):
            shutil.copytree(each.directory / "jetstream", self.folder / f"copy-{index}")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def set_back(self) -> None:
        await self.stop_servers()
        for index, each in enumerate(self.servers):
            shutil.rmtree(each.directory / "jetstream")
            shutil.copytree(self.folder / f"copy-{index}", each.directory / "jetstream")
        await self.restart_servers()

    async def restart_servers(self) -> None:
        await asyncio.gather(*(each.restart() for each in self.servers))

    def said(self) -> str:
        return "".join(each.log.read_text() for each in self.processes)


@asynccontextmanager
async def scene(count: int, folder: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        servers = (
            await stack.enter_async_context(three_servers())
            if count == 3
            else [await stack.enter_async_context(EmbeddedServer())]
        )
        simulated, kubeconfig = await stack.enter_async_context(cluster(folder))
        made = Scene(servers, simulated, kubeconfig, folder)
        await made.found()
        await create(simulated, api.QUOTA_TREES, quota_tree())
        for each in made.processes:
            await each.start()
            stack.push_async_callback(each.stop)
        yield made


@pytest.mark.parametrize(("servers", "survive"), [(3, False), (1, True)], ids=["all restarted", "processes survive"])
async def test_no_sequence_has_two_contents_though_all_of_nats_is_set_back(
    servers: int, survive: bool, tmp_path: Path
) -> None:
    async with scene(servers, tmp_path) as it:
        await it.runs("before")
        await it.copy()
        await it.runs("after")
        written = await it.contents(1)
        async with AsyncExitStack() as down:
            if survive:
                end = max(written)
            else:
                end = (await it.recorded()).seq
                await until(lambda: _reaches(it, max(written)), 30.0, what="the record to name all of it")
                for each in it.processes:
                    await down.enter_async_context(each.down())
                written = await it.contents(1)
                end = (await it.recorded()).seq
            await it.set_back()
            again = await it.contents(1)
            assert len(again) < len(written), "commits are lost"

        async def founded() -> bool:
            return await it.generation() == 2

        await until(founded, FOUNDED_S, what="the next generation")
        now = await it.contents(1)
        twice = [seq for seq, content in now.items() if seq <= end and written.get(seq, content) != content]
        assert twice == []
        assert set(now) <= set(written), "nothing is appended to a log that is lost"
        await it.runs("later")
        assert [await it.job(name) for name in ("before", "after")] == ["Running", "Running"]
        assert await it.generation() == 2, "it is founded once"
        assert (await it.recorded()).generation == 2
        assert "it lost commits" in it.said()


@pytest.mark.parametrize("servers", [1, pytest.param(3, marks=pytest.mark.nightly)])
async def test_a_log_that_nats_has_forgotten_is_succeeded_once(servers: int, tmp_path: Path) -> None:
    """As after a quorum that did not know of the stream: every other store of the cell is there."""
    async with scene(servers, tmp_path) as it:
        await it.runs("before")
        async with it.connected() as js:
            await js.delete(subjects.log_stream("main", 1))

        async def founded() -> bool:
            return await it.generation() > 1

        await until(founded, FOUNDED_S, what="the next generation")
        await it.runs("later")
        assert await it.job("before") == "Running"
        assert await it.generation() == 2, "it is founded once"
        assert (await it.recorded()).generation == 2
        async with it.connected() as js:
            info = await js.info(subjects.log_stream("main", 2))
            assert info is not None
            assert info.config.get("num_replicas") == servers


async def _reaches(it: Scene, seq: int) -> bool:
    return (await it.recorded()).seq >= seq
