"""A process beside the gateway that looks ahead, so that nothing else waits while the queues are played forward.

It begins with a copy of the read model at the first question, and is sent every commit that is folded here: its answer
is of the state here when the question was asked, or of a newer one. Both speak in frames over its standard input and
output: eight bytes of length, then a pickled (method, arguments) or (whether it was answered, answer or exception).
Where it ends, the question under way fails, and the next one begins another. It is replaced as well where it reads too
slowly: more than so many unread bytes are not kept for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Protocol

from muster.core.cell.seat import Seat
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.events.envelope import Stored
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.serving.ahead import Ahead

HEAD = 8
MOST_UNREAD = 32 << 20
"""Bytes it has not read yet, beside the copy that it begins with, beyond which no commit is sent to it."""


class AwayError(Exception):
    """The process that looks ahead has ended."""


class LooksAhead(Protocol):
    """Answers the questions of :class:`Ahead`, by the name of the method."""

    def fold(self, batch: Sequence[Stored]) -> None:
        """These commits have been folded here."""

    async def call(self, method: str, *args: object) -> Any:
        """Raises what the method raises, and AwayError."""

    async def stop(self) -> None:
        """Forget the state. The next question begins with that of then."""


class Here:
    """In this process, for as long as it takes."""

    def __init__(self, state: Callable[[], ReadState]) -> None:
        self._ahead = Ahead(state)

    def fold(self, batch: Sequence[Stored]) -> None:
        pass

    async def call(self, method: str, *args: object) -> Any:
        return getattr(self._ahead, method)(*args)

    async def stop(self) -> None:
        pass


class Beside:
    """In a process of its own. ``state``: the read model here, as of now."""

    def __init__(self, state: Callable[[], ReadState]) -> None:
        self._state = state
        self._process: asyncio.subprocess.Process | None = None
        self._most = MOST_UNREAD
        self._behind = False
        """Whether commits are missing there: it answers the question under way, and no other."""
        self._turn = asyncio.Lock()

    def fold(self, batch: Sequence[Stored]) -> None:
        if self._process is None or self._behind or not batch:
            return
        assert self._process.stdin is not None
        self._behind = self._process.stdin.transport.get_write_buffer_size() > self._most
        if not self._behind:
            _send(self._process, "fold", tuple(batch))

    async def call(self, method: str, *args: object) -> Any:
        async with self._turn:  # It answers one after the other.
            if self._behind:
                await self.stop()
            process = self._process if self._process is not None else await self._begin()
            _send(process, method, *args)
            assert process.stdout is not None
            try:
                length = int.from_bytes(await process.stdout.readexactly(HEAD), "big")
                good, found = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301 - our own process.
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.stop()
                raise AwayError("the process that looks ahead has ended; ask again") from None
            except asyncio.CancelledError:
                await self.stop()  # What it was about to answer is not the answer to the next question.
                raise
        if not good:
            raise found
        return found

    async def stop(self) -> None:
        process, self._process, self._behind = self._process, None, False
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def _begin(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        # Nothing is folded between the copy and what is sent after it: both are of one turn of the loop.
        copy = encode_state(self._state())
        _send(process, "begin", copy)
        self._process, self._most = process, len(copy) + MOST_UNREAD
        return process


def _send(process: asyncio.subprocess.Process, method: str, *args: object) -> None:
    assert process.stdin is not None
    process.stdin.write(framed((method, args)))


def framed(value: object) -> bytes:
    body = pickle.dumps(value)
    return len(body).to_bytes(HEAD, "big") + body


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the input ends."""
    seat = Seat(ReadModel())
    ahead = Ahead(lambda: seat.state)
    while len(head := source.read(HEAD)) == HEAD:
        method, args = pickle.loads(source.read(int.from_bytes(head, "big")))  # noqa: S301 - of its parent.
        if method == "begin":
            seat = Seat(ReadModel(), decode_state(args[0], ReadState))
        elif method == "fold":
            for stored in args[0]:
                seat.fold(stored)
        else:
            try:
                found: tuple[bool, object] = True, getattr(ahead, method)(*args)
            except Exception as err:
                found = False, err
            sink.write(framed(found))
            sink.flush()


def main() -> None:
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Nothing else may write between frames.
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
