"""The results of jobs, counted by queue from the public events: each event is published once, by one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from muster.events import public
from muster.model.quota import is_device
from muster.model.resources import parse_quantity
from muster.telemetry.metrics import Metrics, labels

EVICTED_FOR: tuple[public.EvictedFor, ...] = get_args(public.EvictedFor)


def begin(metrics: Metrics, queue: str) -> None:
    """Show the counters of a queue as 0 before their first event: Prometheus sees no growth of a new series."""
    metrics.count("muster_admitted_workloads", labels(queue=queue), 0)
    for reason in EVICTED_FOR:
        metrics.count("muster_evicted_workloads", labels(queue=queue, reason=reason), 0)


def count(metrics: Metrics, event: public.PublicEvent) -> None:
    """Note one event."""
    match event:
        case public.PublicWorkloadAdmitted():
            metrics.count("muster_admitted_workloads", labels(queue=event.queue))
            _spread(metrics, "muster_admission_wait_time_seconds", event.queue, event.waited_ms)
        case public.PublicWorkloadStarted():
            _spread(metrics, "muster_start_time_seconds", event.queue, event.started_ms)
        case public.PublicWorkloadEvicted():
            metrics.count("muster_evicted_workloads", labels(queue=event.queue, reason=event.reason))
            _lost(metrics, event.queue, event.request, event.ran_ms)
        case public.PublicWorkloadHeldUp():
            metrics.count("muster_held_up_workloads", labels(queue=event.queue, cause=event.cause))
        case public.PublicWorkloadFinished():
            key = labels(queue=event.queue, outcome=event.outcome, cause=event.cause)
            metrics.count("muster_finished_workloads", key)
            if event.outcome != "succeeded":
                _lost(metrics, event.queue, event.request, event.ran_ms)
        case _:
            pass


def _spread(metrics: Metrics, name: str, queue: str, ms: int | None) -> None:
    if ms is not None:
        metrics.observe(name, labels(queue=queue), ms / 1000)


def _lost(metrics: Metrics, queue: str, request: Mapping[str, str], ms: int | None) -> None:
    """The work of a run that has to be done again."""
    for name, text in request.items():
        if ms and is_device(name):
            spent = parse_quantity(text, name) * ms / 1e6
            metrics.count("muster_lost_seconds", labels(queue=queue, resource=name), spent)
