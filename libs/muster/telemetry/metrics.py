"""Metrics of a process, in Prometheus' text format. Names and labels are bounded: stages, queues, never workloads."""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.metrics import _Gauge as Gauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WAIT_SECONDS = (0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200)


class Metrics:
    """All instruments of one process and where they are read."""

    def __init__(self, service: str) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        provider = MeterProvider(
            metric_readers=[reader], resource=Resource.create({"service.name": f"muster-{service}"})
        )
        meter: Meter = provider.get_meter("muster")
        self.commits: Counter = meter.create_counter(
            "muster_commits", description="Commits appended, by stage and kind"
        )
        self.events: Counter = meter.create_counter("muster_events", description="Events appended, by stage and type")
        self.folded: Counter = meter.create_counter("muster_commits_folded", description="Commits folded, by stage")
        self.append: Histogram = meter.create_histogram(
            "muster_append_duration",
            unit="s",
            description="From making a commit to its acknowledgement",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.lag: Gauge = meter.create_gauge(
            "muster_stage_lag_batches", description="Batches read and not folded yet, by stage"
        )
        self.sequence: Gauge = meter.create_gauge("muster_stage_sequence", description="Last sequence folded, by stage")
        self.leader: Gauge = meter.create_gauge("muster_leader", description="1 while this process leads, by stage")
        self.violations: Counter = meter.create_counter(
            "muster_invariant_violations", description="Broken invariants found at run time: any is a defect"
        )
        self.restless: Counter = meter.create_counter(
            "muster_decision_circles", description="Times a stage went on deciding though nothing changed"
        )
        self.snapshot: Gauge = meter.create_gauge(
            "muster_snapshot_sequence", description="Sequence of the last snapshot kept, by stage"
        )
        self.pending: Gauge = meter.create_gauge("muster_pending_workloads", description="Waiting workloads, by queue")
        self.admitted: Counter = meter.create_counter("muster_admitted_workloads", description="Admissions, by queue")
        self.refusals: Counter = meter.create_counter(
            "muster_denied_workloads", description="Denials by quota, by queue and resource"
        )
        self.admission_wait: Histogram = meter.create_histogram(
            "muster_admission_wait_time",
            unit="s",
            description="From queued to admitted, by queue",
            explicit_bucket_boundaries_advisory=WAIT_SECONDS,
        )
        self.kube_requests: Counter = meter.create_counter(
            "muster_kube_requests", description="Requests to the API server, by verb, resource and code"
        )
        self.kube_duration: Histogram = meter.create_histogram(
            "muster_kube_request_duration",
            unit="s",
            description="Requests to the API server, by verb and resource",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.watch_restarts: Counter = meter.create_counter(
            "muster_watch_restarts", description="Ends of lists and watches, by resource and reason"
        )
        self.watch_ready: Gauge = meter.create_gauge(
            "muster_watch_ready", description="1 while what is known of a resource is complete and kept up to date"
        )
        self.watch_objects: Gauge = meter.create_gauge("muster_watch_objects", description="Objects held, by resource")
        self.published: Counter = meter.create_counter("muster_published_events", description="Public events, by type")

    def render(self) -> bytes:
        """The metrics page."""
        return generate_latest(self._registry)
