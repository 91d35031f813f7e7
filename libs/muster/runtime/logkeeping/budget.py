"""The part of the log that a stage may write in ten minutes. Pure: the keeper measures and acts.

A stage writes more by a defect, or by a key in other hands. Such a stage is closed for ten minutes, and then open
again without a person; the other stages have the rest of the room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from muster.bus.shares import LogUsage

WINDOW_S = 600.0
"""The time in which a stage has its budget, and for which one beyond it is closed."""


class Budget:
    """``percent``: of a generation; 0: no stage has a limit."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._history: deque[tuple[float, LogUsage]] = deque()
        self.closed: dict[str, float] = {}
        """{stage: the time at which it is opened again}"""

    def look(self, now: float, filled: LogUsage) -> tuple[int, int] | None:
        """Take in the fill of the log at a time (s). The (sequence after which, bytes) of a growth to look into.

        None: all stages together wrote less than the part of one stage.
        """
        for stage in filled.closed:
            self.closed.setdefault(stage, now + WINDOW_S)  # Another keeper closed it.
        while self._history and self._history[0][0] < now - WINDOW_S:
            self._history.popleft()
        self._history.append((now, filled))
        before = self._history[0][1]
        grown = filled.bytes - before.bytes
        return (before.last_seq, grown) if 0 < self._limit(filled) < grown else None

    def beyond(self, now: float, filled: LogUsage, grown: int, shares: Mapping[str, float]) -> dict[str, int]:
        """{stage: bytes} of the stages beyond their part, closed from now on."""
        over = {
            stage: int(share * grown)
            for stage, share in sorted(shares.items())
            if share * grown > self._limit(filled) and stage != "genesis"
        }
        if over:
            self.closed |= dict.fromkeys(over, now + WINDOW_S)
            self._history.clear()
        return over

    def over(self, now: float) -> list[str]:
        """The stages whose time is over: they are open from now on."""
        ended = [stage for stage, until in self.closed.items() if until <= now]
        for stage in ended:
            del self.closed[stage]
        return ended

    def _limit(self, filled: LogUsage) -> int:
        return max(filled.max_bytes, 0) * self._percent // 100
