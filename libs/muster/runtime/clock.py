"""The machine's clock, behind the port: nothing else in the runners reads it."""

from __future__ import annotations

import time


class SystemClock:
    """ms since the epoch, by the machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000
