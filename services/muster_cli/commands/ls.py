"""``muster ls``."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from muster.core.codes.values import Phase
from muster.model.text import counted
from muster.serving.joblist import JobFilter, job_rows, record_of_row
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.folding import read_at
from muster_cli.options import At
from muster_cli.positions import UNITS
from muster_cli.render.jobs import cells_of, coloured_lines, plain_lines
from muster_cli.sources import Source

STATES: tuple[str, ...] = get_args(Phase)
COLOURED = 1_000
"""More lines are printed without colour, which is faster."""


async def ls(
    *,
    state: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help=f"Only these: {', '.join(STATES)}. Several, or with commas."),
    ] = None,
    queue: Annotated[
        str, Parameter(show_default=False, help="Only of this queue and those below: a path, or the end of one.")
    ] = "",
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], show_default=False, help="Only of this one.")] = "",
    kind: Annotated[str, Parameter(show_default=False, help="Only of this kind: RayJob, TFJob, Job ...")] = "",
    since: Annotated[str, Parameter(help="How long ago a job may have ended: 90s, 30m, 1h, 7d.")] = "1h",
    at: At = "",
    output: Annotated[
        Literal["table", "wide", "json", "yaml", "name"],
        Parameter(name=["--output", "-o"], help="How to print it: a table, a wide one, or for programs."),
    ] = "table",
    source: Source | None = None,
) -> None:
    """List the jobs."""
    out, states = Output(), _states(state or [])
    ago = span_of(since)
    read = await read_at(source, out, at)
    now = max(read.state.now, read.present)
    asked = JobFilter(states, queue.strip("/"), namespace, kind, now - ago)
    _known(read.state.queues.ledger.nodes, asked.queue)
    starts = output in ("wide", "json", "yaml")
    rows = [row for row in job_rows(read.state, now, starts=starts) if asked.takes(row)]
    if output in ("table", "wide"):
        wide = output == "wide"
        table = cells_of(rows, now, wide=wide, width=out.width)
        if out.is_terminal and len(rows) <= COLOURED:
            out.lines(coloured_lines(rows, table, wide=wide))
        else:
            out.plain(plain_lines(table))
        if not rows:
            out.line(
                f"No job{' matches' if asked != JobFilter(ended_after=asked.ended_after) else ''} as of sequence "
                f"{read.state.seq}; {counted(len(read.state.records), 'job')} known in all."
            )
    elif output == "name":
        for row in rows:
            out.line(f"{row.kind.lower()}/{row.key}")
    else:
        out.data([record_of_row(row) for row in rows], "json" if output == "json" else "yaml")


def _states(given: list[str]) -> tuple[str, ...]:
    """Raises CliError for a word that is none."""
    found = tuple(dict.fromkeys(word for each in given for word in each.split(",") if word))
    for word in found:
        if word not in STATES:
            raise CliError(f"--state {word} is no state; there are {', '.join(STATES)}", USAGE)
    return found


def _known(paths: object, queue: str) -> None:
    """Raises CliError for a queue that no tree in force has."""
    known = [str(path) for path in paths] if isinstance(paths, dict) else []
    if queue and not any(path == queue or path.endswith(f"/{queue}") for path in known):
        raise CliError(f"there is no queue {queue}; `muster queue tree` shows those there are", NOT_FOUND)


def span_of(text: str) -> int:
    """``90s``, ``30m``, ``1h``, ``7d`` in ms. Raises CliError."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal():
        raise CliError(f"--since {text} is no span of time: write 90s, 30m, 1h or 7d", USAGE)
    return int(number) * UNITS[unit]
