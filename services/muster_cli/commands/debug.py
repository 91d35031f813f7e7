"""``muster debug``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from cyclopts import Parameter

from muster.core.cell.deciders import DECIDERS
from muster.core.stage import StageState
from muster.events.envelope import Stored
from muster.model.language import say
from muster.runtime.replaying.stepping import Stepper
from muster_cli.commands.replay import known_stage
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, OK, VIOLATED, CliError
from muster_cli.folding import newest_kept
from muster_cli.options import Document, Source
from muster_cli.positions import Bookmark, mark, until
from muster_cli.render.states import step_lines, step_record
from muster_cli.sources import Feed, source_of


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
        stepper, stream = await _begun(stage, feed, place)
        async for stored in until(stream, place):
            stepper.feed(stored)
            last = stored.seq
    if place is None or not last or last < place.seq:
        raise CliError(say("there is no sequence {at} in this log: it ends at {last}", at=at, last=last), NOT_FOUND)
    step = stepper.step()
    if output == "text":
        out.lines(step_lines(step, whole=state))
    else:
        out.data(step_record(step), output)
    return OK if step.same and not step.violations else VIOLATED


async def _begun(stage: str, feed: Feed, place: Bookmark | None) -> tuple[Stepper, AsyncIterator[Stored]]:
    """From the newest snapshot of the stage that holds only commits known to the decision, else from the start."""
    if feed.reading is not None and place is not None and place.seq:
        in_seq = await _in_seq(stage, feed, place.seq)
        state: StageState | None = await newest_kept(feed.reading, DECIDERS[stage](), lambda seq, _now: seq <= in_seq)
        if state is not None:
            return Stepper(stage, state=state), feed.after(state)
    return Stepper(stage, feed.base), feed.commits


async def _in_seq(stage: str, feed: Feed, seq: int) -> int:
    """The last sequence the stage had folded at a position; 0 where the log does not come so far."""
    async with contextlib.aclosing(feed.raw(seq - 1)) as stream:
        async for stored in stream:
            own = stored.commit.stage == stage and stored.commit.kind == "decision"
            return min(stored.commit.in_seq, seq - 1) if own else seq - 1
    return 0
