"""One server process of the control plane: start, readiness, last words, end.

Used by `ControlPlane` only. Processes are plain `subprocess` children that are polled, not asyncio
subprocesses: those belong to one event loop, while a control plane started in a session's loop is
stopped and restarted from the loops of single tests.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from muster.bus import server
from muster.bus.errors import BusError

POLL_SECONDS = 0.05
COLLECT = {"GOGC": "200", "GOMEMLIMIT": "1GiB"}
"""Of programs in Go: their memory lasts for a test, and a tenth of their time went into collecting it."""
LAUNCH = Path(__file__).with_name("launch.py")


def tied() -> list[str]:
    """What to write before a command that is to end with this process, however this process ends.

    After `unshare`, not before it: a new user namespace forgets what is set here.
    """
    return [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid())]


class ControlPlaneError(RuntimeError):
    """A server did not start, did not become ready, or died; the message ends with its log."""


@dataclass
class Component:
    """A server: how to start it and how to see that it is ready."""

    name: str
    #: Executable and arguments.
    command: Sequence[str]
    #: URL that answers 200 when the server is ready.
    ready_url: str
    #: Standard output and error of every start, appended.
    log: Path
    #: Of the process, beside what every server has.
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def running(self) -> bool:
        """Whether the process exists right now."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process. Raises ControlPlaneError when it runs already.

        The thread that calls this must outlive it: Linux kills the process when that thread ends.
        """
        if self.running:
            raise ControlPlaneError(f"cannot start {self.name}: it runs already; stop it first")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*tied(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                # Nothing of the developer's own clusters or proxies leaks in.
                env={"PATH": os.defpath, "HOME": str(self.log.parent), **COLLECT, **self.environment},
                # Ctrl-C in the terminal is for us; we stop the servers in order.
                start_new_session=True,
            )

    async def wait_ready(self, timeout_s: float) -> None:
        """Return once the server answers 200.

        Raises ControlPlaneError when it exits first or `timeout_s` seconds pass.
        """
        deadline = time.monotonic() + timeout_s
        answer = "no answer"
        limit = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while time.monotonic() < deadline:
                if self.process is None or self.process.poll() is not None:
                    code = None if self.process is None else self.process.returncode
                    raise ControlPlaneError(self._failure(f"exited with code {code}", answer))
                try:
                    async with session.get(self.ready_url, ssl=False) as response:
                        if response.status == 200:
                            return
                        answer = f"{response.status} {(await response.text())[-500:]}"
                except (aiohttp.ClientError, TimeoutError) as err:
                    answer = f"{type(err).__name__}: {err}"
                await asyncio.sleep(POLL_SECONDS)
        raise ControlPlaneError(self._failure(f"was not ready after {timeout_s:g} s", answer))

    async def kill(self) -> None:
        """End the process with SIGKILL and wait until it is gone. Nothing to do when it is.

        SIGTERM is no use here: the API server drains for a minute and keeps its port meanwhile.
        """
        if self.process is None:
            return
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.process = None

    def tail(self, lines: int = 30) -> str:
        """Last lines of the log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _failure(self, what: str, answer: str) -> str:
        return (
            f"cannot bring up {self.name}: it {what}; {self.ready_url} gave: {answer}; "
            f"the end of {self.log}:\n{self.tail()}"
        )


def free_port() -> int:
    """A loopback port nobody listens on, and that nobody in this session was given before.

    Chosen below the ports that the kernel gives to outgoing connections: while the API server is
    down, no client can get its port, and no reconnecting client can connect to itself.
    """
    try:
        return server.free_port()
    except BusError as err:
        raise ControlPlaneError(f"{err}; see what listens there and stop it") from err
