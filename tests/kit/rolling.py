"""Muster as an installation runs it in each layout, and restarted deployment by deployment while jobs keep coming.

The processes, their commands, settings and users of NATS are those of the manifests (`muster_tools.installing`, of
which the install files and the chart are made) or of docker-compose.yml; ports, addresses and paths of files are ours.
"""

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kit import facts
from kit.accounts import Accounts
from kit.beside import beside
from kit.cli import Cli
from kit.compose import services
from kit.fleet import SERVICES, Supervised
from kit.proof import commits_of
from kit.simulated import create
from kit.story import quota_tree, rayjob
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import free_port
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.stage import Folder
from muster.events.effects import EffectApplied
from muster.events.facts import WorkloadFinished, WorkloadStarted
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.layouts import members
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.told.readmodel.model import ReadModel
from muster_tools.installing import parts

CELL = "main"
COMPOSE = "compose"
FORMS = (COMPOSE, "separate", "deciders", "all")
"""docker-compose.yml; the production form in two layouts; the small form."""
ROOM = str(256 << 20)
EVERY_S = 0.2
"""Between two jobs."""


class Container(NamedTuple):
    """What runs in a pod: the user of NATS that it signs in as, its command and its settings."""

    user: str
    command: list[str]
    env: dict[str, str]


class Deployment(NamedTuple):
    """``surge``: a new pod is ready before an old one ends."""

    name: str
    containers: list[Container]
    replicas: int
    surge: bool


def deployments(form: str) -> Iterator[Deployment]:
    """Those of an installation."""
    if form == COMPOSE:
        for name in SERVICES:
            yield Deployment(name, [Container(name.replace("-", "_"), services()[name].argv, {})], 1, surge=False)
        return
    for each in parts(small=form == "all", layout=form)["services.yaml"]:
        if each["kind"] == "Deployment":
            spec = each["spec"]
            containers = [_container(found) for found in spec["template"]["spec"]["containers"]]
            surge = spec["strategy"]["type"] == "RollingUpdate"
            yield Deployment(each["metadata"]["name"], containers, spec["replicas"], surge)


def _container(found: Mapping[str, Any]) -> Container:
    env = {each["name"]: each["value"] for each in found["env"] if "value" in each}
    del env["MUSTER_NATS_CA_FILE"]  # The server here has no certificate.
    return Container(found["name"].replace("-", "_"), found["command"], env)


class Installed:
    """`async with Installed(folder, url, accounts, kubeconfig)`: a cell, and the pods that were started in it."""

    def __init__(self, folder: Path, url: str, accounts: Accounts, kubeconfig: Path, *, single: bool = False) -> None:
        """``single``: one pod of each deployment, where there would be two."""
        self.url = url
        self._single = single
        self._folder = folder
        self._accounts = accounts
        self._kubeconfig = kubeconfig
        self._numbers = itertools.count(1)
        self._pods: dict[str, list[list[Supervised]]] = {}
        """{deployment: its pods, each the processes in it}"""
        self.ended: list[Supervised] = []

    async def __aenter__(self) -> "Installed":
        cli = Cli(self._folder / "cli")
        room = {"MUSTER_NATS_URL": self.url, "MUSTER_LOG_MAX_BYTES": ROOM}
        (await cli.run("log", "init", **room, **self._accounts.env("admin"))).ok()
        return self

    async def __aexit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        if err is not None:
            err.add_note(self._account())
        await self.stop(orderly=kind is None)

    def _account(self) -> str:
        """How processes ended, and what those that run wrote last, for a reader of a failure."""
        lines = [f"ended: {self.died()}"]
        for process in [process for pods in self._pods.values() for pod in pods for process in pod]:
            written = process.log.read_text(errors="replace").splitlines()
            lines += [f"{process.name}: {line[:300]}" for line in written[-4:]]
        return "\n".join(lines)

    def _deployments(self, form: str) -> list[Deployment]:
        found = [*deployments(form)]
        return [each._replace(replicas=1) for each in found] if self._single else found

    async def start(self, form: str) -> None:
        """Every deployment of a form, ready."""
        found = self._deployments(form)
        await asyncio.gather(*(self._pod(each) for each in found for _ in range(each.replicas)))

    async def stop(self, *, orderly: bool = True) -> None:
        """Every pod."""
        pods = [pod for pods in self._pods.values() for pod in pods]
        await asyncio.gather(*(self._end(pod, orderly=orderly) for pod in pods))
        self._pods.clear()

    async def roll(self, form: str) -> None:
        """`kubectl rollout restart`, or `docker compose up --force-recreate`, of one deployment after the other; where
        there is one pod of each, of all at once: a new one is ready before the old one ends.
        """
        if self._single and form != COMPOSE:
            await asyncio.gather(*(self._rolled(each) for each in self._deployments(form)))
            return
        for each in self._deployments(form):
            await self._rolled(each)

    async def scale(self, form: str, name: str, replicas: int) -> None:
        """`kubectl scale deployment NAME --replicas`: the oldest pods are the first that end."""
        [deployment] = [each for each in self._deployments(form) if each.name == name]
        pods = self._pods[name]
        await asyncio.gather(*(self._pod(deployment) for _ in range(replicas - len(pods))))
        ended, pods[:] = pods[:-replicas], pods[-replicas:]
        for process in [process for pod in ended for process in pod]:
            await process.until_healthy()  # One that was killed has only just begun again.
        await asyncio.gather(*(self._end(pod) for pod in ended))

    async def kill(self, name: str) -> list[str]:
        """`kill -9` of the oldest pod of a deployment, which leads; it is started again. Returns the processes."""
        for process in self._pods[name][0]:
            process.signal(signal.SIGKILL)
        return [process.name for process in self._pods[name][0]]

    async def _rolled(self, deployment: Deployment) -> None:
        pods = self._pods[deployment.name]
        for old in [*pods]:
            if deployment.surge:
                await self._pod(deployment)
            pods.remove(old)
            await self._end(old)
            if not deployment.surge:
                await self._pod(deployment)

    async def _pod(self, deployment: Deployment) -> None:
        number = next(self._numbers)
        pod = [self._process(deployment, each, number) for each in deployment.containers]
        self._pods.setdefault(deployment.name, []).append(pod)
        for process in pod:
            await process.start()
        for process in pod:
            await process.until_healthy()

    def _process(self, deployment: Deployment, container: Container, number: int) -> Supervised:
        service, port = members(container.user)[0].replace("_", "-"), free_port()
        env = {
            **container.env,
            **self._accounts.env(container.user),
            "MUSTER_NATS_URL": self.url,
            "MUSTER_HEALTH_HOST": "127.0.0.1",
            "MUSTER_HEALTH_PORT": str(port),
            "MUSTER_GATEWAY_HOST": "127.0.0.1",
            "MUSTER_GATEWAY_PORT": "0",
            "MUSTER_KUBECONFIG": str(self._kubeconfig),
        }
        if "MUSTER_LOG_ARCHIVE" in {**services()[service].env, **env}:
            env["MUSTER_LOG_ARCHIVE"] = str(self._folder / "archive")
        name = f"{deployment.name}-{number}.{container.user}"
        return Supervised(service, self._folder, port, env, name=name, command=container.command)

    async def _end(self, pod: list[Supervised], *, orderly: bool = True) -> None:
        for code, took_s in await asyncio.gather(*(process.stop() for process in pod)):
            assert code == 0 or not orderly, f"it ends with {code} after {took_s:.1f} s:\n{pod[0].tail()}"
        self.ended += pod

    def died(self) -> dict[str, list[int]]:
        """{process: how it ended before it was told to} of all that ever ran."""
        running = [process for pods in self._pods.values() for pod in pods for process in pod]
        return {each.name: each.ends for each in (*self.ended, *running) if each.ends}

    async def keep_read_model(self) -> None:
        """Have a snapshot of the read model, which a publisher keeps every 2,000 commits."""
        connection = await connect(self.url, name="tester")
        try:
            log = await open_log(JetStream(connection), CELL)
            folder = Folder(ReadModel())
            state = ReadModel().initial()
            for stored in await commits_of(self.url, CELL):
                folder.fold(state, stored)
            told: list[str] = []
            snapshots = JetStreamSnapshots(JetStream(connection), log.identity, warn=told.append)
            # One that is there already may be newer.
            await snapshots.save(make_snapshot(log.identity, "readmodel", "0", state), end=await log.end())
            assert not told, told
            assert await snapshots.newest("readmodel", "0") is not None
        finally:
            await connection.close()


class Arrivals:
    """A small RayJob every EVERY_S seconds; what became of each."""

    def __init__(self, simulated: SimCluster) -> None:
        self._simulated = simulated
        self.made: dict[str, float] = {}
        """{name: when it was created, ms since the epoch}"""

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        await create(self._simulated, api.QUOTA_TREES, quota_tree(_wide()))
        async with beside(self._run()):
            yield

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number in itertools.count():
            name = f"job-{number:05}"
            job = rayjob(name, cpu="100m", memory="100M", replicas=1, runtime="1s", ttl_s=0)
            await create(self._simulated, api.RAYJOBS, job)
            self.made[name] = time.time() * 1000
            due += EVERY_S
            await asyncio.sleep(max(0.0, due - loop.time()))


@contextlib.asynccontextmanager
async def resumed(url: str) -> AsyncIterator[dict[str, int]]:
    """{job: when the log had it that it was let go, ms since the epoch}; it grows with the log.

    The report of an actuator that was killed after its write is missing where the job has come and gone since.
    """
    times: dict[str, int] = {}
    connection = await connect(url, name="onlooker")
    try:
        log = await open_log(JetStream(connection), CELL)

        async def follow() -> None:
            async for batch in log.follow(0):
                for stored in batch:
                    for event in stored.commit.events:
                        if isinstance(event, EffectApplied | WorkloadStarted | WorkloadFinished):
                            times.setdefault(event.ref.name, stored.stored_at)

        async with beside(follow()):
            yield times
    finally:
        await connection.close()


def _wide() -> Any:
    most = {"cpu": 1_000_000, "memory": 1 << 50}
    return facts.node("root", most, most, children=(facts.node("video", {}, most, ("video",)),))
