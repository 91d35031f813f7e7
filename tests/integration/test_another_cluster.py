"""A cell belongs to one cluster: a service with the kubeconfig of another one reads and writes nothing there."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path

import pytest

from kit.cli import Cli
from kit.nats import SMALL
from kit.simulated import NODES, create, served
from kit.story import rayjob
from kit.waiting import until
from muster.bus.cell import open_log, open_stores, pointer_of
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer, free_port
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.pairing import cluster_uid, record_cluster, recorded_cluster
from muster.runtime.service import _serve
from muster.runtime.witness import name_of
from muster_cli.buschecks import bus_findings
from muster_cli.reading import LogPlace


class Scene:
    """A log of the cluster ``own``, and another cluster, older and with a job, behind HTTP."""

    def __init__(self, js: JetStream, log: JetStreamLog, url: str, other: SimCluster, kubeconfig: Path) -> None:
        self.js, self.log, self.url = js, log, url
        self.own, self.other = SimCluster(NODES), other
        self.kubeconfig = kubeconfig
        self.port = free_port()

    @asynccontextmanager
    async def running(self, service: str) -> AsyncIterator["asyncio.Future[None]"]:
        config = Config(
            nats_url=self.url,
            cell=self.log.identity.cell,
            health_host="127.0.0.1",
            health_port=self.port,
            gateway_host="127.0.0.1",
            gateway_port=0,
            gateway_access="review",
            kubeconfig=str(self.kubeconfig),
        )
        build = import_module(f"muster_{service}.__main__").build
        task = asyncio.ensure_future(_serve(config, service, build, keeping=False))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def asked(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}") as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as err:
                return err.code, err.read().decode()
            except OSError:
                return 0, ""

        return await asyncio.to_thread(ask)


@pytest.fixture
async def scene(nats_server: EmbeddedServer, js: JetStream, cell: str, tmp_path: Path) -> AsyncIterator[Scene]:
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL, at=1)
    other = SimCluster(NODES, seed=1)
    await create(other, api.RAYJOBS, rayjob("foreign"))
    async with AsyncExitStack() as stack:
        kubeconfig = await stack.enter_async_context(served(other, tmp_path))
        made = Scene(js, log, nats_server.url, other, kubeconfig)
        await record_cluster(js, log.identity, await cluster_uid(made.own.transport()), "https://own")
        yield made


@pytest.mark.parametrize("service", ["watcher", "actuator", "gateway"])
async def test_a_service_with_the_kubeconfig_of_another_cluster_is_refused(
    scene: Scene, service: str, tmp_path: Path
) -> None:
    own, other = await cluster_uid(scene.own.transport()), await cluster_uid(scene.other.transport())
    end = await scene.log.end()
    async with scene.running(service) as task:

        async def refused() -> str:
            assert not task.done(), task
            code, said = await scene.asked("readyz")
            return said if code == 503 and "another one" in said else ""

        said = await until(refused, 30.0, what="it to say so")
        for part in (own, other, "https://own", str(scene.kubeconfig), "muster cell move"):
            assert part in said
        assert (await scene.asked("startupz"))[0] == 200, "another start would change nothing"
        known = await recorded_cluster(scene.js, scene.log.identity)
        assert known is not None
        assert (known.uid, known.set_back) == (own, ""), "it is written once"
        pointer = await pointer_of(scene.js, scene.log.identity.cell)
        assert (await scene.log.end(), pointer and pointer.generation) == (end, 1)
        lease = api.LEASES.path("muster-system", name_of(scene.log.identity.cell))
        assert (await scene.other.transport().request("GET", lease)).status == 404
        doctor = LogPlace(Config(nats_url=scene.url, cell=scene.log.identity.cell))

        async def told() -> bool:
            findings = await bus_findings(doctor, SystemClock())
            return any(found.title == service and own in found.detail and other in found.detail for found in findings)

        await until(told, 20.0, 0.5, what="the doctor to say why it waits")

        async def doctor_names_it() -> bool:
            state = await Cli(tmp_path).run("doctor", "--url", scene.url, "--cell", scene.log.identity.cell)
            line = next((line for line in state.out.splitlines() if "is another one" in line), "")
            return service in line and "waits" in line

        await until(doctor_names_it, 20.0, what="doctor to name it, although another process may lead")


async def test_a_person_gives_a_cell_to_another_cluster(scene: Scene, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    where = ("--url", scene.url, "--cell", scene.log.identity.cell, "--kubeconfig", str(scene.kubeconfig))
    asked = await cli.run("cell", "move", *where)
    other = await cluster_uid(scene.other.transport())
    assert (asked.code, other in asked.out) == (1, True)
    assert "generation 2" in (await cli.run("cell", "move", "--yes", *where)).ok().out.lower()
    after = await open_log(scene.js, scene.log.identity.cell)
    known = await recorded_cluster(scene.js, after.identity)
    assert known is not None
    assert (known.uid, after.identity.generation, after.identity.earlier) == (other, 2, ())
    async with scene.running("watcher") as task:

        async def ready() -> bool:
            assert not task.done(), task
            return (await scene.asked("readyz"))[0] == 200

        await until(ready, 30.0, what="the watcher to read it")
