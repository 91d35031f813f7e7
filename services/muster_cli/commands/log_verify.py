"""``muster log verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from muster.core.stage import StageState
from muster.events.envelope import UnknownEventError, UnreadableCommitError
from muster.model.language import say
from muster.model.text import counted, moment
from muster.ports import LogGapError
from muster.runtime.logkeeping.snapshotting import decode_state
from muster_cli.console import BAD, GOOD, Output, styled
from muster_cli.exits import OK, VIOLATED, CliError
from muster_cli.integrity import Integrity
from muster_cli.logfiles import existing, progress
from muster_cli.options import Bus
from muster_cli.reading import LogReading, base_of, commits, judged, locate, opened, tell_which

PROBLEMS_SHOWN = 20


async def log_verify(
    *,
    log: Annotated[
        Path | None, Parameter(show_default=False, help="Check an exported log instead of a running one.")
    ] = None,
    bus: Bus | None = None,
) -> int:
    """Check that a log is whole."""
    out, integrity = Output(), Integrity()
    if log is not None:
        with progress(existing(log), "Verifying") as stored_commits:
            for stored in stored_commits:
                integrity.feed(stored)
    else:
        place = locate(bus)
        tell_which(out, place)
        async with opened(place) as reading:
            try:
                async for stored in judged(commits(reading.log, whole=False), await _begun(reading)):
                    integrity.feed(stored)
            except (LogGapError, UnknownEventError, UnreadableCommitError) as err:
                integrity.problems.append(" ".join([str(err), *getattr(err, "__notes__", [])]))
            identity = reading.log.identity
            if integrity.log_id and (integrity.log_id, integrity.generation) != (identity.log_id, identity.generation):
                integrity.problems.append(
                    say("the cell names log {named}, and this is {this}", named=identity.log_id, this=integrity.log_id)
                )
    if not integrity.commits and not integrity.problems:
        raise CliError(say("{log} holds no commit; was the export cut off?", log=log or say("the log")))
    if integrity.voids:
        out.line(
            say("{void_commits}: `muster log voids` lists them", void_commits=counted(integrity.voids, "void commit"))
        )
    out.lines(verdict(integrity))
    return VIOLATED if integrity.problems else OK


async def _begun(reading: LogReading) -> StageState:
    """The state before the first commit that can still be read."""
    base = await base_of(reading)
    return decode_state(base[0].body, StageState) if base else StageState()


def verdict(integrity: Integrity) -> list[Text]:
    """What was found, the verdict last."""
    lines = [styled((f"  {problem}", BAD)) for problem in integrity.problems[:PROBLEMS_SHOWN]]
    if len(integrity.problems) > PROBLEMS_SHOWN:
        lines.append(Text("  " + say("and {number} more", number=len(integrity.problems) - PROBLEMS_SHOWN)))
    whole = say(
        "log {log_id}, generation {generation}: {commits}, {events}, {first_at} to {last_at} UTC",
        log_id=integrity.log_id or "(unknown)",
        generation=integrity.generation,
        commits=counted(integrity.commits, "commit"),
        events=counted(integrity.events, "event"),
        first_at=moment(integrity.first_at),
        last_at=moment(integrity.last_at),
    )
    lines.append(Text(whole))
    problems = len(integrity.problems)
    return [
        *lines,
        styled((f"{counted(problems, 'problem')}", BAD) if problems else (say("whole: nothing is missing"), GOOD)),
    ]
