"""How deep a run looks: `make check` tries a part of the examples of a long property, every other run all of them."""

import os

FEW = os.environ.get("MUSTER_TEST_EXAMPLES") == "few"
PART, LEAST = 4, 10
"""A short run tries one example of so many, and so many of a property in any case."""


def examples(count: int, *, least: int = LEAST) -> int:
    """How many of ``count`` examples this run tries."""
    return max(count // PART, min(count, least)) if FEW else count
