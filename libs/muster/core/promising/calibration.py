"""What projections are worth: how long jobs really waited, against what was projected for them.

Kept is a histogram of scores: the waits there were over the waits that were projected, as logarithms. A promise is the
projected wait times a quantile of that. Which quantile it takes to keep nine promises of ten is learned as well: each
broken promise raises it, each kept one lowers it, nine times as slowly, so that it comes to rest where one of ten is
broken. Waits that go together (a whole batch of jobs) make the plain quantile too low; this corrects it from the log
alone. In integers; memory is bounded, and what is long ago counts less and less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

KEPT_PERCENT = 90
"""How many of a hundred promises are to be kept."""
UNIT = 1024
"""Scores of one doubling."""
WIDTH = 64
"""Scores that one count represents."""
REMEMBERED = 4096
"""Scores at which all counts are halved."""
ENOUGH = 20
"""Ended waits that a promise rests on at least."""
FLOOR_MS = 60_000
"""Added to both waits before they are compared: a few seconds more or less say nothing."""
MILLION = 1_000_000
LOWEST = 700_000
"""The quantile, in millionths, below which it is not lowered."""
BEYOND = UNIT // 2
"""Added to the highest score where even that is too low."""
STEP = 100
"""Millionths by which a kept promise lowers it."""


class Calibration(Struct):
    """``scores``: number of a class of scores -> how many waits were so much longer than projected."""

    scores: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """The sum of ``scores``."""
    level: int = MILLION * KEPT_PERCENT // 100
    """The quantile that bounds are taken from, in millionths."""
    kept: int = 0
    broken: int = 0
    """Promises that were kept, and not, since the log began."""

    @property
    def ready(self) -> bool:
        return self.total >= ENOUGH

    def waited(self, projected: int, wait: int) -> None:
        """A wait (ms) is over that was projected to last so long."""
        number = score_of(projected, wait)
        self.scores[number] = self.scores.get(number, 0) + 1
        self.total += 1
        if self.total >= REMEMBERED:
            self.scores = {each: count // 2 for each, count in self.scores.items() if count > 1}
            self.total = sum(self.scores.values())

    def settled(self, *, kept: bool) -> None:
        """It is known now of a promise whether it was kept."""
        self.kept += kept
        self.broken += not kept
        less, more = STEP, STEP * KEPT_PERCENT // (100 - KEPT_PERCENT)
        self.level = max(self.level - less, LOWEST) if kept else min(self.level + more, MILLION)

    def scale(self, lasting: Iterable[tuple[int, int]]) -> Scale:
        """How to read projections now. ``lasting``: (projected wait, waited so far) of the waits that are not over."""
        still: dict[int, int] = {}
        for projected, so_far in lasting:
            number = score_of(projected, so_far)
            still[number] = still.get(number, 0) + 1
        return Scale(self._quantile(still, MILLION // 2), self._quantile(still, self.level))

    def _quantile(self, still: Mapping[int, int], level: int) -> int:
        """The score that so many waits do not exceed, in millionths, those counted in that last as long as they like.

        It is the product-limit estimate (Kaplan and Meier): to leave out the waits that go on would say that waits
        are short, for the short ones are over first.
        """
        longer, beyond = self.total + sum(still.values()), MILLION
        numbers = sorted({*self.scores, *still})
        for number in numbers:
            over = self.scores.get(number, 0)
            if over:
                beyond = beyond * (longer - over) // longer
            if beyond <= MILLION - level:
                return (number + 1) * WIDTH
            longer -= over + still.get(number, 0)
        return (numbers[-1] + 1) * WIDTH + BEYOND if numbers else 0


class Scale(Struct, frozen=True):
    """The amounts to add to the logarithm of a projected wait for the median of real waits, and for the bound."""

    half: int
    most: int

    def middle(self, projected: int) -> int:
        """The wait (ms) that as many exceed as do not."""
        return _scaled(projected, self.half)

    def bound(self, projected: int) -> int:
        """The wait (ms) that is promised not to be exceeded, never below :meth:`middle`."""
        return _scaled(projected, max(self.most, self.half))


def score_of(projected: int, wait: int) -> int:
    """The number of the class of scores of a wait, both in ms."""
    return (_log(wait + FLOOR_MS) - _log(projected + FLOOR_MS)) // WIDTH


def _scaled(projected: int, score: int) -> int:
    return max(_power(max(_log(projected + FLOOR_MS) + score, 0)) - FLOOR_MS, 0)


def _log(number: int) -> int:
    """The logarithm to base 2 of a positive integer, in UNITs: exact for powers of 2, straight between them."""
    length = number.bit_length() - 1
    return UNIT * length + ((number * UNIT) >> length) - UNIT


def _power(log: int) -> int:
    """The integer whose logarithm that is, rounded down."""
    length, part = divmod(log, UNIT)
    return ((UNIT + part) << length) // UNIT
