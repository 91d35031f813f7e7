"""A promised start for programs."""

from __future__ import annotations

from typing import Any

from muster.core.learned import KEPT_PERCENT
from muster.model.text import instant
from muster.told.codes.values import Promise


def promise_record(promise: Promise) -> dict[str, Any] | None:
    """For programs; None where there is no promise."""
    if promise.why:
        return None
    return {
        "start": instant(promise.start),
        "latest": instant(promise.latest),
        "percent": KEPT_PERCENT,
        "settled": promise.settled,
        "kept": promise.kept,
        "first": instant(promise.first) if promise.first else "",
    }
