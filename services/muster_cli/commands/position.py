"""``muster position``."""

from __future__ import annotations

from muster.core.views.story import Story
from muster_cli.commands.why import chosen, named
from muster_cli.console import Output
from muster_cli.folding import read_at
from muster_cli.options import At, Document, Job
from muster_cli.render.queuestories import Expected, expected, position_lines, position_record
from muster_cli.sources import Source


async def position(
    job: Job,
    /,
    *,
    at: At = "",
    output: Document = "text",
    source: Source | None = None,
) -> None:
    """Show the position of a job in its queue, and its expected start."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    read = await read_at(source, out, at)
    story = Story(wanted, kind, read.state)
    told = story.of(chosen(story, wanted), acting=read.acting, present=read.present)
    found: Expected = expected(told, read.state)
    if output == "text":
        out.lines(position_lines(found, min(out.width, 110)))
    else:
        out.data(position_record(found), output)
