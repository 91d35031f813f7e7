"""How many questions and streams a viewer of the gateway may have at once, and all viewers together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MOST_QUESTIONS = 4
"""Questions that look ahead, for one viewer at once: one question is answered, the others wait."""
MOST_ALL_QUESTIONS = 64
MOST_STREAMS = 64
"""Streams of one viewer at once."""
MOST_ALL_STREAMS = 4_096


class TooManyError(Exception):
    """The viewer, or all viewers together, have the most questions or streams that are allowed."""


class UnderWay:
    """Counts the open questions or streams, by viewer and in all. ``what``: the noun in a refusal."""

    def __init__(self, subject: str, most: int, most_all: int) -> None:
        self._what = subject
        self._most = most
        self._most_all = most_all
        self._counts: Counter[str] = Counter()

    @contextmanager
    def one(self, viewer: str) -> Iterator[None]:
        """Count one more, until the block ends. Raises TooManyError."""
        if self._counts[viewer] >= self._most:
            raise TooManyError(f"you have {self._most} {self._what} under way; end one of them, or wait for it")
        if self._counts.total() >= self._most_all:
            raise TooManyError(f"{self._most_all} {self._what} are under way, as many as there may be; try again later")
        self._counts[viewer] += 1
        try:
            yield
        finally:
            self._counts[viewer] -= 1
            if not self._counts[viewer]:
                del self._counts[viewer]
