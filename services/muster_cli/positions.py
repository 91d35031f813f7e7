"""Positions in a log as people give them: a sequence, or a time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.model.language import say
from muster.model.text import moment
from muster.runtime.clock import SystemClock
from muster_cli.exits import NOT_FOUND, USAGE, CliError

if TYPE_CHECKING:
    from muster.events.envelope import Stored

UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d+)([smhd])")


class Bookmark(Struct, frozen=True):
    """A sequence, or a log time in ms since the epoch; the other is 0."""

    seq: int = 0
    at: int = 0

    def reached(self, seq: int, now: int) -> bool:
        """Whether a commit with this sequence and log time lies at the mark, or after it."""
        return seq >= self.seq if self.seq else now >= self.at

    def passed(self, seq: int, now: int) -> bool:
        """Whether it lies after the mark."""
        return seq > self.seq if self.seq else now > self.at

    def __str__(self) -> str:
        return say("sequence {seq}", seq=self.seq) if self.seq else say("{at} UTC", at=moment(self.at))


def mark(text: str, option: str) -> Bookmark | None:
    """The position a text names; None for an empty one. Raises CliError."""
    if not text:
        return None
    if text.isdecimal() and int(text) > 0:
        return Bookmark(seq=int(text))
    if ago := _AGO.fullmatch(text):
        return Bookmark(at=SystemClock().now() - int(ago[1]) * UNITS[ago[2]])
    try:
        when = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise CliError(
            say(
                "{option} {words} is neither a sequence nor a time: write 1200, 2026-03-01T12:00:00Z, or -5m",
                option=option,
                words=text,
            ),
            USAGE,
        ) from None
    at = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return Bookmark(at=int(at.timestamp() * 1000))


def window(begin: str, end: str) -> tuple[Bookmark | None, Bookmark | None]:
    """The positions ``--from`` and ``--until`` name. Raises CliError, also where the one lies after the other."""
    one, other = mark(begin, "--from"), mark(end, "--until")
    if one is not None and other is not None and (one.seq > other.seq > 0 or one.at > other.at > 0):
        raise CliError(
            say("--from {begin} lies after --until {end}: nothing is between them", begin=begin, end=end), USAGE
        )
    return one, other


def reached(wanted: Bookmark | None, option: str, last: int, now: int) -> None:
    """Raises CliError where a log, which ends at ``last`` and a log time, does not come to a position."""
    if wanted is not None and not wanted.reached(last, now):
        raise CliError(
            say(
                "{option} {wanted} lies after the end of this log: sequence {last}, {now} UTC",
                option=option,
                wanted=wanted,
                last=last,
                now=moment(now),
            ),
            NOT_FOUND,
        )


def span_of(text: str, option: str = "--since") -> int:
    """``90s``, ``30m``, ``1h``, ``7d`` in ms. Raises CliError."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal():
        raise CliError(
            say("{option} {words} is no span of time: write 90s, 30m, 1h or 7d", option=option, words=text), USAGE
        )
    return int(number) * UNITS[unit]


class LogClock:
    """Log time while a log is read: the running maximum of its writers' clocks."""

    def __init__(self) -> None:
        self.now = 0

    def tell(self, stored: Stored) -> int:
        self.now = max(self.now, stored.commit.at)
        return self.now


async def until(stream: AsyncIterator[Stored], end: Bookmark | None) -> AsyncIterator[Stored]:
    """The commits up to a position, and with it."""
    clock = LogClock()
    async for stored in stream:
        if end is not None and end.passed(stored.seq, clock.tell(stored)):
            return
        yield stored
