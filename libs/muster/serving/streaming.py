"""Server-sent events: happenings within the rights of the viewer, resumable by position. Pure but for the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from msgspec import Struct

from muster.ports import Clock
from muster.serving import shapes, views
from muster.serving.access import Viewed
from muster.serving.answering import BadRequestError, Questions

AT_MOST_EVERY_S = 0.2
SILENT_S = 15.0
"""After so long without news a comment is sent, and the rights of the viewer are looked at again."""
MOST_EVENTS = 100


class News(Struct, frozen=True):
    """One message: the position, and the happenings since the message before; ``left_out``: how many more."""

    moment: shapes.MomentView
    events: list[shapes.EventView]
    left_out: int = 0


Again = Callable[[], Awaitable[Viewed]]
"""The viewer's rights as of now."""


def resumed(text: str, questions: Questions) -> int:
    """The sequence after which a reader goes on: ``GENERATION-SEQUENCE``; the present one for an empty text."""
    if not text:
        return questions.live.state.seq
    mark = questions.mark(text, 0)
    if not mark.seq:
        raise BadRequestError("Last-Event-ID is GENERATION-SEQUENCE, as it was sent")
    return min(mark.seq, questions.live.state.seq)


async def messages(questions: Questions, clock: Clock, again: Again, after: int) -> AsyncIterator[bytes]:
    """The stream of one viewer from a sequence on, for ever."""
    live = questions.live
    while True:
        if live.state.seq <= after:
            try:
                async with asyncio.timeout(SILENT_S):
                    await live.news(after)
            except TimeoutError:
                await again()
                yield b": nothing new\n\n"
                continue
        state, viewed = live.state, await again()
        end, lens = state.seq, questions.lens(viewed.scope, state)
        entries = [entry async for entry in live.told(after) if entry.seq <= end and views.hears(entry, lens)]
        shown = [views.event_shape(entry, lens) for entry in entries[-MOST_EVENTS:]]
        news = News(views.moment_of(state, clock.now(), live=True), shown, len(entries) - len(shown))
        body = msgspec.json.encode(news).decode()
        yield f"id: {state.generation}-{end}\nevent: news\ndata: {body}\n\n".encode()
        after = end
        await asyncio.sleep(AT_MOST_EVERY_S)
