"""The gateway's side of the process that looks ahead (muster.serving.forks): sends state and questions, and waits.

The process begins with a copy of the read model at the first question, and receives every commit folded here. So an
answer is about the state here at the time of the question, or about a newer state. When the process ends, the open
questions fail, and the next question begins another process. A process that reads too slowly is replaced as well: the
unread bytes are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol

from muster import languages
from muster.events.envelope import Stored
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.serving import forks
from muster.serving.ahead import Ahead
from muster.serving.forks import HEAD, Verdict, framed
from muster.told.readmodel.readstate import ReadState

MOST_UNREAD = 32 << 20
"""Unread bytes, besides the initial copy, beyond which the process is sent no commit."""
COMMAND = (sys.executable, "-m", forks.__name__)
AT_ONCE = 2
"""Questions that are answered at once; other questions wait for their turn."""


class AwayError(Exception):
    """The process that looks ahead has ended."""


class LateError(Exception):
    """The question took longer than its limit, and had no part of an answer by then."""


class LooksAhead(Protocol):
    """Answers the questions of :class:`Ahead`, by the name of the method."""

    def fold(self, batch: Sequence[Stored]) -> None:
        """These commits have been folded here."""

    async def call(self, method: str, *args: object, limit_s: float) -> Any:
        """The answer, or the part that was known after ``limit_s``.

        Raises the errors of the method, LateError, and AwayError.
        """

    async def stop(self) -> None:
        """Forget the state. The next question begins with the state of its time."""


class Here:
    """Looks ahead in this process, for as long as the answer takes."""

    def __init__(self, state: Callable[[], ReadState]) -> None:
        self._ahead = Ahead(state)

    def fold(self, batch: Sequence[Stored]) -> None:
        pass

    async def call(self, method: str, *args: object, limit_s: float) -> Any:
        return getattr(self._ahead, method)(*args)

    async def stop(self) -> None:
        pass


class Beside:
    """Looks ahead in a separate process. ``state``: returns the present read model of this process."""

    def __init__(self, state: Callable[[], ReadState], *, live: bool = True) -> None:
        """``live``: the state is of now, and not of a moment of the past."""
        self._state = state
        self._live = live
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._most = MOST_UNREAD
        self._behind = False
        """Whether the process lacks commits: it answers the open questions, and no new ones."""
        self._turn = asyncio.Lock()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[tuple[Verdict, Any]]] = {}

    def fold(self, batch: Sequence[Stored]) -> None:
        if self._process is None or self._behind or not batch:
            return
        assert self._process.stdin is not None
        self._behind = self._process.stdin.transport.get_write_buffer_size() > self._most
        if not self._behind:
            _send(self._process, "fold", tuple(batch))

    async def call(self, method: str, *args: object, limit_s: float) -> Any:
        async with self._places:
            async with self._turn:
                if self._behind and self._asked:
                    await asyncio.wait({*self._asked.values()})
                if self._behind:
                    await self.stop()
                process = self._process if self._process is not None else await self._begin()
            number = next(self._numbers)
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            _send(process, "ask", number, limit_s, languages.spoken(), method, args)
            try:
                verdict, value = await answer
            except asyncio.CancelledError:
                if self._process is process:
                    _send(process, "drop", number)
                raise
            finally:
                self._asked.pop(number, None)
        if verdict == "error":
            raise value
        if verdict == "late":
            raise LateError(f"no answer within {limit_s:g} s: the question looks at too much; ask for less of it")
        if verdict == "ended":
            raise AwayError("the process that looks ahead has ended; ask again")
        return value

    async def stop(self) -> None:
        process, self._process, self._behind = self._process, None, False
        reading, self._reading = self._reading, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # The process leads a session: the forks end with the process.
        await process.wait()
        if reading is not None:
            await asyncio.wait({reading})

    async def _begin(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *([] if self._live else ["past"]),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        # Nothing is folded between the copy and what is sent after it: both are of one turn of the loop.
        copy = encode_state(self._state())
        _send(process, "begin", copy)
        self._process, self._most = process, len(copy) + MOST_UNREAD
        self._reading = asyncio.ensure_future(self._read(process))
        return process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Hand each answer to its question; at the end of the process all open questions end."""
        assert process.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = int.from_bytes(await process.stdout.readexactly(HEAD), "big")
                number, verdict, value = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301 - our own.
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result((verdict, value))
        if self._process is process:
            self._process, self._reading, self._behind = None, None, False
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(("ended", None))


def _send(process: asyncio.subprocess.Process, *frame: object) -> None:
    assert process.stdin is not None
    process.stdin.write(framed(frame))
