"""``muster position``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.pace import Pace
from muster.core.story import Story
from muster_cli.commands.why import chosen, named
from muster_cli.console import Output
from muster_cli.options import Document, Job
from muster_cli.positions import mark, until
from muster_cli.render.queuestories import Expected, expected, position_lines, position_record
from muster_cli.sources import Source, source_of


async def position(
    job: Job,
    /,
    *,
    at: Annotated[str, Parameter(show_default=False, help="As it was at this sequence or time, instead of now.")] = "",
    output: Document = "text",
    source: Source | None = None,
) -> None:
    """Tell where a job stands, and what it may expect."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    story, pace, end, present = Story(wanted, kind), Pace(), mark(at, "--at"), 0
    async with source_of(source, out) as feed:
        async for stored in until(feed.commits, end):
            story.feed(stored)
            state = story.told.state
            for event in stored.commit.events:
                pace.note(event, state.book, state.now)
        acting = feed.acting
        present = end.at if end is not None else await feed.time()
    found: Expected = expected(story.of(chosen(story, wanted), acting=acting, present=present), pace)
    if output == "text":
        out.lines(position_lines(found))
    else:
        out.data(position_record(found), output)
