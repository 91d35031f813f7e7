"""A promised start for programs."""

from __future__ import annotations

from typing import Any

from muster.core.codes.values import Promise
from muster.core.promising.calibration import KEPT_PERCENT
from muster.model.text import instant


def promise_record(found: Promise) -> dict[str, Any] | None:
    """For programs; None where there is no promise."""
    if found.why:
        return None
    return {
        "start": instant(found.start),
        "latest": instant(found.latest),
        "percent": KEPT_PERCENT,
        "settled": found.settled,
        "kept": found.kept,
    }
