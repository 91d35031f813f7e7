"""Processes inside one event loop that can be killed at any of their await points, and never run again.

``kill -9`` for tests under virtual time: a killed process's coroutines are not cancelled (no ``finally`` runs, no
lock is given back), they are simply never resumed. Everything a process starts belongs to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

_current: ContextVar[FrozenProcess | None] = ContextVar("process", default=None)


class FrozenProcess:
    """One process.

    ``kill_at``: the await point at which it dies, counted from 1; 0 for never. ``pause_at``: the one at which it is
    stopped for ``pause_s`` of the loop's time, as by SIGSTOP, and then goes on as if nothing had happened.
    """

    def __init__(self, name: str, *, kill_at: int = 0, pause_at: int = 0, pause_s: float = 0.0) -> None:
        self.name = name
        self.steps = 0
        self.kill_at = kill_at
        self.pause_at = pause_at
        self.pause_s = pause_s
        self.paused_until = 0.0
        self.dead = False
        self.task: asyncio.Task[Any] | None = None
        self._guards: list[_Guard] = []

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        """Run ``main`` and everything it starts as this process."""
        token = _current.set(self)
        try:
            self.task = asyncio.get_running_loop().create_task(main)
        finally:
            _current.reset(token)
        return self.task

    def kill(self) -> None:
        self.dead = True

    def bury(self) -> None:
        """Free what a dead process still holds, at the end of a test: its coroutines are closed, newest first."""
        for guard in reversed(self._guards):
            guard.bury()
        self._guards.clear()


class _Guard(Coroutine[Any, Any, Any]):
    """A coroutine that belongs to a process."""

    def __init__(self, inner: Coroutine[Any, Any, Any], process: FrozenProcess) -> None:
        self._inner = inner
        self._process = process
        self._held: Callable[[], Any] | None = None
        """What to do when the process is no longer paused."""
        process._guards.append(self)

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        self._held = None  # as in any task: a cancellation before the step takes the place of what it waited for
        return self._step(lambda: self._inner.throw(*error))

    def close(self) -> None:
        if not self._process.dead:
            self._inner.close()

    def bury(self) -> None:
        # A group holds the GeneratorExit of the closing beside what a task had failed with before it.
        with contextlib.suppress(Exception, BaseExceptionGroup):
            self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("a guard is run by its task only")

    def _step(self, resume: Callable[[], Any]) -> Any:
        process, loop = self._process, asyncio.get_running_loop()
        if not process.dead:
            process.steps += 1
            process.dead = process.steps == process.kill_at
            if process.steps == process.pause_at:
                process.paused_until = loop.time() + process.pause_s
        if process.dead:
            return _blocking(loop.create_future())
        if process.paused_until > loop.time():
            self._held = self._held or resume
            later = loop.create_future()
            loop.call_at(process.paused_until, lambda: later.done() or later.set_result(None))
            return _blocking(later)
        held, self._held = self._held, None
        return (held or resume)()


def _blocking(future: asyncio.Future[None]) -> asyncio.Future[None]:
    """Mark a future the way ``await`` does before it hands it to the task."""
    future._asyncio_future_blocking = True  # type: ignore[attr-defined]
    return future


def task_factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Install with ``loop.set_task_factory``: tasks belong to the process that starts them."""
    context = options.get("context")
    process = context.get(_current) if context is not None else _current.get()
    return asyncio.Task(_Guard(coro, process) if process is not None else coro, loop=loop, **options)
