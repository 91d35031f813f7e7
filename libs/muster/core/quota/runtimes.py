"""Declared run times: what a job says of how long it runs at most, and by when it has left if that is true."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.objects.labels import RUN_TIME
from muster.core.quota.rules import RuleError, span_ms

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

AROUND_MS = 2 * MINUTE_MS
"""To start and to stop take so long beside each declared run time: its charge begins before and ends after it."""


def run_time_ms(labels: Mapping[str, str]) -> int:
    """How long a job declares to run, rounded up to few steps: jobs of one request and one step are refused together.

    Minutes up to an hour, five minutes up to six, half hours up to a day, then hours. 0 where it declares nothing that
    can be read.
    """
    said = labels.get(RUN_TIME, "") if labels else ""
    if not said:
        return 0
    try:
        declared = span_ms(said)
    except RuleError:
        return 0
    step = HOUR_MS
    if declared <= HOUR_MS:
        step = MINUTE_MS
    elif declared <= 6 * HOUR_MS:
        step = 5 * MINUTE_MS
    elif declared <= DAY_MS:
        step = 30 * MINUTE_MS
    return -(-declared // step) * step


def left_by(at: int, run_ms: int) -> int:
    """Log time (ms) by which a job that takes its quota at ``at`` has left; 0 where it declares no run time."""
    return at + run_ms + AROUND_MS if run_ms else 0
