"""The machine's clock, behind the port: nothing else in the runners reads it."""

from __future__ import annotations

import time

from muster.ports import Clock


class SystemClock:
    """ms since the epoch, by the machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class WarpedClock:
    """A clock that begins at ``start`` (ms since the epoch) and runs ``speed`` times as fast as another."""

    def __init__(self, base: Clock, *, start: int, speed: float) -> None:
        self._base = base
        self._began = base.now()
        self._start = start
        self._speed = speed

    def now(self) -> int:
        return self._start + int((self._base.now() - self._began) * self._speed)
