"""How long to wait before the next try. Pure: chance comes from the generator passed in."""

from __future__ import annotations

from random import Random

BASE_S = 0.8
CAP_S = 30.0
AWAY_CAP_S = 4.0
"""Longest wait for a server that cannot be reached, or says 5xx: to ask costs it little then, and a client that waits
longer goes on waiting when it is back."""
STARTING_S = 120.0
"""For so long after a server was away, what it forbids may be due to its own start: it has read no rights yet."""


class Backoff:
    """Jittered exponential back-off: the n-th wait in a row is at most min(cap, base x 2^n) seconds.

    It is drawn evenly from ``floor`` x that ceiling upwards; the default, 0, is full jitter.
    """

    def __init__(self, rng: Random, *, base_s: float = BASE_S, cap_s: float = CAP_S, floor: float = 0.0) -> None:
        self._rng = rng
        self._base_s = base_s
        self._cap_s = cap_s
        self._floor = floor
        self._ceiling_s = base_s

    def next_s(self) -> float:
        """Seconds to wait now."""
        ceiling = self._ceiling_s
        self._ceiling_s = min(self._cap_s, ceiling * 2.0)
        return self._rng.uniform(self._floor * ceiling, ceiling)

    def reset(self) -> None:
        """The try succeeded: the next wait is short again."""
        self._ceiling_s = self._base_s
