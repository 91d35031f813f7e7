"""A cluster on which Muster was installed as docs/howto/install.md says, and what tests ask of it.

A real API server with real controllers; `kit.kubelet` runs the pods. The shell of the page finds the real kubectl,
openssl and muster; docker is a stand-in that notes what it was told, since no image is pulled here.
"""

import asyncio
import os
import re
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pytest
import yaml

from kit.chart import FORMS
from kit.cluster import Cluster
from kit.compose import REPOSITORY
from kit.container import runs_here
from kit.controlplane import ControlPlane, User
from kit.crds import FOLDER
from kit.doubles.asyncdriver import AsyncDriver
from kit.kubeclient import KubeClient
from kit.kubelet import KUBELET, Kubelet, Pod, Program
from kit.pages import Block, blocks, lines
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.connection import Connection, connect
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.events.envelope import Stored
from muster.fakecluster.controllers import Controller
from muster.kube import config
from muster.kube.sources import FromKubeconfig
from muster.kube.transport import KubeTransport
from muster.runtime.natsaccounts import API, inbox, secret_of
from muster_tools.installing import IMAGE, NATS_IMAGE

PAGE = REPOSITORY / "docs" / "howto" / "install.md"
UPGRADE = REPOSITORY / "docs" / "howto" / "upgrade.md"
NAMESPACE = "muster-system"
CONTEXT = "staging"
SMALL = {"install.yaml": "install-small.yaml", "muster nats keys |": "muster nats keys --layout all |"}
"""{what the page says: what it says for the small form}"""
HELM = os.environ.get("MUSTER_TEST_HELM", "")
"""The program, where the page is read as it stands there for helm (`make helm`)."""
BY_HELM = {
    f"kubectl {verb} -f deploy/{file}": f"{HELM} {instead}"
    for form, file in FORMS.items()
    for verb, instead in (
        ("apply", f"install muster deploy/chart -n muster-system --take-ownership --set form={form}"),
        ("delete", "uninstall muster -n muster-system --wait && kubectl delete namespace muster-system"),
    )
    if HELM
}
LIMIT_S = 120.0
STORY_COLUMNS = 400
"""Of one event in the story of a job."""


def as_it_is(command: Sequence[str]) -> Sequence[str]:
    return command


def next_version(command: Sequence[str]) -> Sequence[str]:
    """The same program of the next version (kit.nextversion)."""
    become = ["env", f"PYTHONPATH={REPOSITORY / 'tests'}", "python", "-m", "kit.nextversion"]
    return [*become, *(command if command[0] == "muster" else [command[2].removeprefix("muster_").replace("_", "-")])]


async def with_kuberay(plane: ControlPlane) -> None:
    """What a cluster has that never met Muster: KubeRay's definitions, disks for claims."""
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
        for name in ("ray.io_rayjobs", "ray.io_rayclusters"):
            await kube.create(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
        for index in range(4):
            spec = {"capacity": {"storage": "100Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
            disk = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{index}"}, "spec": spec}
            await kube.create(disk)


KUBERAY = User("system:serviceaccount:kuberay-operator:kuberay-operator", ("system:masters",))
"""The account of KubeRay's operator: the policies know by name who runs a kind."""
ACCOUNTS = (KUBERAY, KUBELET)


class Bare(Cluster):
    """A cluster that is thrown away whole: nothing is swept. KubeRay acts under its own account."""

    _operator: KubeTransport

    async def __aenter__(self) -> Self:
        self._operator = await config.connect(FromKubeconfig(str(self.plane.kubeconfig_for(KUBERAY))))
        self._stack.push_async_callback(self._operator.close)
        return await super().__aenter__()

    async def sweep(self) -> None:
        pass

    def driver(self, *operators: Controller) -> AsyncDriver:
        return AsyncDriver(self._operator, operators, lambda: time.time_ns() // 1_000_000)


class Installation:
    """`async with Installation(plane, folder)`: nodes, KubeRay and a shell; nothing of Muster yet."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.cluster = Bare(plane, pods=True)
        images: dict[str, Program] = {IMAGE: as_it_is, NATS_IMAGE: as_it_is, "muster:0.2.0": next_version}
        self.kubelet = Kubelet(plane, folder / "node", images=images)
        self.took_s = 0.0
        """From the first command of the page to the first admission."""
        self._room = folder / "room"
        self._connection: Connection | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._furnish()
        async with AsyncExitStack() as stack:  # Whatever fails on the way in or out, no process stays behind.
            await stack.enter_async_context(self.kubelet)
            await stack.enter_async_context(self.cluster)
            stack.push_async_callback(self._disconnect)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _furnish(self) -> None:
        """A folder that looks like the repository and may be written to; programs; a kubeconfig."""
        tools = self.folder / "tools"
        for folder in (self._room, tools):
            folder.mkdir()
        for path in REPOSITORY.iterdir():
            if path.name not in (".git", ".venv"):
                (self._room / path.name).symlink_to(path)
        (tools / "docker").write_text(f'#!/bin/sh\necho "$*" >> {self.folder}/docker\n')
        (tools / "docker").chmod(0o755)
        text = self.plane.kubeconfig.read_text()
        config = yaml.safe_load(text)
        config["contexts"][0]["name"] = config["current-context"] = CONTEXT
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(config))

    @property
    def environ(self) -> dict[str, str]:
        programs = f"{self.folder}/tools:{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {name: text for name, text in os.environ.items() if not name.startswith("MUSTER_")}
        return {
            **kept,
            "PATH": programs,
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "TMPDIR": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
        }

    def docker(self) -> list[str]:
        """What docker was told."""
        noted = self.folder / "docker"
        return noted.read_text().splitlines() if noted.exists() else []

    # --- the shell --------------------------------------------------------------------------------------------------

    async def shell(self, text: str, *codes: int) -> str:
        """What a command prints; AssertionError when it ends otherwise than with one of ``codes``."""
        process = await self._started(text)
        async with asyncio.timeout(4 * LIMIT_S):
            out, _ = await process.communicate()
        assert process.returncode in (codes or (0,)), f"{text}\nends with {process.returncode}:\n{out.decode()}"
        return out.decode()

    async def _started(self, text: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", text,
            cwd=self._room, env=self.environ, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def page(self, page: Path, heading: str = "", *, until_heading: str = "", **words: str) -> None:
        """Run the blocks of a page from one heading up to another; ``words``: what stands for its placeholders."""
        for block in section(page, heading, until_heading):
            for line in lines(block):
                for placeholder, word in words.items():
                    line = line.replace(placeholder, word)
                await self.line(line)

    async def line(self, line: str) -> None:
        for named, instead in BY_HELM.items():
            line = line.replace(named, instead)
        if line.startswith("muster up"):
            await self._watches(f"exec {line}")
        else:
            # The doctor has something to say of a cluster on which nothing is installed.
            await self.shell(line, *((0, 1) if line.startswith("muster doctor") else (0,)))

    async def _watches(self, line: str) -> None:
        """`muster up --context`: until it says that all of it is ready, then Ctrl-C."""
        process = await self._started(line)
        assert process.stdout is not None
        told: list[str] = []
        try:
            async with asyncio.timeout(LIMIT_S):
                while raw := await process.stdout.readline():
                    told.append(raw.decode())
                    if ", up in " in told[-1]:
                        process.send_signal(signal.SIGINT)
                code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        assert code == 0, f"{line} ends with {code}:\n{''.join(told)}"

    # --- what users see ---------------------------------------------------------------------------------------------

    async def install(self, *, small: bool = False) -> None:
        """The page, word for word, up to the first admission; ``small``: with the small form where it names both."""
        began = time.monotonic()
        for block in section(PAGE, "", "## Uninstall"):
            for line in lines(block):
                for named, instead in SMALL.items() if small else ():
                    line = line.replace(named, instead)
                await self.line(line)
        await until(self.admitted, LIMIT_S, 0.1, what="the first job to be let go")
        self.took_s = time.monotonic() - began

    async def admitted(self) -> list[str]:
        """The RayJobs of namespace video that were let go."""
        found = await self.cluster.kube.list_objects("ray.io/v1", "RayJob", "video")
        return [each["metadata"]["name"] for each in found if not each["spec"].get("suspend")]

    async def end(self, name: str) -> None:
        """A job of namespace video comes to its end now; an error of that has the story of the job."""
        try:
            await self.cluster.let_end(name)
            await self.cluster.complete(name)
        except AssertionError as err:
            err.add_note(await self.story(name))
            raise

    # --- what an operator sees --------------------------------------------------------------------------------------

    async def bus(self) -> JetStream:
        """A connection as user `cli`, whose key is in its Secret."""
        if self._connection is None:
            secrets = {name: await self.secret(name) for name in (secret_of("cli"), "muster-nats-tls")}
            seed, authority = self.folder / "cli.seed", self.folder / "ca.pem"
            seed.write_bytes(secrets[secret_of("cli")]["seed"])
            authority.write_bytes(secrets["muster-nats-tls"]["ca.crt"])
            context = ssl.create_default_context(cafile=authority)
            context.check_hostname = False  # No name of the cluster leads here.
            urls = [f"nats://{pod.ip}:4222" for pod in self.kubelet.of("nats-")]
            self._connection = await connect(
                urls, name="onlooker", nkey_seed=seed, inbox_prefix=inbox("cli"), api_prefix=API, tls=context
            )
        return JetStream(self._connection)

    async def secret(self, name: str) -> Mapping[str, bytes]:
        found = await self.cluster.kube.get("v1", "Secret", name, NAMESPACE)
        return {key: msgspec.json.decode(f'"{text}"'.encode(), type=bytes) for key, text in found["data"].items()}

    async def commits(self, after: int = 0) -> list[Stored]:
        """The log so far."""
        log = await open_log(await self.bus(), subjects.DEFAULT_CELL)
        found: list[Stored] = []
        async for batch in log.follow(after):
            if not batch:
                break
            found += batch
        return found

    async def story(self, name: str) -> str:
        """A job of namespace video: its status, the pods there, and each event of the log that names it."""
        job = await self.cluster.kube.find("ray.io/v1", "RayJob", name, "video")
        lines = [f"{name}: {'gone' if job is None else job.get('status')}", f"pods: {await self.cluster.pods()}"]
        for stored in await self.commits():
            texts = [msgspec.json.encode(event).decode() for event in stored.commit.events]
            lines += [
                f"{stored.seq} at {stored.commit.at} {stored.commit.stage}: {text[:STORY_COLUMNS]}"
                for text in texts
                if name in text
            ]
        return "\n".join(lines)

    async def nats_leader(self) -> Pod:
        """The server that leads the stream of the log."""
        js = await self.bus()
        stream = subjects.log_stream(subjects.DEFAULT_CELL, 1)
        info = msgspec.json.decode(await js.ask(f"STREAM.INFO.{stream}"))
        [pod] = self.kubelet.of(info["cluster"]["leader"])
        return pod

    async def refused(self) -> list[str]:
        """What a service wanted and did not get: of NATS, and of the API server."""
        found = []
        for pod in self.kubelet.pods.values():
            for name, container in pod.containers.items():
                said = re.findall(
                    r"^.*(?:[Vv]iolation|[Ff]orbidden|user \w+ of NATS).*$",
                    container.said(),
                    re.M,
                )
                found += [f"{pod.name}/{name}: {line[:300]}" for line in said]
        async with aiohttp.ClientSession() as session:
            for pod in self.kubelet.of("muster"):
                ports = [each["ports"][0]["containerPort"] for each in pod.spec["containers"] if each.get("ports")]
                for port in ports:
                    async with session.get(f"http://{pod.ip}:{port}/metrics") as answer:
                        text = await answer.text()
                    found += [f"{pod.name}: {line}" for line in text.splitlines() if 'code="403"' in line]
        return found


def section(page: Path, heading: str, until_heading: str) -> list[Block]:
    """The `sh cluster` blocks between two headings of a page; empty: its beginning, its end."""
    text = page.read_text()
    first = text[: text.index(f"\n{heading}\n")].count("\n") if heading else 0
    last = text[: text.index(f"\n{until_heading}\n")].count("\n") if until_heading else len(text)
    found = [each for each in blocks(page) if each.info == "sh cluster" and first < each.line <= last]
    assert found, f"{page} has no commands between {heading!r} and {until_heading!r}"
    return found


NEEDED = pytest.mark.skipif(
    shutil.which("kubectl") is None or not runs_here(),
    reason="kubectl is not on PATH, or `unshare --map-root-user --mount` is refused: no page was run",
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests have measured; a conftest.py takes it from here."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in getattr(report, "user_properties", ()):
            if name == "figure" and report.when == "call":
                terminalreporter.write_line(f"figure: {value}")


def figure(request: pytest.FixtureRequest, name: str, value: str) -> None:
    """Have a figure printed at the end of the run."""
    request.node.user_properties.append(("figure", f"{name}: {value}"))
