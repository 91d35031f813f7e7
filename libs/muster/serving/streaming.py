"""Server-sent events: happenings within the rights of the viewer, resumable by position. Pure but for the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.ports import Clock
from muster.serving import shapes, views
from muster.serving.access import Viewed
from muster.serving.answering import BadRequestError, Questions
from muster.serving.moments import OutsideError
from muster.serving.scope import Scope

AT_MOST_EVERY_S = 0.2
EACH_S = 0.001
"""A round of messages is followed by a rest, of so long for each reader: a message takes a tenth of it."""
AT_ONCE = 20
"""Messages that are handed out in one turn of the loop: less than a millisecond."""
SILENT_S = 15.0
"""So often a comment is sent, and the rights of the viewer are looked at again."""
MOST_EVENTS = 100


class News(Struct, frozen=True):
    """One message: the position, and the happenings since the message before; ``left_out``: how many more."""

    moment: shapes.MomentView
    events: list[shapes.EventView]
    left_out: int = 0


class SharedMessage(NamedTuple):
    """A message as bytes, and the sequence up to which the message tells."""

    end: int
    body: bytes


Again = Callable[[], Awaitable[Viewed]]
"""The viewer's rights as of now."""


def resumed(text: str, questions: Questions) -> int:
    """The sequence after which a reader goes on: ``GENERATION-SEQUENCE``; the present one for an empty text, and for a
    position that this log lost.
    """
    now = questions.live.state.seq
    if not text:
        return now
    try:
        mark = questions.mark(text, 0)
    except OutsideError:
        return now
    if not mark.seq:
        raise BadRequestError("Last-Event-ID is GENERATION-SEQUENCE, as it was sent")
    return min(mark.seq, now)


class Turns:
    """Makes the messages of all streams: one message for all readers of equal rights and position.

    The messages are made and handed out in rounds, a few in each turn of the loop, so that questions are answered
    between them. The streams take at most a part of the time: the more readers, the less often messages come.
    """

    def __init__(self, questions: Questions, clock: Clock) -> None:
        self.questions = questions
        self._clock = clock
        self._waiting: dict[asyncio.Future[SharedMessage | None], tuple[Scope, int, int]] = {}
        """turn -> rights of the reader, sequence of its last message, sequence at which its rights were looked at"""
        self._rounds: asyncio.Task[None] | None = None
        self._idle = False
        """Whether the rounds wait for news."""
        self._namespaces = questions.namespaces()
        self._grown = 0
        """The sequence at which a new namespace was last found."""

    async def next(self, scope: Scope, after: int, looked: int, until: float) -> SharedMessage | None:
        """The message after a sequence, once there is one; None where the rights must be looked at again: there is a
        new namespace since the sequence ``looked``. Raises TimeoutError where there is no news until a time of the
        loop (s), and the errors of the log.
        """
        if after < self.questions.live.told_from:  # Read from the log, which others do not wait for.
            return None if self._is_outdated(scope, looked) else await self._made(scope, after)
        turn: asyncio.Future[SharedMessage | None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = (scope, after, looked)
        if self._idle and after < self.questions.live.state.seq:
            self._end()
        if self._rounds is None:
            self._rounds = asyncio.ensure_future(self._run())
        try:
            async with asyncio.timeout_at(until):
                return await turn
        finally:
            self._waiting.pop(turn, None)
            if not self._waiting and self._idle:
                self._end()

    def _end(self) -> None:
        if self._rounds is not None:
            self._rounds.cancel()
        self._rounds, self._idle = None, False

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._idle = True
                await self.questions.live.news(min(after for _, after, _ in self._waiting.values()))
                self._idle = False
                readers = len(self._waiting)
                await self._round()
                await asyncio.sleep(max(AT_MOST_EVERY_S, EACH_S * readers))
            self._rounds = None
        except Exception as err:
            self._rounds, self._idle = None, False
            for turn in self._waiting:
                _fail(turn, err)

    async def _round(self) -> None:
        end = self.questions.live.state.seq
        groups: dict[tuple[Scope, int, int], list[asyncio.Future[SharedMessage | None]]] = {}
        for turn, (scope, after, looked) in self._waiting.items():
            if after < end:
                groups.setdefault((scope, after, 0 if scope.whole else looked), []).append(turn)
        for (scope, after, looked), turns in groups.items():
            await asyncio.sleep(0)
            try:
                message = None if self._is_outdated(scope, looked) else await self._made(scope, after)
            except Exception as err:
                for turn in turns:
                    _fail(turn, err)
                continue
            for first in range(0, len(turns), AT_ONCE):
                for turn in turns[first : first + AT_ONCE]:
                    if not turn.done():
                        turn.set_result(message)
                await asyncio.sleep(0)

    def _is_outdated(self, scope: Scope, looked: int) -> bool:
        """Whether there is a namespace that is newer than the rights of a reader."""
        names = self.questions.namespaces()
        if not names <= self._namespaces:
            self._grown = self.questions.live.state.seq
        self._namespaces = names
        return not scope.whole and looked < self._grown

    async def _made(self, scope: Scope, after: int) -> SharedMessage:
        state = self.questions.live.state
        end = state.seq
        told = [entry async for entry in self.questions.live.told(after) if entry.seq <= end]
        entries = [entry for entry in told if views.hears(entry, scope)]
        shown: list[shapes.EventView] = []
        if entries:
            lens = self.questions.lens(scope, state)
            shown = [views.event_shape(entry, lens) for entry in entries[-MOST_EVENTS:]]
        news = News(views.moment_of(state, self._clock.now(), live=True), shown, len(entries) - len(shown))
        body = msgspec.json.encode(news).decode()
        return SharedMessage(end, f"id: {state.generation}-{end}\nevent: news\ndata: {body}\n\n".encode())


def _fail(turn: asyncio.Future[SharedMessage | None], err: Exception) -> None:
    if not turn.done():
        turn.set_exception(err)


async def messages(turns: Turns, again: Again, after: int) -> AsyncIterator[bytes]:
    """The stream of one viewer from a sequence on, for ever."""
    clock = asyncio.get_running_loop()
    live = turns.questions.live
    while True:
        seq, until = live.state.seq, clock.time() + SILENT_S
        viewed = await again()
        message = None
        while message is None or clock.time() < until:
            try:
                message = await turns.next(viewed.scope, after, seq, until)
            except TimeoutError:
                yield b": still here\n\n"
                break
            if message is None:
                break
            yield message.body
            after = message.end
