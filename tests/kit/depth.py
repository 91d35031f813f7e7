"""How deep a run looks: `make check` at few examples of a long property, `make nightly` at every point of a run."""

import os

FEW = os.environ.get("MUSTER_TEST_EXAMPLES") == "few"
DEEP = os.environ.get("MUSTER_TEST_EXAMPLES") == "deep"
PART, LEAST = 4, 10
"""A short run tries one example of so many, and so many of a property in any case."""
STRIDE = 7
"""A run that is not deep tries one point of so many: the await points of a start and of an end come round in turn."""


def examples(count: int, *, least: int = LEAST) -> int:
    """How many of ``count`` examples this run tries."""
    return max(count // PART, min(count, least)) if FEW else count


def points(first: int, end: int, step: int = 1) -> range:
    """The points from ``first`` to ``end`` that this run tries: all in a deep run, else one of STRIDE."""
    return range(first, end, step if DEEP else STRIDE)
