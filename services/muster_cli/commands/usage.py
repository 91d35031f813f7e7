"""``muster usage``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

from cyclopts import Parameter

from muster.core.stage import Folder
from muster.model.language import say
from muster.runtime.clock import SystemClock
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.usage import Adding, By, KeptSums, next_month
from muster.told.readmodel.usage import by as added_by
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.folding import begun, read_feed
from muster_cli.options import Source
from muster_cli.positions import Bookmark, window
from muster_cli.positions import until as up_to
from muster_cli.render.usages import UsageTable, record, usage_lines
from muster_cli.sources import Feed, source_of

_MONTH = re.compile(r"(\d{4})-(\d\d)")
FOREVER = 1 << 60


async def usage(
    *,
    by: Annotated[By, Parameter(help="Whose: of each queue, or of each owner.")] = "queue",
    month: Annotated[str, Parameter(show_default=False, help="A month, UTC: 2026-03.")] = "",
    from_: Annotated[
        str,
        Parameter(
            name="--from",
            show_default=False,
            allow_leading_hyphen=True,
            help="From this sequence or time on, or so long ago (-7d).",
        ),
    ] = "",
    until: Annotated[str, Parameter(show_default=False, allow_leading_hyphen=True, help="Up to this time.")] = "",
    resource: Annotated[
        str, Parameter(show_default=False, help="Which resource. Without it: every device, else cpu.")
    ] = "",
    output: Annotated[
        Literal["table", "json", "yaml"], Parameter(name=["--output", "-o"], help="How to print it.")
    ] = "table",
    source: Source | None = None,
) -> None:
    """Add up what was used, lost and waited for."""
    out = Output()
    if month and (from_ or until):
        raise CliError(say("--month says from when to when already; leave out --from and --until"), USAGE)
    recorded = source is not None and source.log is not None
    if not month and not from_ and not until and not recorded:
        month = datetime.fromtimestamp(SystemClock().now() / 1000, UTC).strftime("%Y-%m")
    begin, end = month_of(month) if month else window(from_, until)
    kept = None
    if month and begin is not None:
        async with source_of(source, out, say("Adding up"), based=True) as feed:
            kept = await _kept(feed, begin)
    if kept is None:  # The commits are read once.
        async with source_of(source, out, say("Adding up"), based=True) as feed:
            kept = await _added(feed, begin, end)
    since, last, sums = kept
    table = UsageTable(by, since, last, resource, added_by(sums, by))
    if output == "table":
        out.lines(usage_lines(table))
    else:
        out.data(record(table), output)


Added = tuple[int, int, dict[str, KeptSums]]
"""From when to when (log time, ms), and the sums."""


async def _kept(feed: Feed, begin: Bookmark) -> Added | None:
    """A month as the read model keeps it; None where it keeps no sums of that month."""
    read = await read_feed(feed, None, promising=False)
    state, books, end = read.state, read.state.usage, next_month(begin.at)
    now = max(state.now, read.present)
    if books.account.end < end:  # No commit since the month began: running jobs run on.
        state.now = now
        books.time_passed(state)
    for ended in books.months:
        if ended.end == end:
            return ended.begin, ended.end, ended.sums
    account = books.account
    last = max(min(now, end), account.begin)
    return (account.begin, last, account.close(last)) if account.end == end else None


async def _added(feed: Feed, begin: Bookmark | None, end: Bookmark | None) -> Added:
    """Any time, added up from the commits of that time."""
    folder = Folder(ReadModel())
    state, stream = await begun(
        feed, lambda seq, now: begin is not None and not begin.reached(seq, now), promising=False
    )
    since, last = begin.at if begin is not None else 0, end.at if end is not None and end.at else FOREVER
    adding: Adding | None = None
    async for stored in up_to(stream, end):
        now = max(state.now, stored.commit.at)
        if adding is None and (begin is None or begin.reached(stored.seq, now)):
            adding = Adding(state, max(since, state.now or now), last)
        folder.fold(state, stored)
        if adding is not None:
            adding.folded(stored)
    if adding is None:  # No commit since: running jobs run on.
        adding = Adding(state, max(since, state.now), last)
    account = adding.account
    last = max(min(max(state.now, await feed.time()), last), account.begin)
    return account.begin, last, account.close(last)


def month_of(text: str) -> tuple[Bookmark, Bookmark]:
    """The first moment of a month, UTC, and the last. Raises CliError."""
    match = _MONTH.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= 12:
        raise CliError(say("--month {words} is no month: write 2026-03", words=text), USAGE)
    year, number = int(match[1]), int(match[2])
    first = datetime(year, number, 1, tzinfo=UTC)
    after = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return Bookmark(at=int(first.timestamp() * 1000)), Bookmark(at=int(after.timestamp() * 1000) - 1)
