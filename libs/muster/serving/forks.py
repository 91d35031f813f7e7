"""The process that looks ahead for the gateway: keeps the read model, and forks for each question.

A fork answers one question and ends. So a slow question delays no other question, can be given up, and has a limit of
time and of memory. The process has one thread, so a fork has everything that the fork needs.

Frames on the standard input and output: eight bytes of length, then a pickled tuple. In: ``("begin", state)``,
``("fold", commits)``, ``("ask", number, limit_s, language, method, arguments)``, ``("drop", number)``. Out: ``(number,
verdict, value)``; a fork writes ``(verdict, value)``, parts of its answer first.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

from muster.core.cell.seats import Seat
from muster.languages import catalogue
from muster.model.language import speaking
from muster.runtime.logkeeping.snapshotting import decode_state
from muster.serving.ahead import Ahead
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

HEAD = 8
MOST_MEMORY = 512 << 20
"""Bytes that a question may take besides the state."""
CHUNK = 1 << 20
LATER = 10
"""The niceness of a fork: where all processors are busy, the gateway and the fold go first."""

Verdict = Literal["answer", "part", "error", "late", "ended"]
"""``part``: time ran out after a part of the answer; ``late``: before any; ``ended``: the fork is gone, and silent."""


def framed(value: object) -> bytes:
    body = pickle.dumps(value)
    return len(body).to_bytes(HEAD, "big") + body


def unframed(text: bytearray) -> list[Any]:
    """Take the whole frames off the front of a text."""
    messages, at = [], 0
    while len(text) - at >= HEAD:
        end = at + HEAD + int.from_bytes(text[at : at + HEAD], "big")
        if len(text) < end:
            break
        messages.append(pickle.loads(bytes(text[at + HEAD : end])))  # noqa: S301 - of the parent, or of our own fork.
        at = end
    del text[:at]
    return messages


class Fork:
    """One open question in a process of its own."""

    def __init__(self, number: int, limit_s: float, answer: Callable[[BinaryIO], None]) -> None:
        self.number = number
        self.until = time.monotonic() + limit_s
        self.source, sink = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            with os.fdopen(sink, "wb") as stream, contextlib.suppress(BaseException):
                answer(stream)
            os._exit(0)
        os.close(sink)
        self._text = bytearray()

    def read(self) -> bool:
        """Read the output of the fork; returns whether the fork goes on."""
        chunk = os.read(self.source, CHUNK)
        self._text += chunk
        return bool(chunk)

    def said(self) -> tuple[Verdict, Any]:
        """The last output of the fork: an answer, a part of an answer, or an error; else that the fork ended."""
        messages = unframed(self._text)
        return messages[-1] if messages else ("ended", None)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.source)


class Forker:
    """Folds, and forks for each question. ``source``: the file descriptor of the incoming frames."""

    def __init__(self, source: int, sink: BinaryIO, *, live: bool) -> None:
        self._source = source
        self._sink = sink
        self._live = live
        self._seat = Seat(ReadModel())
        self._text = bytearray()
        self._forks: dict[int, Fork] = {}
        """By the descriptor of the fork's output."""
        self._ready = selectors.DefaultSelector()
        self._ready.register(source, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the input ends."""
        while True:
            first = min((fork.until for fork in self._forks.values()), default=None)
            for key, _ in self._ready.select(None if first is None else max(0.0, first - time.monotonic())):
                fork = self._forks.get(key.fd)
                if fork is not None and not fork.read():
                    self._settle(fork, *fork.said())
                if key.fd == self._source and not self._hear():
                    return
            for fork in [running for running in self._forks.values() if running.until <= time.monotonic()]:
                verdict, value = fork.said()
                self._settle(fork, "late" if verdict == "ended" else verdict, value)

    def _hear(self) -> bool:
        """Read the incoming frames; False at the end of the input."""
        chunk = os.read(self._source, CHUNK)
        self._text += chunk
        for frame in unframed(self._text):
            self._do(*frame)
        return bool(chunk)

    def _do(self, verb: str, *args: Any) -> None:
        if verb == "begin":
            self._seat = Seat(ReadModel(), decode_state(args[0], ReadState))
            gc.freeze()  # A collection in a fork would copy every page of the state.
        elif verb == "fold":
            for stored in args[0]:
                self._seat.fold(stored)
        elif verb == "drop":
            for fork in [running for running in self._forks.values() if running.number == args[0]]:
                self._settle(fork, "ended", None)
        else:
            number, limit_s, language, method, asked = args
            state = self._seat.state
            catalogue(language)  # Read here, so that no fork reads the file again.
            fork = Fork(number, limit_s, lambda to: answer(to, state, language, method, asked, live=self._live))
            self._forks[fork.source] = fork
            self._ready.register(fork.source, selectors.EVENT_READ)

    def _settle(self, fork: Fork, verdict: Verdict, value: object) -> None:
        self._ready.unregister(fork.source)
        del self._forks[fork.source]
        fork.end()
        self._sink.write(framed((fork.number, verdict, value)))
        self._sink.flush()


def answer(sink: BinaryIO, state: ReadState, language: str, method: str, args: Sequence[object], *, live: bool) -> None:
    """In a fork: say parts of the answer, and the answer or the error."""
    os.nice(LATER)
    _bound()

    def say(verdict: Verdict, value: object) -> None:
        sink.write(framed((verdict, value)))
        sink.flush()

    try:
        with speaking(catalogue(language)):
            say("answer", getattr(Ahead(lambda: state, live=live, part=lambda view: say("part", view)), method)(*args))
    except MemoryError:
        say("late", None)
    except Exception as err:
        say("error", err)


def _bound() -> None:
    """Limit the memory of this process to its size now and MOST_MEMORY, where the system tells the size."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        most = int(pages.read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Nothing else may write between frames.
    Forker(sys.stdin.fileno(), sink, live="past" not in sys.argv).serve()


if __name__ == "__main__":
    main()
