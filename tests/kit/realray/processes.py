"""Processes of a real Ray: started in a group of their own, ended with it, with their log in a file."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from kit.controlplane.process import tied
from kit.realray.venv import installed
from kit.waiting import until

END_LIMIT_S = 10.0


class Process:
    """A command of Ray, with all the processes it starts.

    ``command``: its first word is a command of Ray's environment, or a path. ``log``: where its output goes.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], *, pipes: bool = False
    ) -> None:
        self.log = log
        self._command = command
        self._environment = environment
        self._pipes = pipes
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        name, *rest = self._command
        path = str(installed() / name)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*tied(), path, *rest],
                stdin=subprocess.PIPE if self._pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._pipes else log,
                stderr=log,
                env=dict(self._environment),
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def end(self, number: signal.Signals = signal.SIGTERM, *, within_s: float = END_LIMIT_S) -> None:
        """Send a signal to the command; what is left of it and of its children after ``within_s`` is killed."""
        process, self.process = self.process, None
        if process is None:
            return
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(AssertionError):
            await until(lambda: process.poll() is not None, within_s, what="the process to end")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in children:  # Ray gives most of them sessions of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        await asyncio.to_thread(process.wait)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def tail(self, lines: int = 30) -> str:
        """Last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
