"""Three nats-servers as production has them: deploy/nats/server.conf, the shipped accounts, TLS, probes, a disk each.

What differs from the files is what one machine forces on them: ports, folders, names of servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import aiohttp
import trustme

from kit.badday.plants import Plant
from kit.badday.supervisor import Container, Probe
from kit.compose import runnable
from kit.production import FILES
from kit.smalldisk import NC, SmallDisk, small_disk
from muster.bus.server import free_port

Object = dict[str, Any]

SERVERS = 3
DISK_MB = 384
ROOM = 48 << 20
"""Free bytes from which the probe starts a server again: less than in production, whose disks have gigabytes."""
SYSTEM = re.compile(r"^\s*system_account: SYS\s*$", re.M)


class Keys:
    """`muster nats keys --folder`, a certificate, and the probe; ``plant`` may change what is shipped."""

    def __init__(self, folder: Path, layout: str, plant: Plant | None = None) -> None:
        self.folder = folder
        self.server = folder / "server"
        argv = runnable(["muster", "nats", "keys", "--folder", str(folder), "--layout", layout])
        env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=env)
        self.probe = self.server / "alive.sh"
        self.probe.write_text((FILES / "alive.sh").read_text())
        if plant is not None:
            accounts = self.server / "accounts.conf"
            accounts.write_text(plant.accounts(accounts.read_text()))
            self.probe.write_text(plant.alive(self.probe.read_text()))
        authority = trustme.CA()
        made = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(str(self.server / "ca.crt"))
        made.private_key_pem.write_to_path(str(self.server / "tls.key"))
        made.cert_chain_pems[0].write_to_path(str(self.server / "tls.crt"))

    @property
    def ca_file(self) -> Path:
        return self.server / "ca.crt"

    def seed(self, user: str) -> Path:
        return self.folder / user / "seed"

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


class Server:
    """One of them: a pod of the StatefulSet."""

    def __init__(self, name: str, keys: Keys, disk: SmallDisk, spec: Object, route: int, routes: list[int]) -> None:
        self.name = name
        self.disk = disk
        self.port, self.monitor = free_port(), free_port()
        self.store = disk.folder / "jetstream"
        self._room = keys.server / name
        self._room.mkdir()
        self._config = keys.server / f"{name}.conf"
        self._script = keys.probe
        self._config.write_text(self._text(keys, route, routes))
        [container] = spec["containers"]
        probes = {kind: self._probe(container.get(f"{kind}Probe")) for kind in ("startup", "readiness", "liveness")}
        argv = runnable(container["command"])
        argv[argv.index("--config") + 1] = str(self._config)
        self.container = Container(
            name,
            [*argv, "-a", "127.0.0.1", "-p", str(self.port), "-m", str(self.monitor)],
            {"NATS_SERVER_NAME": name, "GOMAXPROCS": "2"},
            self._room / "log",
            grace_s=float(spec["terminationGracePeriodSeconds"]),
            startup=probes["startup"],
            readiness=probes["readiness"],
            liveness=probes["liveness"],
        )

    def _text(self, keys: Keys, route: int, routes: list[int]) -> str:
        text = (FILES / "server.conf").read_text().replace("/etc/nats/tls/", f"{keys.server}/")
        text = text.replace('"/data/jetstream"', f'"{self.store}"')
        # An address of the shipped configuration is a pod; here it is a port.
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{route}")
        for index, port in enumerate(routes):
            text = text.replace(f"nats-{index}.nats:6222", f"127.0.0.1:{port}")
        return text

    def _probe(self, said: Object | None) -> Probe | None:
        if said is None:
            return None
        times = {
            "period_s": float(said.get("periodSeconds", 10)),
            "timeout_s": float(said.get("timeoutSeconds", 1)),
            "failures": int(said.get("failureThreshold", 3)),
        }
        if "httpGet" in said:
            return Probe(lambda: answers(f"http://127.0.0.1:{self.monitor}{said['httpGet']['path']}"), **times)
        return Probe(self._alive, **times)

    async def _alive(self) -> bool:
        """`alive.sh` as the pod runs it; what its image has and this machine may not is put in its PATH."""
        programs = self._room / "bin"
        if not programs.exists():
            programs.mkdir()
            (programs / "nc").write_text(NC.format(sys.executable))
            (programs / "nc").chmod(0o755)
        env = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "NATS_MONITOR_PORT": str(self.monitor),
            "NATS_STORE": str(self.disk.folder),
            "NATS_ROOM": str(ROOM),
        }
        asked = await asyncio.create_subprocess_exec(
            "sh", str(self._script), env=env, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            return await asked.wait() == 0
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                asked.kill()
            raise

    async def copies(self) -> dict[str, Object]:
        """{stream: what this server says of its own copy}; empty while it does not answer."""
        url = f"http://127.0.0.1:{self.monitor}/jsz?accounts=true&streams=true&config=true"
        try:
            async with asyncio.timeout(3.0), aiohttp.ClientSession() as session, session.get(url) as answer:
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return {}
        streams = [each for account in said.get("account_details") or () for each in account.get("stream_detail") or ()]
        return {each["name"]: each for each in streams}

    def has(self, stream: str) -> bool:
        """Whether its store has a stream."""
        return any(self.store.glob(f"**/{stream}"))

    def blocks(self, stream: str) -> list[Path]:
        """The files that hold the messages of a stream, the oldest first."""
        return sorted(self.store.glob(f"**/{stream}/msgs/*.blk"), key=lambda block: int(block.stem))

    def copy(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.store, to)

    def put_back(self, copy: Path) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(copy, self.store)


async def answers(url: str) -> bool:
    """Whether a URL answers 200."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False


class Nats:
    """`async with Nats(...) as nats`: three servers that know each other."""

    def __init__(self, folder: Path, keys: Keys, spec: Object) -> None:
        self.keys = keys
        self._stack = contextlib.ExitStack()
        routes = [free_port() for _ in range(SERVERS)]
        self.servers: list[Server] = []
        for index in range(SERVERS):
            disk = self._stack.enter_context(small_disk(folder / f"disk-{index}", DISK_MB))
            self.servers.append(Server(f"nats-{index}", keys, disk, spec, routes[index], routes))

    async def __aenter__(self) -> Self:
        for server in self.servers:
            await server.container.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.container.stop() for server in self.servers))
        self._stack.close()

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{server.port}" for server in self.servers)

    async def leader(self, stream: str) -> Server | None:
        """The server that says it leads a stream."""
        for server in self.servers:
            said = (await server.copies()).get(stream)
            if said and (said.get("cluster") or {}).get("leader") == server.name:
                return server
        return None
