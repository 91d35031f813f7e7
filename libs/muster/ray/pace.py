"""The time of an autoscaler from tick to tick, and its lateness. Pure.

Ray's second version packs all waiting demand at every tick: with hundreds of workers a tick may take minutes
(ray#57624). A slow autoscaler is waited for; an autoscaler silent for three of its own ticks stalls.
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
        """The time of a tick, in a few steps, so that the value seldom changes; 0 for a short tick."""
        step = 2 * TICK_MS
        while step < self._lately:
            step *= 2
        return step if self._lately > 2 * TICK_MS else 0

    def missed(self) -> None:
        """A reading failed: how long the next tick took is not known."""
        self._broken = True

    def note(self, ticks: Ticks, now: int, *, version: int = 0, launching: bool = False) -> None:
        """Take in a reading; a quick tick halves the remembered time.

        ``version``: of the state of the head; each reading makes a newer version. A head takes no report of a
        restarted autoscaler until the report has changed as often as the former autoscaler's. So the look of another
        client counts as a tick; unless launches are open: an autoscaler that fails because of open launches looks as
        well.
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
