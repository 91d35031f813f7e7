"""``muster tail``."""

from __future__ import annotations

import contextlib
from typing import Annotated, Literal

from cyclopts import Parameter

from muster.bus.log import JetStreamLog
from muster.core.docket import Docket, Judge
from muster.events.envelope import Stored
from muster.told.readmodel.model import ReadModel
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.filtering import EventFilter
from muster_cli.folding import newest_kept
from muster_cli.options import Bus
from muster_cli.positions import Bookmark, reached
from muster_cli.reading import LogReading, followed, locate, opened, tell_which
from muster_cli.render.events import EventLines, record

LAST_SHOWN = 25


async def tail(
    *,
    queue: Annotated[
        str, Parameter(show_default=False, help="Only what concerns this quota path and those below it.")
    ] = "",
    job: Annotated[
        str, Parameter(show_default=False, help="Only what concerns this job: NAMESPACE/NAME, or NAME.")
    ] = "",
    since: Annotated[
        int | None,
        Parameter(
            show_default=False, help=f"Begin with this sequence, 1 for all. Without it: the last {LAST_SHOWN} commits."
        ),
    ] = None,
    follow: Annotated[bool, Parameter(help="Go on as the log grows, until Ctrl-C.")] = True,
    output: Annotated[
        Literal["text", "json"],
        Parameter(name=["--output", "-o"], help="Lines for people, or one JSON object per line."),
    ] = "text",
    bus: Bus | None = None,
) -> None:
    """Print the log."""
    place = locate(bus)
    async with opened(place, patient=follow) as reading:
        out, chosen = Output(), EventFilter(job=job, queue=queue)
        tell_which(out, place)
        last = await reading.log.end()
        first = since if since is not None else max(1, last - LAST_SHOWN + 1)
        if first > last + 1:  # The next one may be waited for.
            reached(Bookmark(seq=first), "--since", last, await reading.log.time())
        printer = _Printer(out, reading.log, chosen, output)
        after = await _begun(reading, printer, chosen, first)
        async with contextlib.aclosing(followed(reading, after)) as stream:
            async for printer.log, batch in stream:
                if not batch and (absent := chosen.missing()):
                    raise CliError(absent, NOT_FOUND)
                if not batch and not follow:
                    return
                for stored in batch:
                    printer.print(stored, shown=stored.seq >= first)


async def _begun(reading: LogReading, printer: _Printer, chosen: EventFilter, first: int) -> int:
    """Fill the printer and the filter from a snapshot before ``first``, else from the whole log.

    Returns the sequence after which to read.
    """
    state = await newest_kept(reading, ReadModel(), lambda seq, _now: seq < first)
    if state is None:
        return 0
    printer.judge = Judge(state.docket, state.log_id, state.generation)
    chosen.begin(state)
    return state.seq


class _Printer:
    def __init__(self, out: Output, log: JetStreamLog, chosen: EventFilter, form: str) -> None:
        self._out = out
        self.log = log
        self._chosen = chosen
        self._form = form
        self._lines = EventLines()
        self.judge = Judge(Docket())

    def print(self, stored: Stored, *, shown: bool) -> None:
        stored = self.judge.hear(stored)
        wanted = self._chosen.wanted(stored)
        if not shown:
            return
        if self._form == "json":
            identity = self.log.identity
            for index in sorted(wanted):
                self._out.record(record(stored, index, identity.cell, identity.generation_of(stored.seq)))
        else:
            self._out.lines(self._lines.lines(stored, wanted))
