"""A list of jobs on a terminal, or as names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from muster.model.language import say
from muster.serving.jobrows import JobRow
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.render.jobs import cells_of, coloured_lines, plain_lines

COLOURED = 1_000
"""More lines are printed without colour, which is faster."""
ListForm = Literal["table", "wide", "json", "yaml", "name"]


def print_jobs(out: Output, rows: Sequence[JobRow], now: int, output: ListForm, *, head: bool = True) -> None:
    """Lines for people, or names."""
    if output == "name":
        out.lines([f"{row.kind.lower()}/{row.key}" for row in rows])
        return
    wide = output == "wide"
    table = cells_of(rows, now, wide=wide, width=out.width)
    first = 0 if head else 1
    if out.is_terminal and len(rows) <= COLOURED:
        out.lines(coloured_lines(rows, table, wide=wide)[first:])
    else:
        out.plain(plain_lines(table)[first:])


def known_queue(paths: Iterable[str], queue: str) -> None:
    """Raises CliError for a queue that no tree in force has."""
    if queue and not any(path == queue or path.endswith(f"/{queue}") for path in paths):
        raise CliError(
            say("there is no queue {queue}; `muster queue tree` shows those there are", queue=queue), NOT_FOUND
        )
