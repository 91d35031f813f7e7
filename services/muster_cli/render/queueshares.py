"""A queue's shares as lines."""

from __future__ import annotations

import textwrap

from rich.text import Text

from muster.model.text import moment
from muster.told.views.measures import QueueShare
from muster_cli.console import DIM, STRONG, columns, styled

WIDTH = 110


def share_lines(share: QueueShare) -> list[Text]:
    """The queue, one row for each resource, and below the explanation of each share."""
    lines = [
        styled(("Queue ", DIM), (share.queue, STRONG), (f"  as of sequence {share.seq}, {moment(share.now)}", DIM))
    ]
    titles = ("RESOURCE", "SHARE", "USES", "ASKS FOR", "QUOTA", "KEEPS")
    rows: list[list[Text | str]] = [[styled((title, DIM)) for title in titles]]
    rows += [[row.resource, row.share, row.uses, row.asks or "-", row.quota, row.keeps] for row in share.rows]
    lines += columns(rows, indent=2)
    for row in share.rows:
        of = f" of {row.parent}" if row.parent else ""
        lines += [Text(f"  {line}") for line in textwrap.wrap(f"{row.resource}: {row.share}{of}: {row.why}.", WIDTH)]
    if share.siblings:
        lines += [Text(f"  {line}") for line in textwrap.wrap(f"Beside it: {', '.join(share.siblings)}.", WIDTH)]
    return lines
