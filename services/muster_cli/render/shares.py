"""Shares of queues as a table, and below the explanation of each share."""

from __future__ import annotations

from rich.text import Text

from muster.model.language import say
from muster_cli.console import DIM, GOOD, STRONG, columns, styled
from muster_cli.sharing import Number, Shared, ShareRow


def share_lines(shared: Shared) -> list[Text]:
    """One row for each queue and resource, then one sentence for each."""
    if not shared.rows:
        return [Text(say("No queue is in force."))]
    head: list[Text | str] = [
        styled((word, DIM))
        for word in (
            "QUEUE",
            "RESOURCE",
            say("FAIR SHARE"),
            "GUARANTEE",
            "REQUEST",
            "LIMIT",
            "WEIGHT",
            "PRIORITY",
            "ALLOCATABLE",
        )
    ]
    if shared.plain:
        del head[1]
    lines = columns([head, *(_cells(row, plain=shared.plain) for row in shared.rows)])
    lines.append(Text())
    for row in shared.rows:
        of = f" {row.resource}" if row.resource else ""
        lines.append(styled((row.queue, STRONG), f"{of}: {row.why}"))
    return lines


def _cells(row: ShareRow, *, plain: bool) -> list[Text | str]:
    cells: list[Text | str] = [
        "  " * row.depth + row.queue,
        row.resource,
        styled((_text(row.fair_share), GOOD)),
        _text(row.guarantee),
        "all" if row.request is None else _text(row.request),
        _text(row.limit),
        _text(row.weight),
        str(row.priority),
        _text(row.allocatable),
    ]
    if plain:
        del cells[1]
    return cells


def _text(number: Number) -> str:
    return "unlimited" if number == -1 else str(number)
