"""The same trace otherwise: denser, larger, wider, backwards, one queue: rules tuned on one trace are not done."""

from __future__ import annotations

from fractions import Fraction

from msgspec.structs import replace

from muster.model.resources import Vector
from muster.tracesim.model import Trace, TraceCluster, TraceJob, TraceQueue

MERGED = "all"


def closer(trace: Trace, times: Fraction) -> Trace:
    """Arrivals ``times`` as dense: 13/10 lets the same jobs come in 10/13 of the time."""
    return Trace(trace.cluster, tuple(replace(job, submit=int(job.submit / times)) for job in trace.jobs))


def larger(trace: Trace, times: Fraction) -> Trace:
    """Jobs that ask for ``times`` as much, rounded up; none for more than its queue and the cluster could ever give."""
    return Trace(trace.cluster, tuple(_larger(trace.cluster, job, times) for job in trace.jobs))


def _larger(cluster: TraceCluster, job: TraceJob, times: Fraction) -> TraceJob:
    most = dict(cluster.capacity)
    for path, queue in cluster.queues.items():
        if f"{job.queue}/".startswith(f"{path}/"):
            most |= {name: min(amount, most.get(name, amount)) for name, amount in queue.max.items()}
    request: Vector = {}
    for name, amount in job.request.items():
        asked = -int(-amount * times // 1)
        request[name] = min(asked, max(most.get(name, asked), amount))
    return replace(job, request=request)


def wider(trace: Trace, times: Fraction) -> Trace:
    """The first three of every twenty jobs, 15 %, ask for ``times`` as much, as far as :func:`larger` lets them."""
    larger_jobs = larger(trace, times).jobs
    jobs = zip(trace.jobs, larger_jobs, strict=True)
    return Trace(trace.cluster, tuple(wide if at % 20 < 3 else job for at, (job, wide) in enumerate(jobs)))


def backwards(trace: Trace) -> Trace:
    """The last job comes first: the same gaps between arrivals in the other order."""
    last = max((job.submit for job in trace.jobs), default=0)
    return Trace(trace.cluster, tuple(replace(job, submit=last - job.submit) for job in reversed(trace.jobs)))


def merged(trace: Trace) -> Trace:
    """All jobs in one queue with the whole capacity."""
    whole = trace.cluster.capacity
    queue = TraceQueue(name=MERGED, path=f"root/{MERGED}", min=whole, max=whole)
    cluster = replace(trace.cluster, root=replace(trace.cluster.root, children=(queue,)), policies={})
    return Trace(cluster, tuple(replace(job, queue=queue.path) for job in trace.jobs))


def without_guarantees(trace: Trace) -> Trace:
    """The same queues, of which none is promised anything: any job may use all there is."""
    cluster = trace.cluster
    children = tuple(_promised_nothing(child) for child in cluster.root.children)
    return Trace(replace(cluster, root=replace(cluster.root, children=children)), trace.jobs)


def _promised_nothing(queue: TraceQueue) -> TraceQueue:
    return replace(queue, min={}, children=tuple(_promised_nothing(child) for child in queue.children))
