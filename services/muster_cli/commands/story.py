"""``muster story``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.model.language import say
from muster.told.views.queuestory import QueueStory, QueueTale
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.folding import begun, read_model
from muster_cli.meant import gateway_of
from muster_cli.options import Document, GatewayOption
from muster_cli.positions import Bookmark, LogClock, reached, window
from muster_cli.positions import until as up_to
from muster_cli.render.queuestories import tale_lines, tale_record
from muster_cli.sources import Source, source_of
from muster_cli.unique import one_queue


async def story(
    queue: Annotated[str, Parameter(help="Path of a queue, or the end of one that is unique: root/algorithm/video.")],
    /,
    *,
    from_: Annotated[
        str, Parameter(name="--from", show_default=False, help="Tell what happened from this sequence or time on.")
    ] = "",
    until: Annotated[
        str,
        Parameter(show_default=False, help="Stop after this sequence or time; the state is the one of that position."),
    ] = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Tell what happened in a queue."""
    begin, end = window(from_, until)
    out, wanted = Output(), queue.strip("/")
    async with gateway_of(through, source, until) as gateway:
        if gateway is None:
            tale = await _read(begin, end, wanted, source, out)
        elif begin is not None:
            raise CliError(say("--from reads the log, and a gateway tells what is kept: leave it out"), USAGE)
        else:
            from muster_cli.gatewayquestions import tale_of

            tale = await tale_of(gateway, wanted)
    if output == "text":
        out.lines(tale_lines(tale, out.width))
    else:
        out.data(tale_record(tale), output)


async def _read(
    begin: Bookmark | None, end: Bookmark | None, wanted: str, source: Source | None, out: Output
) -> QueueTale:
    """The story as the log tells it. Raises CliError."""
    if begin is None:
        read = await read_model(source, out, end, promising=False)
        told, present = QueueStory(wanted, read.state), read.present
        told.recall()
    else:
        told, present = await _from(begin, end, wanted, source, out)
    matches = told.matches()
    if not matches:
        raise CliError(
            say(
                "no quota tree in this log has a queue {wanted}; `muster queue tree` shows those there are",
                wanted=wanted,
            ),
            NOT_FOUND,
        )
    return told.of(one_queue(matches, wanted), present=present)


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
