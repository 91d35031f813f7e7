"""``muster log voids``."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from muster.core.docket import parts
from muster.events.envelope import Stored
from muster.model.language import say
from muster.model.text import clean, counted, moment, shorten
from muster.told.wording import problems
from muster_cli.console import GOOD, Output, styled
from muster_cli.options import Document, Source
from muster_cli.sources import source_of


async def log_voids(*, source: Source | None = None, output: Document = "text") -> None:
    """List the commits of a log that are void."""
    out = Output()
    async with source_of(source, out, "Judging", based=True) as feed:
        voids = [stored async for stored in feed.commits if stored.void]
    if output != "text":
        out.data([_record(stored) for stored in voids], output)
        return
    for stored in voids:
        out.line(f"{stored.seq:>8}  {moment(stored.stored_at)}  {_seat(stored)}: {shorten(clean(_why(stored)), 200)}")
    none = styled((say("no commit is void"), GOOD))
    out.lines(
        [Text(say("{commits} void: no reader acts on them", commits=counted(len(voids), "commit"))) if voids else none]
    )


def _why(stored: Stored) -> str:
    return problems.line(stored.void) if stored.void is not None else ""


def _seat(stored: Stored) -> str:
    return parts(stored.subject)[1].replace(".", "/", 1)


def _record(stored: Stored) -> dict[str, Any]:
    return {
        "seq": stored.seq,
        "stored_at": stored.stored_at,
        "seat": _seat(stored),
        "why": _why(stored),
        "bytes": len(stored.body),
    }
