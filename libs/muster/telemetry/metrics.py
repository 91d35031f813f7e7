"""Metrics of a process, in Prometheus' text format. Names and labels are bounded: stages, queues, never workloads.

Counters and gauges are plain numbers that telemetry reads when it is asked for them: counting an event costs one
dict update, whatever the exporter does with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WAIT_SECONDS = (0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200)

Labels = tuple[tuple[str, str], ...]

COUNTERS: dict[str, str] = {
    "muster_commits": "Commits appended, by stage, shard and kind",
    "muster_events": "Events appended, by stage and type",
    "muster_commits_folded": "Commits folded, by stage and shard",
    "muster_void_commits": "Void commits that were passed over, by stage and shard; `muster log voids` lists them",
    "muster_invariant_violations": "Broken invariants found at run time: any is a defect",
    "muster_decision_circles": "Times a stage went on deciding though nothing changed: any is a defect",
    "muster_admitted_workloads": "Admissions, by queue",
    "muster_denied_workloads": "Denials by quota, by queue and resource",
    "muster_charges_beyond_grant": "Times more came to run of a job than it was granted, by queue",
    "muster_kube_requests": "Requests to the API server, by verb, resource and code",
    "muster_watch_restarts": "Ends of lists and watches, by resource and reason",
    "muster_ray_alarms": "Alarms raised about Ray clusters that scale themselves, by reason",
    "muster_ray_readings": "Readings of Ray heads, by source and outcome",
}
GAUGES: dict[str, str] = {
    "muster_stage_lag_batches": "Batches read and not folded yet, by stage and shard",
    "muster_stage_sequence": "Last sequence folded, by stage and shard",
    "muster_leader": "1 while this process leads, by stage and shard",
    "muster_snapshot_sequence": "Sequence of the last snapshot kept, by stage and shard",
    "muster_log_fill_percent": "How full the log is; at 95 nothing new is admitted",
    "muster_queue_fair_share": "Fair share of a KAI queue, by queue and resource: cores, bytes or devices",
    "muster_queue_keeps": "Up to where nothing is taken back from a KAI queue, by queue and resource",
    "muster_queue_used": "What is charged to a KAI queue, by queue and resource",
    "muster_queue_used_lately": "What a KAI queue used lately as a part of what there was, where that counts",
    "muster_queue_asked": "What runs and waits in a KAI queue, by queue and resource",
    "muster_watch_ready": "1 while what is known of a resource is complete and kept up to date",
    "muster_watch_objects": "Objects held, by resource",
}


def labels(**values: str) -> Labels:
    """Label names and values in the order given; make them once where they are used often."""
    return tuple(values.items())


class Metrics:
    """All instruments of one process and where they are read."""

    def __init__(self, service: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        provider = MeterProvider(
            metric_readers=[reader], resource=Resource.create({"service.name": f"muster-{service}"})
        )
        meter: Meter = provider.get_meter("muster")
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in (*COUNTERS, *GAUGES)}
        for name, description in COUNTERS.items():
            meter.create_observable_counter(name, [self._reader(name)], description=description)
        for name, description in GAUGES.items():
            meter.create_observable_gauge(name, [self._reader(name)], description=description)
        self.append_duration: Histogram = meter.create_histogram(
            "muster_append_duration",
            unit="s",
            description="From making a commit to its acknowledgement, by stage and shard",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.admission_wait: Histogram = meter.create_histogram(
            "muster_admission_wait_time",
            unit="s",
            description="From queued to admitted, by queue",
            explicit_bucket_boundaries_advisory=WAIT_SECONDS,
        )
        self.kube_duration: Histogram = meter.create_histogram(
            "muster_kube_request_duration",
            unit="s",
            description="Requests to the API server, by verb and resource",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.ray_duration: Histogram = meter.create_histogram(
            "muster_ray_reading_duration",
            unit="s",
            description="Readings of Ray heads, by source",
            explicit_bucket_boundaries_advisory=SECONDS,
        )

    def count(self, name: str, key: Labels, more: float = 1) -> None:
        """Add to a counter of COUNTERS."""
        values = self._values[name]
        values[key] = values.get(key, 0) + more

    def set(self, name: str, key: Labels, value: float) -> None:
        """Set a gauge of GAUGES."""
        self._values[name][key] = value

    def render(self) -> bytes:
        """The metrics page."""
        return generate_latest(self._registry)

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        values = self._values[name]

        def read(_options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, dict(key)) for key, value in values.items()]

        return read
