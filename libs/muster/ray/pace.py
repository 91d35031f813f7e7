"""How long an autoscaler takes from tick to tick, and when it is late. Pure.

Ray's second version packs all that waits at every tick: with hundreds of workers a tick may take minutes (ray#57624).
One that is slow is waited for; one that is silent for three of its own ticks stalls.
"""

from __future__ import annotations

from muster.ray.reading import Ticks

TICK_MS = 5_000
"""How often Ray's autoscaler looks."""
STALLED_MS = 6 * TICK_MS
"""An autoscaler that makes no tick for this long, while there is something to do, is reported."""
LATE = 3
"""So many of its own ticks, where these take longer."""
LONGEST_MS = 300_000
"""No tick counts for more."""


class TickPace:
    """``tick_ms``: how long a tick took lately, where the log knows that already."""

    def __init__(self, tick_ms: int = 0) -> None:
        self._lately = tick_ms
        self._ticks: Ticks | None = None
        self._at = 0
        self._version = 0
        self._broken = True

    @property
    def tick_ms(self) -> int:
        """How long a tick takes, in a few steps, so that it seldom changes; 0 where it takes no time to speak of."""
        step = 2 * TICK_MS
        while step < self._lately:
            step *= 2
        return step if self._lately > 2 * TICK_MS else 0

    def missed(self) -> None:
        """A reading failed: how long the next tick took is not known."""
        self._broken = True

    def note(self, ticks: Ticks, now: int, *, version: int = 0, launching: bool = False) -> None:
        """What a reading says; a tick that is quick again halves what is remembered.

        ``version``: of the state of the head; each reading makes a newer one. A head takes no report of an
        autoscaler that was restarted until that has changed as much as the one before. So where a client besides us
        looks it counts as a tick; unless launches are open: an autoscaler that fails because of them looks as well.
        """
        looked = 0 < self._version < version - 1 and not launching
        self._version = version
        if ticks == self._ticks:
            self._at = now if looked else self._at
            return
        if not self._broken:
            self._lately = max(min(now - self._at, LONGEST_MS), self._lately // 2)
        self._ticks, self._at, self._broken = ticks, now, False

    def late(self, now: int) -> bool:
        """Whether the next tick should have been made by now."""
        return now - self._at > max(STALLED_MS, LATE * self._lately)
