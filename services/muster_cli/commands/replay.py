"""``muster replay``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from muster.core.cell.deciders import DECIDERS
from muster.core.queueing.sorterstate import SorterState
from muster.events.system import Genesis
from muster.model.language import listed, say
from muster.runtime.replaying.replay import Replayer
from muster.runtime.replaying.states import plain
from muster_cli.console import Output
from muster_cli.exits import OK, USAGE, VIOLATED, CliError
from muster_cli.options import Document, Source
from muster_cli.positions import LogClock, reached, window
from muster_cli.positions import until as up_to
from muster_cli.render.states import cell_lines, state_lines
from muster_cli.render.verdicts import replay_lines, replay_record, written_by
from muster_cli.sources import source_of

SORTER = "queue_sorter"


async def replay(
    *,
    verify: Annotated[
        bool,
        Parameter(negative="", help="Decide at quiet positions too: this finds decisions that were not recorded."),
    ] = False,
    from_: Annotated[
        str,
        Parameter(
            name="--from",
            show_default=False,
            help="Judge decisions from this sequence or time on; what is before is only folded.",
        ),
    ] = "",
    until: Annotated[
        str,
        Parameter(show_default=False, help="Stop after this sequence or time, and print the state there."),
    ] = "",
    stage: Annotated[
        str, Parameter(show_default=False, help=f"Only this stage: {', '.join(DECIDERS)}. Without it: all.")
    ] = "",
    output: Document = "text",
    source: Source | None = None,
) -> int:
    """Decide a log again."""
    known_stage(stage)
    begin, end = window(from_, until)
    clock, out, last = LogClock(), Output(), 0
    builds: dict[str, None] = {}
    async with source_of(source, out, "Replaying", based=True) as feed:
        replayer = Replayer(silences=verify, stages=(stage,) if stage else (), base=feed.base)
        async for stored in up_to(feed.commits, end):
            last, now = stored.seq, clock.tell(stored)
            if stored.commit.events and isinstance(stored.commit.events[0], Genesis):
                builds[written_by(stored.commit.events[0])] = None
            replayer.feed(stored, judged=begin is None or begin.reached(last, now))
    reached(begin, "--from", last, clock.now)
    reached(end if end is not None and end.seq else None, "--until", last, clock.now)
    report = replayer.finish()
    if output == "text":
        if end is not None:
            out.lines([*_states(replayer, stage), ""])
        out.lines(replay_lines(report, [*builds]))
    else:
        record: dict[str, Any] = {**replay_record(report), "builds": [*builds]}
        if end is not None:
            record["states"] = {name: plain(state) for name, state in replayer.states.items()}
        out.data(record, output)
    return VIOLATED if report.divergences or report.violations else OK


def _states(replayer: Replayer, stage: str) -> list[Any]:
    """The state of one stage; without a stage, the cell in the form for people."""
    if stage:
        return list(state_lines(stage, replayer.states[stage]))
    sorter = replayer.states[SORTER]
    assert isinstance(sorter, SorterState)
    return list(cell_lines(sorter))


def known_stage(stage: str) -> None:
    """Raises CliError for a stage there is not."""
    if stage and stage not in DECIDERS:
        raise CliError(
            say("there is no deciding stage {stage}; there are {deciders}", stage=stage, deciders=listed(DECIDERS)),
            USAGE,
        )
