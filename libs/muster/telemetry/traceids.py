"""Names of traces and spans, derived from the log alone: every process finds the same names without a message.

A workload is a trace, from submission to end. The events of a commit about the workload are one span of the trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from muster.core.workloads.registry import is_job
from muster.events.base import Event
from muster.events.decisions import CandidatesProposed, EvictionOrdered
from muster.events.facts import ObjectGone, WorkloadGone, WorkloadObserved
from muster.model.keys import Ref


def trace_id(uid: str) -> int:
    """The trace of a workload."""
    return _number(f"muster/{uid}", 16)


def root_id(uid: str) -> int:
    """The span of a workload from submission to end."""
    return _number(f"muster/{uid}/root", 8)


def span_id(uid: str, generation: int, seq: int) -> int:
    """The span of a workload in the commit at a position."""
    return _number(f"muster/{uid}/{generation}/{seq}", 8)


def traceparent(uid: str, generation: int, seq: int) -> str:
    """W3C Trace Context of that span: ``00-<trace id>-<span id>-01``."""
    return f"00-{trace_id(uid):032x}-{span_id(uid, generation, seq):016x}-01"


def root_traceparent(uid: str) -> str:
    """The same of the whole trace."""
    return f"00-{trace_id(uid):032x}-{root_id(uid):016x}-01"


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "big") or 1


def workloads_of(event: Event) -> Iterator[Ref]:
    """The workloads an event is about."""
    match event:
        case WorkloadObserved():
            yield event.workload.ref
        case CandidatesProposed():
            yield from (candidate.ref for candidate in event.candidates)
        case EvictionOrdered():
            yield event.ref
            yield from (victim.ref for victim in event.victims)
        case ObjectGone() if not isinstance(event, WorkloadGone):
            return  # What a workload runs through has the kind of a workload, and is none.
        case _:
            ref = getattr(event, "ref", None)
            if isinstance(ref, Ref) and is_job(ref.kind):
                yield ref
