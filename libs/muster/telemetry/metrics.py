"""Metrics of a process, in Prometheus' text format. Names and labels are bounded: stages, queues, never workloads.

What is counted costs one dict update; what is a property of a state is read from it when the page is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS

if TYPE_CHECKING:
    from muster.told.views.measures import Labels, Measure


def labels(**values: str) -> Labels:
    """Label names and values in the order given; make them once where they are used often."""
    return tuple(values.items())


class Metrics(Collector):
    """All instruments of one process and where they are read."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counts: dict[str, dict[Labels, float]] = {name: {} for name in COUNTERS}
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in GAUGES}
        self._sources: list[Callable[[], Iterable[Measure]]] = []
        self._histograms = {
            name: Histogram(name, row.help, row.labels, registry=self.registry, buckets=row.buckets)
            for name, row in HISTOGRAMS.items()
        }
        self.registry.register(self)

    def count(self, name: str, key: Labels, more: float = 1) -> None:
        """Add to a counter of COUNTERS."""
        values = self._counts[name]
        values[key] = values.get(key, 0) + more

    def set(self, name: str, key: Labels, value: float) -> None:
        """Set a gauge of GAUGES."""
        self._values[name][key] = value

    def observe(self, name: str, key: Labels, value: float) -> None:
        """Add to a histogram of HISTOGRAMS."""
        self._histograms[name].labels(**dict(key)).observe(value)

    def read_from(self, source: Callable[[], Iterable[Measure]]) -> None:
        """Have the page show the gauges of a source as they are when it is asked for."""
        self._sources.append(source)

    def collect(self) -> Iterable[Metric]:
        """For prometheus_client: every counter and gauge that has a value."""
        shown = {name: dict(values) for name, values in self._values.items()}
        for source in self._sources:
            for name, key, value in source():
                shown[name][key] = value
        for name, values in self._counts.items():
            yield from _family(CounterMetricFamily, name, COUNTERS[name], values)
        for name, values in shown.items():
            yield from _family(GaugeMetricFamily, name, GAUGES[name], values)

    def describe(self) -> Iterable[Metric]:
        """Names are checked when they are read, not before: nothing has a value yet."""
        return []

    def render(self) -> bytes:
        """The metrics page."""
        return generate_latest(self.registry)


def _family(
    made: Callable[..., CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    values: dict[Labels, float],
) -> Iterable[Metric]:
    """One family; the labels of all its samples have the same names."""
    if not values:
        return
    family = made(name, text, labels=[label for label, _ in next(iter(values))])
    for key, value in values.items():
        family.add_metric([text for _, text in key], value)
    yield family
