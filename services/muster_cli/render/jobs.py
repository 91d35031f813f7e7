"""The jobs of a cell as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.core.objects.meta import rfc3339
from muster.model.language import english, say
from muster.model.resources import format_vector
from muster.model.text import shorten, span
from muster.serving.jobrows import ENDED, JobRow
from muster.told.codes.codetable import CODES
from muster.told.wording import explain
from muster_cli.console import DIM, STRONG, TONES, columns

NARROW = 90
"""Below so many columns the queue is left out."""
MESSAGE = 160


HEADS = {
    "KIND": "KIND",
    "JOB": "JOB",
    "STATE": "STATE",
    "STATUS": "STATUS",
    "QUEUE": "QUEUE",
    "PLACE": "PLACE",
    "FOR": "FOR",
    "PRIORITY": "PRIORITY",
    "REQUEST": "REQUEST",
    "SINCE": "SINCE",
    "STARTS BY": "STARTS BY",
    "OWNER": "OWNER",
    "MESSAGE": "MESSAGE",
}
PHASES = {
    "seen": "seen",
    "outside": "outside",
    "waiting": "waiting",
    "refused": "refused",
    "reserved": "reserved",
    "admitted": "admitted",
    "running": "running",
    "leaving": "leaving",
    "finished": "finished",
    "gone": "gone",
}


def state_of(row: JobRow) -> str:
    """The outcome of a job that has ended, else the phase."""
    return explain.outcome(row.outcome, say(PHASES.get(row.phase, row.phase)))


def cells_of(rows: Sequence[JobRow], now: int, *, wide: bool, width: int) -> list[list[str]]:
    """A head, then one line per job; nothing where there is none. ``wide``: with request, start and message."""
    if not rows:
        return []
    queues = wide or width >= NARROW
    head = ["KIND"] if wide else []
    head += ["JOB", "STATE", "STATUS", *(["QUEUE"] if queues else []), "PLACE", "FOR"]
    head += ["PRIORITY", "REQUEST", "SINCE", "STARTS BY", "OWNER", "MESSAGE"] if wide else []
    table = [[say(HEADS[name]) for name in head]]
    for row in rows:
        cells = [row.kind] if wide else []
        cells += [
            row.key,
            state_of(row),
            f"{row.code}: {row.cause}" if row.cause else row.code,
        ]
        cells += [row.queue or "-"] if queues else []
        cells += [f"{row.position}/{row.length}" if row.position else "-", span(max(0, now - row.since) // 1000 * 1000)]
        if wide:
            priority = "-" if row.priority is None else str(row.priority)
            since = rfc3339(row.since // 1000 * 1000)
            latest = "-" if row.promise.why else rfc3339(row.promise.latest // 1000 * 1000)
            cells += [
                priority,
                format_vector(row.request) or "-",
                since,
                latest,
                row.owner or "-",
                shorten(row.text, MESSAGE),
            ]
        table.append(cells)
    return table


def plain_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """With aligned columns, and no colour."""
    if not english():
        return [line.plain for line in columns(table)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)] if table else []
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def coloured_lines(rows: Sequence[JobRow], table: Sequence[Sequence[str]], *, wide: bool) -> list[Text]:
    """For a terminal: state and status in colour."""
    first = 2 if wide else 1
    lines: list[list[Text | str]] = [[Text(cell, STRONG) for cell in head] for head in table[:1]]
    for row, cells in zip(rows, table[1:], strict=True):
        colour = DIM if row.phase in ENDED else TONES[CODES[row.code].tone]
        lines.append([Text(cell, colour) if first <= at < first + 2 else cell for at, cell in enumerate(cells)])
    return columns(lines)
