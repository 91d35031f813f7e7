"""The story of a queue as the log tells it: of all that is kept, or from a position on."""

from __future__ import annotations

from muster.model.language import say
from muster.told.views.queuestory import QueueStory
from muster.told.views.tellings import QueueTale
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.folding import begun, read_model
from muster_cli.options import Source
from muster_cli.positions import Bookmark, LogClock, reached
from muster_cli.positions import until as up_to
from muster_cli.sources import source_of
from muster_cli.unique import one_queue


async def told(
    begin: Bookmark | None, end: Bookmark | None, wanted: str, source: Source | None, out: Output, most: int
) -> QueueTale:
    """The story as the log tells it. Raises CliError."""
    if begin is None:
        read = await read_model(source, out, end, promising=False)
        story, present = QueueStory(wanted, read.state), read.present
        story.recall()
    else:
        story, present = await _from(begin, end, wanted, source, out)
    matches = story.matches()
    if not matches:
        raise CliError(
            say(
                "no quota tree in this log has a queue {wanted}; `muster queue tree` shows those there are",
                wanted=wanted,
            ),
            NOT_FOUND,
        )
    return story.of(one_queue(matches, wanted), present=present, most=most)


async def _from(
    begin: Bookmark, end: Bookmark | None, queue: str, source: Source | None, out: Output
) -> tuple[QueueStory, int]:
    """The story from a position on, and the present time. Raises CliError where the log ends before the position."""
    clock = LogClock()
    async with source_of(source, out, based=True) as feed:
        state, stream = await begun(feed, lambda seq, now: not begin.reached(seq, now), promising=False)
        told, last, clock.now = QueueStory(queue, state), state.seq, state.now
        async for stored in up_to(stream, end):
            last, now = stored.seq, clock.tell(stored)
            told.feed(stored, shown=begin.reached(stored.seq, now))
        present = end.at if end is not None else await feed.time()
    reached(begin, "--from", last, clock.now)
    return told, present
