"""A real Ray head, its drivers and its raylets, on loopback."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from kit.controlplane.process import free_port
from kit.realray.network import interfaces
from kit.realray.processes import Process
from kit.realray.venv import RayMissingError, installed
from kit.waiting import until
from muster.bus.server import is_free
from muster.ray.errors import DemandError
from muster.ray.gcs import GcsClient

DRIVER = Path(__file__).with_name("driver.py")
HOST = "127.0.0.1"
START_LIMIT_S = 180.0
STORE_BYTES = 80 * 2**20
"""Of one node's object store: the least that Ray takes, about."""

#: Fewer processes and no words to the outside; nothing that a decision depends on.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    "RAY_COLOR_PREFIX": "0",
    "PYTHONWARNINGS": "ignore",
}


@dataclass
class RayHead:
    """One head. `start` it, `do` things with a driver of its own, `join` raylets, `stop` it.

    ``folder``: for logs and Ray's files; sockets are in there, so its path has to be short. ``v2``: which autoscaler it
    expects. ``token``: it wants one. ``prelude``: what every driver does first.
    ``pod``: the name that it reports as its instance.
    """

    folder: Path
    v2: bool = True
    token: str = ""
    pod: str = "head-pod"
    dashboard: bool = True
    cpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    prelude: str = ""
    port: int = 6379
    http_port: int = 8265
    client: GcsClient = field(init=False)
    _head: Process | None = field(default=None, init=False)
    _driver: Process | None = field(default=None, init=False)
    _raylets: dict[str, Process] = field(default_factory=dict, init=False)
    _joined: int = field(default=0, init=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    def env(self, **more: str) -> dict[str, str]:
        """Environment of everything that belongs to this cluster."""
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token} if self.token else {"RAY_AUTH_MODE": "disabled"}
        return {
            "PATH": f"{installed()}{os.pathsep}{os.defpath}",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "RAY_ADDRESS": self.address,
            "RAY_enable_autoscaler_v2": "1" if self.v2 else "0",
            **QUIET,
            **mode,
            **self.environment,
            **more,
        }

    async def start(self) -> None:
        """Start the head and return when it answers. Raises AssertionError with its log."""
        if interfaces() != ["lo"]:
            raise RayMissingError(f"a real Ray runs where there is loopback only, not {interfaces()}: `make test-ray`")
        self.folder.mkdir(parents=True, exist_ok=True)
        for port in (self.port, self.http_port):
            await until(lambda port=port: is_free(port), what=f"port {port} to be free")
        command = ["ray", "start", "--head", "--block", "--no-monitor", "--disable-usage-stats"]
        command += [f"--port={self.port}", f"--num-cpus={self.cpus}", f"--temp-dir={self.folder / 'r'}"]
        command += [f"--include-dashboard={self.dashboard}", f"--dashboard-port={self.http_port}"]
        command += [f"--object-store-memory={STORE_BYTES}", "--include-log-monitor=False", *_ports()]
        names = {"RAY_CLOUD_INSTANCE_ID": self.pod, "RAY_NODE_TYPE_NAME": "headgroup"}
        if self._head is not None:  # Another one, after a crash.
            await self.client.close()
        self._head = Process(command, self.folder / "head.log", self.env(**names))
        self._head.start()
        self.client = GcsClient(self.address, token=self.token)
        try:
            await until(self._answers, START_LIMIT_S, every_s=0.1, what="the Ray head to answer")
        except AssertionError as err:
            raise AssertionError(f"{err}; {self._head.tail()}") from err

    async def stop(self) -> None:
        """End everything of this cluster."""
        processes = [self._driver, *self._raylets.values(), self._head]
        for process in processes[:-1]:
            if process is not None:
                await process.end(within_s=0)
        if self._head is not None:
            await self._head.end(within_s=0)
            await self.client.close()
        self._raylets.clear()
        self._head = self._driver = None

    async def do(self, code: str, *, within_s: float = 60.0) -> Any:
        """Run Python in this cluster's driver; what it leaves in `answer`. Raises AssertionError with its error."""
        if self._driver is None or not self._driver.running:
            self._driver = Process(["python", str(DRIVER)], self.folder / "driver.log", self.env(), pipes=True)
            self._driver.start()
            await self._line(self._driver, within_s)
            if self.prelude:
                await self.do(self.prelude)
        assert self._driver.process is not None and self._driver.process.stdin is not None
        self._driver.process.stdin.write(json.dumps(code).encode() + b"\n")
        self._driver.process.stdin.flush()
        said = await self._line(self._driver, within_s)
        assert "error" not in said, said["error"]
        return said["answer"]

    async def end_driver(self) -> None:
        """The driver is gone, and with it all it held but detached actors and placement groups."""
        if self._driver is not None:
            await self._driver.end()
            self._driver = None

    async def run(self, *command: str, within_s: float = 90.0) -> str:
        """Run a command of Ray, or a script by `python`, to its end; its output. Raises AssertionError with it."""

        def wait() -> subprocess.CompletedProcess[str]:
            path = str(installed() / command[0])
            return subprocess.run(
                [path, *command[1:]], env=self.env(), capture_output=True, text=True, timeout=within_s, check=False
            )

        done = await asyncio.to_thread(wait)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    async def join(
        self, pod: str, *, group: str = "small", cpus: int = 1, gpus: int = 0, labels: str = "", ip: str = HOST
    ) -> None:
        """Start a raylet that reports as this pod of this group. It joins some seconds later.

        ``labels``: as ``market=spot``. ``ip``: any of 127.0.0.0/8; the first version of the autoscaler knows nodes by
        their addresses.
        """
        command = ["ray", "start", "--block", f"--address={self.address}", f"--num-cpus={cpus}"]
        command += [f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats", "--include-log-monitor=False"]
        command += [f"--node-ip-address={ip}", f"--num-gpus={gpus}", *([f"--labels={labels}"] if labels else [])]
        # In one folder those that start at once choose the same sockets: all but one fail, and say so after 30 s.
        self._joined += 1
        command += [f"--temp-dir={self.folder / f'r{self._joined}'}"]
        names = {"RAY_CLOUD_INSTANCE_ID": pod, "RAY_NODE_TYPE_NAME": group}
        raylet = Process([*command, *_ports()], self.folder / f"{pod}.log", self.env(**names))
        raylet.start()
        self._raylets[pod] = raylet

    @property
    def running(self) -> bool:
        return self._head is not None and self._head.running

    async def crash(self) -> None:
        """Kill the head and its driver; its raylets end, as they do when they have lost it, and can be started again.

        Ray starts no other head where raylets of the old one are still there: on this one machine they are in its way.
        """
        for process in (self._driver, self._head, *self._raylets.values()):
            if process is not None:
                await process.end(signal.SIGKILL, within_s=1)
        self._driver = None

    def restart_failed(self) -> None:
        """Start raylets that ended again: Ray gives up after 30 s, which a busy machine may need."""
        for raylet in self._raylets.values():
            if not raylet.running:
                raylet.start()

    def spilled(self) -> list[Path]:
        """Objects that nodes keep on disk."""
        found = self.folder.glob("r*/session_2*/ray_spilled_objects_*/*")
        return [path for path in found if path.is_file()]

    async def leave(self, pod: str, *, within_s: float = 0) -> None:
        """End the raylet of a pod; what is left after ``within_s`` is killed."""
        raylet = self._raylets.pop(pod, None)
        if raylet is not None:
            await raylet.end(within_s=within_s)

    def log(self, pod: str) -> str:
        """The end of what the raylet of a pod wrote."""
        return self._raylets[pod].tail() if pod in self._raylets else ""

    async def _answers(self) -> bool:
        assert self._head is not None
        assert self._head.running, f"the head ended: {self._head.tail()}"
        try:
            reading = await self.client.read()
        except DemandError:
            return False
        if not any(node.head for node in reading.nodes):
            return False
        if not self.dashboard:
            return True
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"{self.url}/api/v0/nodes?limit=1") as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    @staticmethod
    async def _line(driver: Process, within_s: float) -> dict[str, Any]:
        assert driver.process is not None and driver.process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(driver.process.stdout.readline), within_s)
        assert line, f"the driver ended: {driver.tail()}"
        return dict(json.loads(line))


def _ports() -> list[str]:
    """Ports of one node that are the same for every node unless they are said: there are several here."""
    names = (
        "metrics-export-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "runtime-env-agent-port",
    )
    return [f"--{name}={free_port()}" for name in names]
