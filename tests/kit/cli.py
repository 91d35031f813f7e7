"""The ``muster`` command as a user runs it: in a process of its own, with a runtime directory and a TMPDIR of its own.

Nothing here sleeps: a test waits for a line of output, or for the end of a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

LIMIT_S = 40.0
"""For one command, and for one awaited line; the machine may be busy."""


class Result(Struct):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)

    def ok(self) -> Result:
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


class Cli:
    """Runs commands. ``folder``: private to one test or one fixture; ``program``: what Python runs as the command."""

    def __init__(self, folder: Path, program: Sequence[str] = ("-m", "muster_cli")) -> None:
        self._program = program
        self.runtime = folder / "runtime"
        self.tmp = folder / "tmp"
        for path in (self.runtime, self.tmp):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> list[str]:
        """What lies in the directories that a command should leave as they were."""
        return sorted(str(path.name) for folder in (self.runtime, self.tmp) for path in folder.iterdir())

    def environ(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        kept.pop("KUBECONFIG", None)
        fixed = {"XDG_RUNTIME_DIR": str(self.runtime), "TMPDIR": str(self.tmp), "PYTHONIOENCODING": "utf-8"}
        return kept | fixed | more

    async def run(self, *args: str, stdin: str = "", **environ: str) -> Result:
        """Run a command to its end."""
        process = await self._start(args, environ)
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Result(process.returncode, out.decode(), err.decode())

    async def _start(self, args: tuple[str, ...], environ: dict[str, str]) -> asyncio.subprocess.Process:
        short = args[:1] == ("up",) and not {"--story", "--context", "--kubeconfig", "--help"} & {*args}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *self._program,
            *args,
            *(("--story", "quota") if short else ()),  # The story that ends: two jobs, one after the other.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ(**environ),
            limit=1 << 22,
        )

    @asynccontextmanager
    async def start(self, *args: str, **environ: str) -> AsyncIterator[Running]:
        """A command that goes on until it is stopped; killed at the end if it still runs."""
        running = Running(await self._start(args, environ))
        try:
            yield running
        finally:
            await running.end()


class Running:
    """A command that runs. Its output is read as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._news = asyncio.Condition()
        self._readers = [
            asyncio.ensure_future(self._read(process.stdout, self.lines)),
            asyncio.ensure_future(self._read(process.stderr, self.errors)),
        ]

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[psutil.Process]:
        """The processes it has started."""
        return psutil.Process(self.pid).children(recursive=True)

    async def _read(self, stream: asyncio.StreamReader | None, into: list[str]) -> None:
        assert stream is not None
        async for line in stream:
            async with self._news:
                into.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def line(self, wanted: str | Callable[[str], bool], *, errors: bool = False) -> str:
        """The first line, present or to come, that contains a text or that a function wants."""
        matches = wanted if callable(wanted) else lambda line: wanted in line
        lines = self.errors if errors else self.lines

        def found() -> str | None:
            return next((line for line in lines if matches(line)), None)

        try:
            async with asyncio.timeout(LIMIT_S), self._news:
                await self._news.wait_for(lambda: found() is not None or self._readers[0].done())
        except TimeoutError:
            raise AssertionError(f"no line {wanted!r} in time; said:\n{self.said()}") from None
        line = found()
        assert line is not None, f"it ended without a line {wanted!r}; said:\n{self.said()}"
        return line

    def said(self) -> str:
        return "\n".join([*self.lines, "--- stderr", *self.errors])

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> Result:
        """Send a signal and wait for the end."""
        self.process.send_signal(how)
        return await self.wait()

    async def wait(self) -> Result:
        """Wait for its end."""
        async with asyncio.timeout(LIMIT_S):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return Result(code, "\n".join(self.lines), "\n".join(self.errors))

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def gone(processes: list[psutil.Process]) -> None:
    """Wait until processes have ended; fails when one does not."""
    _, alive = psutil.wait_procs(processes, timeout=LIMIT_S)
    assert not alive, f"still alive: {alive}"
