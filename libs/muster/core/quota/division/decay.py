"""Recent use of queues, counted from the log: parts of the capacity, with more weight for later use.

Charges are summed over log time in BUCKETS equal parts of a sliding window. Use older than the window, or older than
HALVES half-lives, is forgotten. Only whole parts count: the figures change at the end of a part, and at no other time.
All sums are integers, bounded by the number of parts. The rule is KAI Scheduler's (usage by 0.5 ^ (age / half-life),
over the capacity of the nodes, weighed alike); KAI needs a metrics server for this rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt

from msgspec import Struct, field

from muster.model.quota import Rules
from muster.model.resources import Vector, add_into, in_bytes, positive

BUCKETS = 64
HALVES = 8
"""After this many half-lives use counts for less than 1/256."""
LEAST_MS = 1_000
"""The shortest bucket, and so the shortest time between two changes of a figure."""
MILLIONTHS = 1_000_000
STEP = 1_000
"""The step of the figures, in millionths: a smaller change has no effect."""
MOST = 10**10
"""The most of an amount that counts (devices and cores in thousandths, bytes in 2^20): no cluster has as much."""
ONE = 1 << 40
_PARTS = 16
_ROOTS = tuple(isqrt(isqrt(isqrt(isqrt(1 << (40 * _PARTS - part))))) for part in range(_PARTS))
"""ONE x 2 ^ (-each / 16)"""


class PastBucket(Struct):
    """One part of the window: amounts x ms."""

    used: dict[str, Vector] = field(default_factory=dict)
    """leaf -> charged amounts"""
    total: Vector = field(default_factory=dict)
    """The capacity."""


class Lately(Struct):
    """The recent use of one tree's leaves; leaves by uid, so that a moved leaf keeps its past."""

    span: int
    """Length of a bucket, ms."""
    half_life: int
    """ms; 0: all use counts alike"""
    origin: int
    """Log time (ms) at which the first bucket began."""
    since: int
    """Log time (ms) up to which use is counted."""
    past: list[PastBucket] = field(default_factory=list)
    """Whole buckets in order, the newest last; at most BUCKETS."""
    open: PastBucket = field(default_factory=PastBucket)

    def pass_to(self, at: int, used: Mapping[str, Vector], total: Vector) -> bool:
        """Count use up to ``at`` with these charges and this capacity; whether a bucket ended."""
        ended = False
        if at - self.since > (BUCKETS + 1) * self.span:  # all counted use is before the window
            self.since = at - (at - self.origin) % self.span - BUCKETS * self.span
            self.past, self.open = [], PastBucket()
        used, total = _scaled(used), _bounded(total)
        while self.since < at:
            end = self.ends_at()
            until = min(at, end)
            for leaf, amounts in used.items():
                add_into(self.open.used.setdefault(leaf, {}), amounts, until - self.since)
            add_into(self.open.total, total, until - self.since)
            self.since = until
            if until == end:
                self.past = [*self.past, self.open][-BUCKETS:]
                self.open, ended = PastBucket(), True
        return ended

    def ends_at(self) -> int:
        """Log time (ms) at which the open bucket ends."""
        return self.since + self.span - (self.since - self.origin) % self.span

    def weighed(self) -> dict[str, Vector]:
        """Leaf -> the weighed use, in millionths of the capacity, in steps; without leaves of no use."""
        sums: dict[str, Vector] = {}
        whole: Vector = {}
        for age, bucket in enumerate(reversed(self.past)):
            weight = decayed(age * self.span, self.half_life)
            add_into(whole, bucket.total, weight)
            for leaf, amounts in bucket.used.items():
                add_into(sums.setdefault(leaf, {}), amounts, weight)
        weighed: dict[str, Vector] = {}
        for leaf in sorted(sums):
            parts = {name: _part(amount, whole.get(name, 0)) for name, amount in sorted(sums[leaf].items())}
            if counting := {name: part for name, part in parts.items() if part}:
                weighed[leaf] = counting
        return weighed

    def steady(self, used: Mapping[str, Vector], total: Vector) -> bool:
        """Whether the figures stay the same for as long as the charges stay the same."""
        rate, there = _scaled(used), _bounded(total)
        full = PastBucket(
            {leaf: _times(amounts, self.span) for leaf, amounts in rate.items()}, _times(there, self.span)
        )
        gone = (self.since - self.origin) % self.span
        begun = PastBucket({leaf: _times(amounts, gone) for leaf, amounts in rate.items()}, _times(there, gone))
        if not gone:
            begun = PastBucket()
        return (bool(self.past) or not rate) and self.open == begun and all(bucket == full for bucket in self.past)


def lately(rules: Rules, now: int) -> Lately | None:
    """An empty count for a tree from log time ``now`` (ms) on; None where past usage does not count."""
    window, half_life = rules.usage_window_ms, rules.usage_half_life_ms
    if not window:
        return None
    reach = min(window, HALVES * half_life) if half_life else window
    return Lately(max(-(-reach // BUCKETS), LEAST_MS), half_life, now, now)


def decayed(age: int, half_life: int) -> int:
    """The weight of use ``age`` ms ago, ONE for full weight: ONE x 0.5 ^ (age / half-life), in sixteenths of a
    half-life.
    """
    halves, part = divmod(age * _PARTS // half_life, _PARTS) if half_life else (0, 0)
    return _ROOTS[part] >> halves


def _part(amount: int, whole: int) -> int:
    return amount * MILLIONTHS // whole // STEP * STEP if whole else 0


def _scaled(used: Mapping[str, Vector]) -> dict[str, Vector]:
    return {leaf: amounts for leaf, vector in sorted(used.items()) if (amounts := _bounded(vector))}


def _bounded(vector: Vector) -> Vector:
    amounts = {name: min(amount >> 20 if in_bytes(name) else amount, MOST) for name, amount in vector.items()}
    return positive(amounts)


def _times(vector: Vector, times: int) -> Vector:
    return {name: amount * times for name, amount in vector.items()}
