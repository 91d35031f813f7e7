"""``muster position``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.views.story import Story
from muster_cli.commands.why import chosen, named
from muster_cli.console import Output
from muster_cli.folding import read_model
from muster_cli.options import Document, Job
from muster_cli.positions import mark
from muster_cli.render.queuestories import Expected, expected, position_lines, position_record
from muster_cli.sources import Source


async def position(
    job: Job,
    /,
    *,
    at: Annotated[str, Parameter(show_default=False, help="As it was at this sequence or time, instead of now.")] = "",
    output: Document = "text",
    source: Source | None = None,
) -> None:
    """Show the position of a job in its queue, and its expected start."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    read = await read_model(source, out, mark(at, "--at"))
    story = Story(wanted, kind, read.state)
    told = story.of(chosen(story, wanted), acting=read.acting, present=read.present)
    found: Expected = expected(told, read.state)
    if output == "text":
        out.lines(position_lines(found, min(out.width, 110)))
    else:
        out.data(position_record(found), output)
