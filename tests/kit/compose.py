"""docker-compose.yml as tests see it: the commands, environments and health checks of its services, as processes.

What is tested here is what the containers run: a test may put other ports, addresses and paths of files in place of
the file's, and nothing else.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import yaml

from kit.controlplane.process import tied
from kit.waiting import until
from muster.bus.server import find_binary
from muster.runtime.probe import probe

REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / "docker-compose.yml"
KEYS = "nats-keys"
ANONYMOUS = {"MUSTER_NATS_NKEY_FILE": "", "MUSTER_NATS_INBOX_PREFIX": "_INBOX", "MUSTER_NATS_API_PREFIX": "$JS.API"}
"""For a NATS that knows no users; test_compose_processes runs the file as it is."""
HEALTHY_S = 60.0
OWN_GATEWAY = {"MUSTER_GATEWAY_HOST": "127.0.0.1", "MUSTER_GATEWAY_PORT": "0"}
"""Any free port: tests run side by side, and a container has its ports for itself."""
STOP_S = 5.0
GRACE_S = 15.0
"""stop_grace_period of the file, and terminationGracePeriodSeconds of the manifests."""


class Service(NamedTuple):
    """A service of the file."""

    argv: list[str]
    env: dict[str, str]
    health: str
    """The URL its health check asks; empty when it has none."""
    check: list[str]
    """The command of its health check, after CMD."""


def document() -> dict[str, Any]:
    """The file as it stands, its anchors resolved."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def services() -> dict[str, Service]:
    """{name: what its container runs}"""
    return {name: _service(entry) for name, entry in document()["services"].items()}


def _service(entry: Mapping[str, Any]) -> Service:
    env = {name: interpolated(str(value)) for name, value in entry.get("environment", {}).items()}
    check = [str(word) for word in entry.get("healthcheck", {}).get("test", [])][1:]
    urls = [word for word in check if word.startswith("http")]
    return Service([str(word) for word in entry["command"]], env, urls[0] if urls else "", check)


def interpolated(text: str, variables: Mapping[str, str] | None = None) -> str:
    """A value as compose reads it: ``${NAME}`` and ``${NAME:-default}``, nested too; ``$$`` is a dollar."""
    known = variables or {}
    pattern = re.compile(r"\$\{(\w+)(?::-([^${}]*))?\}")
    while (match := pattern.search(text)) is not None:
        value = known.get(match[1]) or match[2] or ""
        text = text[: match.start()] + value + text[match.end() :]
    return text.replace("$$", "$")


def at_port(url: str, port: int) -> str:
    """The same URL at another port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.hostname}:{port}"))


def runnable(argv: Sequence[str]) -> list[str]:
    """A command of the file with the programs of this environment."""
    programs = {"python": sys.executable, "muster": str(Path(sys.executable).with_name("muster"))}
    first = str(find_binary()) if argv[0] == "nats-server" else programs.get(argv[0], argv[0])
    return [first, *argv[1:]]


class Running:
    """A service of the file as a process. ``port``: where it serves its health instead; ``name``: of this replica;
    ``command``: what it runs instead, with the environment of the service.
    """

    def __init__(
        self,
        service: str,
        folder: Path,
        port: int,
        env: Mapping[str, str],
        extra: Sequence[str] = (),
        *,
        name: str = "",
        command: Sequence[str] = (),
    ) -> None:
        self.name = name or service
        self.port = port
        self.service = services()[service]
        self.argv = [*runnable(command or self.service.argv), *extra]
        self.log = folder / f"{self.name}.log"
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder), **self.service.env, **OWN_GATEWAY, **env}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *tied(),
                *self.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self.log.parent,
            )

    async def healthy(self) -> bool:
        """Whether it answers what its health check asks; AssertionError when it has ended."""
        process = self._process
        assert process is not None
        assert process.returncode is None, f"{self.name} ended with {process.returncode}:\n{self.tail()}"
        return (await asyncio.to_thread(probe, at_port(self.service.health, self.port)))[0]

    async def _checked(self) -> bool:
        """Whether the health check of the file finds it healthy; asked where an answer of yes is to be expected."""
        if not await self.healthy():
            return False
        url = at_port(self.service.health, self.port)
        check = [url if word == self.service.health else word for word in runnable(self.service.check)]
        if shutil.which(check[0]) is None or check[0] == "sh":
            return True  # The image has it, this machine need not: the same question was asked otherwise.
        asked = await asyncio.create_subprocess_exec(
            *check, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        return await asked.wait() == 0

    async def until_healthy(self) -> None:
        try:
            await until(self._checked, timeout_s=HEALTHY_S, every_s=0.2)
        except AssertionError as err:
            said = probe(at_port(self.service.health, self.port))[1]
            raise AssertionError(f"{self.name} does not become healthy: {said}\n{self.tail()}") from err

    async def finished(self) -> int:
        """The exit code, once it ends by itself."""
        assert self._process is not None
        async with asyncio.timeout(HEALTHY_S):
            return await self._process.wait()

    async def stop(self) -> tuple[int, float]:
        """Tell it to end; its exit code and how many seconds it took. Killed when it does not."""
        process = self._process
        assert process is not None
        began = time.monotonic()
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        assert process.returncode is not None
        return process.returncode, time.monotonic() - began

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
