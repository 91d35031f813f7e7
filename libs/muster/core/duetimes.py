"""When something may be due: the next moment is found without a look at the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from msgspec import Struct, field


class DueTimes(Struct):
    """Log times (ms) by the key of the thing they belong to."""

    at: dict[str, int] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)
    """sorted (log time, key)"""

    def put(self, key: str, at: int) -> None:
        """It has this moment from here on, in place of the one it had; 0: none."""
        before = self.at.pop(key, None)
        if before is not None:
            del self.order[bisect_left(self.order, (before, key))]
        if at:
            self.at[key] = at
            insort(self.order, (at, key))

    def first(self) -> int | None:
        """The first of all."""
        return self.order[0][0] if self.order else None

    def after(self, now: int) -> Iterator[tuple[int, str]]:
        """(log time, key) of those to come, in order."""
        for at in range(bisect_right(self.order, (now + 1,)), len(self.order)):
            yield self.order[at]
