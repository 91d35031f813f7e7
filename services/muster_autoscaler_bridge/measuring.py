"""Readings of heads as metrics."""

from __future__ import annotations

from muster.ray.reader import OnRead
from muster.telemetry.metrics import Metrics, labels


def measured(metrics: Metrics) -> OnRead:
    """What counts readings by source and outcome, and how long they take."""

    def on_read(source: str, outcome: str, seconds: float) -> None:
        metrics.count("muster_ray_readings", labels(source=source, outcome=outcome))
        metrics.observe("muster_ray_reading_duration_seconds", labels(source=source), seconds)

    return on_read
