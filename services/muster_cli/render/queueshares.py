"""A queue's shares as lines."""

from __future__ import annotations

from rich.text import Text

from muster.model.language import listed, say
from muster.model.text import moment
from muster.told.views.measures import QueueShare
from muster_cli.console import DIM, STRONG, columns, styled, wrapped

WIDTH = 110


def share_lines(share: QueueShare) -> list[Text]:
    """The queue, one row for each resource, and below the explanation of each share."""
    lines = [
        styled(
            (say("Queue "), DIM),
            (share.queue, STRONG),
            (say("  as of sequence {seq}, {now}", seq=share.seq, now=moment(share.now)), DIM),
        )
    ]
    titles = ("RESOURCE", "SHARE", "USES", say("ASKS FOR"), "QUOTA", "KEEPS")
    rows: list[list[Text | str]] = [[styled((title, DIM)) for title in titles]]
    rows += [[row.resource, row.share, row.uses, row.asks or "-", row.quota, row.keeps] for row in share.rows]
    lines += columns(rows, indent=2)
    for row in share.rows:
        of = say(" of {parent}", parent=row.parent) if row.parent else ""
        lines += [
            Text(f"  {line}")
            for line in wrapped(
                say("{resource}: {share}{of}: {why}.", resource=row.resource, share=row.share, of=of, why=row.why),
                WIDTH,
            )
        ]
    if share.siblings:
        lines += [
            Text(f"  {line}") for line in wrapped(say("Beside it: {siblings}.", siblings=listed(share.siblings)), WIDTH)
        ]
    return lines
