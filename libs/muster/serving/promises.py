"""A promised start for programs."""

from __future__ import annotations

from typing import Any

from muster.core.promising.promises import KEPT_PERCENT
from muster.model.text import instant
from muster.told.codes.values import Promise


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
        "first": instant(found.first) if found.first else None,
    }
