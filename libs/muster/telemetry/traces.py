"""Traces: one span per commit, linked to the spans of the commits its events name as causes.

The context of a span travels in the header ``traceparent`` beside the commit, never inside it, so that a replay
compares equal. Without an OTLP endpoint nothing is recorded and no header is written.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags, Tracer

from muster.events.base import Event

REMEMBERED = 20_000
"""Commits whose span contexts are kept to link to."""


def make_tracer(
    service: str, environ: Mapping[str, str] | None = None, exporter: SpanExporter | None = None
) -> Tracer | None:
    """A tracer that exports by OTLP where OTEL_EXPORTER_OTLP_ENDPOINT (or _TRACES_ENDPOINT) says; None without one."""
    variables = os.environ if environ is None else environ
    if exporter is None:
        if not any(variables.get(f"OTEL_EXPORTER_OTLP_{kind}ENDPOINT") for kind in ("", "TRACES_")):
            return None
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # slow to import

        exporter = OTLPSpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": f"muster-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider.get_tracer("muster")


class CommitTraces:
    """The spans of one stage's commits."""

    def __init__(self, tracer: Tracer | None, stage: str) -> None:
        self._tracer = tracer
        self._stage = stage
        self._contexts: OrderedDict[int, SpanContext] = OrderedDict()
        self._open: Span | None = None

    def remember(self, seq: int, traceparent: str) -> None:
        """A commit that was read carries this context."""
        context = parse_traceparent(traceparent) if traceparent and self._tracer else None
        if context is not None:
            self._contexts[seq] = context
            if len(self._contexts) > REMEMBERED:
                self._contexts.popitem(last=False)

    def begin(self, events: Sequence[Event]) -> dict[str, str]:
        """Open the span of a commit about to be appended; returns the headers that carry it."""
        if self._tracer is None:
            return {}
        causes = sorted({cause[0] for event in events if (cause := getattr(event, "cause", None)) is not None})
        contexts = [self._contexts[seq] for seq in causes if seq in self._contexts]
        parent = trace.set_span_in_context(trace.NonRecordingSpan(contexts[0])) if contexts else None
        span = self._tracer.start_span(
            f"{self._stage} commit",
            context=parent,
            kind=SpanKind.PRODUCER,
            links=[Link(context) for context in contexts],
            attributes={
                "messaging.system": "nats",
                "messaging.operation.type": "send",
                "muster.stage": self._stage,
                "muster.events": [type(event).__name__ for event in events[:16]],
            },
        )
        self._open = span
        return {"traceparent": format_traceparent(span.get_span_context())}

    def end(self, seq: int) -> None:
        """The commit is in the log at ``seq``."""
        if self._open is not None:
            self._open.set_attribute("muster.sequence", seq)
            self._open.end()
            self._open = None


def format_traceparent(context: SpanContext) -> str:
    """W3C Trace Context: ``00-<trace id>-<span id>-<flags>``."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def parse_traceparent(text: str) -> SpanContext | None:
    """The span context a header names; None when it is none."""
    parts = text.split("-")
    if len(parts) != 4 or [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
