"""``muster debug``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.deciders import DECIDERS
from muster.runtime.stepping import Stepper
from muster_cli.commands.replay import known_stage
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, OK, VIOLATED, CliError
from muster_cli.options import Document
from muster_cli.positions import mark, until
from muster_cli.render.states import step_lines, step_record
from muster_cli.sources import Source, source_of


async def debug(
    stage: Annotated[str, Parameter(help=f"Which stage: {', '.join(DECIDERS)}.")],
    /,
    *,
    at: Annotated[str, Parameter(help="Which position: a sequence, or a time.")],
    state: Annotated[bool, Parameter(negative="", help="Show all of its state, not only what the decision names.")] = (
        False
    ),
    output: Document = "text",
    source: Source | None = None,
) -> int:
    """Step one decision."""
    known_stage(stage)
    place, last, out = mark(at, "--at"), 0, Output()
    async with source_of(source, out, "Folding", based=True) as feed:
        stepper = Stepper(stage, feed.base)
        async for stored in until(feed.commits, place):
            stepper.feed(stored)
            last = stored.seq
    if place is None or not last or last < place.seq:
        raise CliError(f"there is no sequence {at} in this log: it ends at {last}", NOT_FOUND)
    step = stepper.step()
    if output == "text":
        out.lines(step_lines(step, whole=state))
    else:
        out.data(step_record(step), output)
    return OK if step.same and not step.violations else VIOLATED
