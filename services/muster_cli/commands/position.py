"""``muster position``."""

from __future__ import annotations

from muster.told.views.story import Story
from muster_cli.commands.why import chosen, named
from muster_cli.console import Output
from muster_cli.folding import read_at
from muster_cli.meant import gateway_of
from muster_cli.options import At, Document, GatewayOption, Job
from muster_cli.render.queuestories import Expected, expected, expecting, position_lines, position_record
from muster_cli.sources import Source


async def position(
    job: Job,
    /,
    *,
    at: At = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Show the position of a job in its queue, and its expected start."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    answer: Expected
    async with gateway_of(through, source, at) as gateway:
        if gateway is not None:
            from muster_cli.gatewayquestions import job_of

            asked = await job_of(gateway, kind, wanted)
            answer = expecting(asked.story, asked.promise, asked.pace)
        else:
            read = await read_at(source, out, at)
            story = Story(wanted, kind, read.state)
            told = story.of(chosen(story, wanted), acting=read.acting, present=read.present)
            answer = expected(told, read.state)
    if output == "text":
        out.lines(position_lines(answer, min(out.width, 110)))
    else:
        out.data(position_record(answer), output)
