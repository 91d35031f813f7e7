"""A queue's shares as lines."""

from __future__ import annotations

import textwrap

from rich.text import Text

from muster.model.text import moment
from muster.told.views.measures import QueueShare
from muster_cli.console import DIM, STRONG, columns, styled

WIDTH = 110


def share_lines(found: QueueShare) -> list[Text]:
    """The queue, one row for each resource, and below the explanation of each share."""
    lines = [
        styled(("Queue ", DIM), (found.queue, STRONG), (f"  as of sequence {found.seq}, {moment(found.now)}", DIM))
    ]
    titles = ("RESOURCE", "SHARE", "USES", "ASKS FOR", "QUOTA", "KEEPS")
    rows: list[list[Text | str]] = [[styled((title, DIM)) for title in titles]]
    rows += [[each.resource, each.share, each.uses, each.asks or "-", each.quota, each.keeps] for each in found.rows]
    lines += columns(rows, indent=2)
    for each in found.rows:
        of = f" of {each.parent}" if each.parent else ""
        lines += [Text(f"  {line}") for line in textwrap.wrap(f"{each.resource}: {each.share}{of}: {each.why}.", WIDTH)]
    if found.siblings:
        lines += [Text(f"  {line}") for line in textwrap.wrap(f"Beside it: {', '.join(found.siblings)}.", WIDTH)]
    return lines
