"""``muster position``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster_cli.console import Output
from muster_cli.meant import answered
from muster_cli.named import named
from muster_cli.options import At, Document, GatewayOption, Job, Source
from muster_cli.render.queuestories import Expected, expecting, position_lines, position_record

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


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

    async def ask(gateway: Gateway) -> Expected:
        from muster_cli.gatewayquestions import job_of

        asked = await job_of(gateway, kind, wanted)
        return expecting(asked.story, asked.promise, asked.pace)

    async def read() -> Expected:
        from muster_cli.expectation import expectation

        return await expectation(source, out, at, kind, wanted)

    answer = await answered(through, source, at, ask, read)
    if output == "text":
        out.lines(position_lines(answer, min(out.width, 110)))
    else:
        out.data(position_record(answer), output)
