"""What a kubelet does for a container, and nothing more: probes with their periods, back-off, SIGTERM before SIGKILL.

A container that ends is started again at once the first time, then after 10 s, 20 s, ... 300 s. The back-off is
forgotten after ten quiet minutes; `Container.forget` stands for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kit.controlplane.process import tied

FIRST_S, MOST_S = 10.0, 300.0
GRACE_S = 15.0
"""terminationGracePeriodSeconds of the shipped pods."""


@dataclass(frozen=True)
class Probe:
    """``ask`` answers whether it succeeds; the other fields are those of a probe of Kubernetes, in seconds."""

    ask: Callable[[], Awaitable[bool]]
    period_s: float = 10.0
    timeout_s: float = 1.0
    failures: int = 3


@dataclass(frozen=True)
class End:
    """When a container ended, by the event loop's clock, and how: exit code, a signal as a negative number."""

    at: float
    code: int


class Container:
    """One process, as long as its pod lives."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        startup: Probe | None = None,
        readiness: Probe | None = None,
        liveness: Probe | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self.name = name
        self.argv = [*argv]
        self.env = dict(env)
        self.log = log
        self.ready = False
        self.ready_at = 0.0
        self.ends: list[End] = []
        self.killed_by_probe = 0
        self._startup, self._readiness, self._liveness = startup, readiness, liveness
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._back_off_s = 0.0
        self._last_end = 0.0
        self._may_start = asyncio.Event()
        self._may_start.set()
        self._hurry = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=self.name)

    def guard(self) -> None:
        """Raises what keeps it from being kept."""
        if self._keeper is not None and self._keeper.done() and not self._keeper.cancelled():
            self._keeper.result()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._may_start.wait()
            await self._launch()
            probing = loop.create_task(self._probe())
            assert self._process is not None
            code = await self._process.wait()
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            self.ready = False
            self.ends.append(End(loop.time(), code))
            await self._back_off()

    async def _back_off(self) -> None:
        now = time.monotonic()
        if now - self._last_end > 2 * MOST_S:
            self._back_off_s = 0.0
        self._last_end = now
        wait, self._back_off_s = self._back_off_s, min(MOST_S, max(FIRST_S, 2 * self._back_off_s))
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._hurry.wait()

    def forget(self) -> None:
        """As after ten quiet minutes: the next end is the first; what waits is started."""
        self._back_off_s = 0.0
        self._hurry.set()

    async def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *tied(),
                *self.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": str(self.log.parent), **self.env},
                cwd=self.log.parent,
            )

    async def _probe(self) -> None:
        if self._startup is not None and not await self._starts(self._startup):
            await self._end()
            return
        async with asyncio.TaskGroup() as tasks:
            if self._readiness is not None:
                tasks.create_task(self._is_ready(self._readiness))
            else:
                self._is(ready=True)
            if self._liveness is not None:
                tasks.create_task(self._is_alive(self._liveness))

    async def _starts(self, probe: Probe) -> bool:
        for _ in range(probe.failures):
            if await _asked(probe):
                return True
            await asyncio.sleep(probe.period_s)
        return False

    async def _is_ready(self, probe: Probe) -> None:
        failed = 0
        while True:
            if await _asked(probe):
                failed = 0
                self._is(ready=True)
            else:
                failed += 1
                if failed >= probe.failures:
                    self._is(ready=False)
            await asyncio.sleep(probe.period_s)

    def _is(self, *, ready: bool) -> None:
        if ready and not self.ready:
            self.ready_at = time.monotonic()
        self.ready = ready

    async def _is_alive(self, probe: Probe) -> None:
        failed = 0
        while True:
            failed = 0 if await _asked(probe) else failed + 1
            if failed >= probe.failures:
                self.killed_by_probe += 1
                await self._end()
                return
            await asyncio.sleep(probe.period_s)

    async def _end(self) -> None:
        """SIGTERM, and SIGKILL after the time of grace."""
        process = self._process
        assert process is not None
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """To the process that runs now, if one does."""
        if self.alive and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    @contextlib.asynccontextmanager
    async def away(self, number: signal.Signals = signal.SIGKILL) -> AsyncIterator[None]:
        """Ended, and started again only after the block, as after its node was away."""
        self._may_start.clear()
        try:
            self.send(number)
            self.send(signal.SIGCONT)
            if self.alive and self._process is not None:
                try:
                    async with asyncio.timeout(self._grace_s):
                        await self._process.wait()
                except TimeoutError:
                    self.send(signal.SIGKILL)
                    await self._process.wait()
            yield
        finally:
            self.forget()
            self._may_start.set()

    async def stop(self) -> None:
        """Its pod is deleted."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self.send(signal.SIGCONT)
        if self.alive:
            await self._end()
            assert self._process is not None
            await self._process.wait()
        self.ready = False

    def tail(self, lines: int = 5) -> list[str]:
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-lines:]


async def _asked(probe: Probe) -> bool:
    try:
        async with asyncio.timeout(probe.timeout_s):
            return await probe.ask()
    except TimeoutError:
        return False
