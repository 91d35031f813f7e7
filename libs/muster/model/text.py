"""Texts for people: foreign texts made harmless, times and spans in readable form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from muster.model.language import counted, listed, lower, say, upper

__all__ = ["clean", "counted", "few", "instant", "lower", "moment", "shorten", "span", "upper"]

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that control a terminal, turn the direction of a text, break its lines, or are there and not seen."""


def clean(text: str) -> str:
    """A text without control and unseen characters: text from users must not steer a terminal or forge a line.

    A single character replaces each removed character, so the length stays.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("\ufffd", text)


def shorten(text: str, limit: int) -> str:
    """A text of at most ``limit`` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


UNITS = {"ms": "{number} ms", "s": "{number} s", "min": "{number} min", "h": "{number} h", "d": "{number} d"}
"""The messages of spans of time."""


def span(ms: int) -> str:
    """A span of time in words: ``250 ms``, ``9.8 s``, ``3 min 12 s``, ``5 h 4 min``, ``2 d 3 h``."""
    if ms < 0:
        return "-" + span(-ms)
    if ms < 1000:
        return say(UNITS["ms"], number=ms)
    tenths = ms // 100
    if tenths < 600:
        exact = tenths % 10 and tenths < 200
        return say(UNITS["s"], number=f"{tenths // 10}.{tenths % 10}" if exact else tenths // 10)
    seconds = ms // 1000
    for size, large, unit, small in ((3600, "min", 60, "s"), (86400, "h", 3600, "min"), (0, "d", 86400, "h")):
        if not size or seconds < size:
            step = {"s": 1, "min": 60, "h": 3600}[small]
            whole, rest = say(UNITS[large], number=seconds // unit), seconds % unit // step
            return f"{whole} {say(UNITS[small], number=rest)}" if rest else whole
    raise AssertionError("the last row takes everything")


def moment(ms: int) -> str:
    """A time for people, UTC with ms: ``2025-01-10 01:36:24.641``."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{ms % 1000:03d}"


def instant(ms: int) -> str:
    """A time for programs, RFC 3339 in UTC with ms: ``2025-01-10T01:36:24.641Z``."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"


def few(names: Sequence[str], beyond: int = 0) -> str:
    """The first five of many: ``a, b, c, d, e, and 3 more``. ``beyond``: how many there are beside these."""
    hidden = max(0, len(names) - 5) + beyond
    return say("{names}, and {hidden} more", names=listed(names[:5]), hidden=hidden) if hidden else listed(names[:5])
