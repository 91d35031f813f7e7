"""Traces: one per workload, with a span for each commit about the workload, linked to the spans of its causes.

Ids are derived from the log (telemetry.traceids), so nothing has to be handed on. Only the leader that appended a
commit records the commit's spans, after the acknowledgement: replays and standbys record nothing. The header
``traceparent`` beside a commit shows that the commit was traced, and is no part of the commit.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted, WorkloadQueued
from muster.events.envelope import Commit
from muster.events.facts import WorkloadFinished, WorkloadObserved
from muster.model.keys import Ref
from muster.model.resources import format_vector
from muster.telemetry.traceids import root_id, root_traceparent, span_id, trace_id, workloads_of

REMEMBERED = 50_000
"""Commits of which the subject is known, to link to, and workloads of which is known when they began."""

_MS = 1_000_000
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Ids(IdGenerator):
    """Gives out the ids that were set."""

    trace = 1
    span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Tracing:
    """A tracer, the ids of its spans, and the exporter."""

    def __init__(self, provider: TracerProvider, ids: Ids) -> None:
        self.provider = provider
        self.tracer: Tracer = provider.get_tracer("muster")
        self.ids = ids


def make_tracing(
    service: str, environ: Mapping[str, str] | None = None, exporter: SpanExporter | None = None
) -> Tracing | None:
    """Tracing with export by OTLP, for OTEL_EXPORTER_OTLP_ENDPOINT (or _TRACES_ENDPOINT); None without an endpoint."""
    variables = os.environ if environ is None else environ
    if exporter is None:
        if not any(variables.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT") for kind in ("", "TRACES_")):
            return None
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # slow to import

        exporter = OTLPSpanExporter()
    ids = Ids()
    provider = TracerProvider(resource=Resource.create({"service.name": f"muster-{service}"}), id_generator=ids)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, ids)


class WorkloadTraces:
    """The spans of one stage. ``generation_of``: of a sequence of the log."""

    def __init__(self, tracing: Tracing | None, stage: str, generation_of: Callable[[int], int]) -> None:
        self._tracing = tracing
        self._stage = stage
        self._generation_of = generation_of
        self._about: OrderedDict[int, tuple[str, ...]] = OrderedDict()
        self._began: OrderedDict[str, int] = OrderedDict()
        self._waits: OrderedDict[str, int] = OrderedDict()
        """uid of a waiting workload -> since when (ms)"""

    def folded(self, seq: int, commit: Commit) -> None:
        """A commit was read: the workloads it is about."""
        if self._tracing is None:
            return
        uids = dict.fromkeys(ref.uid for event in commit.events for ref in workloads_of(event))
        if uids:
            self._about[seq] = tuple(uids)
            if len(self._about) > REMEMBERED:
                self._about.popitem(last=False)
        for event in commit.events:
            if isinstance(event, WorkloadQueued):  # A job that ran before has waited since it was queued again.
                self._waits[event.ref.uid] = event.queued_at if event.attempt == 1 else commit.at
                if len(self._waits) > REMEMBERED:
                    self._waits.popitem(last=False)
            if isinstance(event, WorkloadObserved) and self._stage == "watcher":
                self._began.setdefault(event.workload.ref.uid, event.workload.created or commit.at)
                if len(self._began) > REMEMBERED:
                    self._began.popitem(last=False)

    def header(self, events: Sequence[Event]) -> dict[str, str]:
        """Beside a commit about to be appended, with a sequence not known yet: the trace of the first workload."""
        if self._tracing is None:
            return {}
        ref = next((ref for event in events for ref in workloads_of(event)), None)
        return {} if ref is None else {"traceparent": root_traceparent(ref.uid)}

    def appended(self, commit: Commit, seq: int, took_s: float) -> None:
        """A commit of this process is in the log: a span for each workload of the commit."""
        if self._tracing is None:
            return
        self.folded(seq, commit)
        by_uid: dict[str, tuple[Ref, list[Event]]] = {}
        for event in commit.events:
            for ref in workloads_of(event):
                by_uid.setdefault(ref.uid, (ref, []))[1].append(event)
        end = commit.at * _MS + int(took_s * 1e9)
        for uid, (ref, events) in by_uid.items():
            tags = list(dict.fromkeys(str(type(event).__struct_config__.tag) for event in events))
            attempt = max((getattr(event, "attempt", 0) or 0 for event in events), default=0)
            self._record(
                f"{self._stage} {tags[0]}",
                uid,
                span_id(uid, self._generation_of(seq), seq),
                root_id(uid),
                (commit.at * _MS, end),
                SpanKind.PRODUCER,
                {
                    "messaging.system": "nats",
                    "muster.stage": self._stage,
                    "muster.sequence": seq,
                    "muster.generation": self._generation_of(seq),
                    "muster.events": tags,
                    "muster.attempt": attempt,
                    "k8s.namespace.name": ref.namespace,
                    "muster.workload": str(ref),
                    **_numbers(events),
                },
                self._causes(uid, seq, events),
            )
            waits = self._waits.get(uid)
            if waits is not None and any(isinstance(event, GangAdmitted) for event in events):
                own = span_id(uid, self._generation_of(seq), waits)
                about = {"muster.workload": str(ref), "k8s.namespace.name": ref.namespace, **_numbers(events)}
                times = (min(waits, commit.at) * _MS, commit.at * _MS)
                self._record("waits for its admission", uid, own, root_id(uid), times, SpanKind.INTERNAL, about, [])
            if any(isinstance(event, WorkloadFinished) for event in events):
                began = self._began.pop(uid, commit.at)
                about = {"muster.workload": str(ref), "k8s.namespace.name": ref.namespace}
                self._record(str(ref), uid, root_id(uid), 0, (began * _MS, end), SpanKind.INTERNAL, about, [])

    def wrote(self, ref: Ref, cause: Cause, verb: str, times: tuple[int, int], trouble: str) -> None:
        """A request to the API server that carries a decision out: a child of the decision's span."""
        if self._tracing is None:
            return
        parent = span_id(ref.uid, self._generation_of(cause.seq), cause.seq)
        own = span_id(ref.uid, self._generation_of(cause.seq), times[0])
        about = {"http.request.method": verb, "muster.workload": str(ref), "k8s.namespace.name": ref.namespace}
        self._record(f"{verb} {ref.kind}", ref.uid, own, parent, times, SpanKind.CLIENT, about, [], trouble)

    def _causes(self, uid: str, seq: int, events: Sequence[Event]) -> list[Link]:
        causes = dict.fromkeys(
            cause.seq for event in events if isinstance(cause := getattr(event, "cause", None), Cause)
        )
        links: list[Link] = []
        for cause in causes:
            about = self._about.get(cause, ())
            if cause < seq and about:
                of = uid if uid in about else about[0]
                links.append(Link(_context(trace_id(of), span_id(of, self._generation_of(cause), cause))))
        return links

    def _record(
        self,
        name: str,
        uid: str,
        own: int,
        parent: int,
        times: tuple[int, int],
        kind: SpanKind,
        about: Mapping[str, str | int | list[str]],
        links: Sequence[Link],
        trouble: str = "",
    ) -> None:
        assert self._tracing is not None
        self._tracing.ids.trace, self._tracing.ids.span = trace_id(uid), own
        above = Context()
        if parent:
            above = trace.set_span_in_context(NonRecordingSpan(_context(trace_id(uid), parent)), above)
        span = self._tracing.tracer.start_span(
            name, context=above, kind=kind, attributes=dict(about), links=links, start_time=times[0]
        )
        if trouble:
            span.set_status(Status(StatusCode.ERROR, trouble))
        span.end(end_time=max(times))


def _numbers(events: Sequence[Event]) -> dict[str, str]:
    """Queue, reason and request, of events with these fields."""
    attributes: dict[str, str] = {}
    for event in events:
        for name in ("queue", "reason"):
            if value := getattr(event, name, ""):
                attributes[f"muster.{name}"] = str(value)
        if request := getattr(event, "request", None):
            attributes["muster.request"] = format_vector(request)
    return attributes


def _context(trace_number: int, span_number: int) -> SpanContext:
    return SpanContext(trace_number, span_number, is_remote=True, trace_flags=_SAMPLED)
