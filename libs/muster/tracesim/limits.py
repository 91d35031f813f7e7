"""Jobs that no policy can start: their request exceeds the limit of their queue, or the whole cluster."""

from __future__ import annotations

from muster.model.resources import format_quantity
from muster.model.text import clean, counted
from muster.tracesim.model import Trace, TraceJob

SHOWN = 3


def too_large(trace: Trace) -> list[tuple[TraceJob, str, str, int]]:
    """(job, resource, owner of the limit, limit) of each job that can never start."""
    too_big = []
    for job in trace.jobs:
        limits = [(name, "the cluster", amount) for name, amount in trace.cluster.capacity.items()]
        for path, queue in trace.cluster.queues.items():
            if queue is not trace.cluster.root and f"{job.queue}/".startswith(f"{path}/"):
                limits += [(name, f"queue {queue.name}", amount) for name, amount in queue.max.items()]
        broken = next((limit for limit in limits if job.request.get(limit[0], 0) > limit[2]), None)
        if broken is not None:
            too_big.append((job, *broken))
    return too_big


def too_large_text(trace: Trace) -> str:
    """One sentence; empty where every job fits."""
    listed = too_large(trace)
    if not listed:
        return ""
    shown = [_text(*entry) for entry in listed[:SHOWN]]
    more = f", and {counted(len(listed) - SHOWN, 'more job')}" if len(listed) > SHOWN else ""
    return f"{counted(len(listed), 'job')} can never start, whatever the policy: {'; '.join(shown)}{more}"


def _text(job: TraceJob, name: str, owner: str, limit: int) -> str:
    asked = format_quantity(job.request[name], name)
    return f"{clean(job.id)} asks for {name} {asked}, and {clean(owner)} has {format_quantity(limit, name)}"
