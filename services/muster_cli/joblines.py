"""A list of jobs on a terminal, or as names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from muster.model.language import listed, say
from muster.serving.jobrows import JobFilter, JobRow
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
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


def known_kind(asked: JobFilter, more: Iterable[str] = ()) -> JobFilter:
    """A kind, also written as for kubectl: ``rayjobs``. ``more``: the kinds of the log. Raises CliError."""
    word = asked.kind.lower()
    if not word:
        return asked
    from muster.core.workloads.registry import KINDS  # Not for lists of all kinds.

    kinds = sorted({*KINDS, *more})
    for kind in kinds:
        if word in (kind.lower(), f"{kind.lower()}s"):
            return replace(asked, kind=kind)
    raise CliError(
        say("--kind {word} is no kind of job; there are {kinds}", word=asked.kind, kinds=listed(kinds)), USAGE
    )


def known_queue(paths: Iterable[str], queue: str) -> None:
    """Raises CliError for a queue that no tree in force has."""
    paths = [*paths]
    if queue and not any(path == queue or path.endswith(f"/{queue}") for path in paths):
        from muster_cli.filtering import similar  # Not for lists.

        raise CliError(
            say(
                "there is no queue {queue}; `muster queue tree` shows those there are{hint}",
                queue=queue,
                hint=similar(queue, {*paths}),
            ),
            NOT_FOUND,
        )
