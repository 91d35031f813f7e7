"""One simulation from a trace to its figures, and several to be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from muster.events.envelope import Stored
from muster.model.resources import Vector
from muster.runtime.logkeeping.logfile import LogWriter
from muster.tracesim.cell import Cell
from muster.tracesim.engine import Engine
from muster.tracesim.faults import FaultSchedule
from muster.tracesim.history import History
from muster.tracesim.metrics import JobCounts, SimulationMetrics, alone_jobs, counts, mean, measure
from muster.tracesim.model import NodeGroup, Trace, TraceCluster, TraceQueue
from muster.tracesim.policies import POLICIES, BestEffortFifo
from muster.tracesim.stops import COSTLY, FREE, Stops
from muster.tracesim.sweep import waits
from muster.tracesim.timeline import Timeline

MUSTER = "muster"
ALL = (MUSTER, *POLICIES)
"""Every policy: the real stages first."""


class Options(Struct, frozen=True, kw_only=True):
    """How a trace is run. ``until`` in ms."""

    seed: int = 0
    until: int | None = None
    stops: Stops = COSTLY
    faults: FaultSchedule = FaultSchedule()


class Result(Struct, kw_only=True):
    """What came of one policy."""

    policy: str
    options: Options
    trace: Trace
    history: History
    jobs: JobCounts
    metrics: SimulationMetrics
    timeline: Timeline

    @property
    def stops(self) -> Stops:
        """What a stop cost under this policy."""
        return stops_of(self.policy, self.options)


def stops_of(policy: str, options: Options) -> Stops:
    """Ideal policies stop without loss, whatever the options say."""
    ideal = policy != MUSTER and POLICIES[policy]().ideal
    return FREE if ideal else options.stops


def simulate(
    trace: Trace,
    policy: str,
    options: Options,
    *,
    log: Path | None = None,
    alone: Mapping[str, float] | None = None,
    progress: Callable[[int], None] | None = None,
    hears: Callable[[Stored], None] | None = None,
) -> Result:
    """Run a trace under a policy. ``log``: file that gets every commit, as ``hears`` does. ``alone``: see
    :func:`delays_alone`.
    """
    history = History()
    with ExitStack() as stack:
        writer = stack.enter_context(LogWriter.to(log)) if log is not None else None

        def sink(stored: Stored) -> None:
            history.fold(stored)
            if writer is not None:
                writer.write(stored)
            if hears is not None:
                hears(stored)

        run = _engine(trace, policy, options, sink)
        run.run(options.until, progress)
    if options.until is not None and any(job.end < 0 for job in history.jobs.values()):
        history.end = max(history.end, options.until)
    if alone is None:
        alone = delays_alone(trace)
    timeline = Timeline(trace, history)
    metrics = measure(trace, history, stops=stops_of(policy, options), alone=dict(alone), watch=timeline.watch)
    return Result(
        policy=policy,
        options=options,
        trace=trace,
        history=history,
        jobs=counts(history),
        metrics=metrics,
        timeline=timeline,
    )


def _engine(trace: Trace, policy: str, options: Options, sink: Callable[[Stored], None]) -> Cell | Engine:
    if policy == MUSTER:
        return Cell(trace, sink, seed=options.seed, stops=options.stops, faults=options.faults)
    return Engine(trace, POLICIES[policy](), sink, seed=options.seed, stops=options.stops, faults=options.faults)


def delays_alone(trace: Trace) -> dict[str, float]:
    """Queue -> mean delay of its jobs on a cluster of its min without other queues, started in order as they fit.

    Queues whose min runs none of their jobs are left out, and so is a queue that is alone anyway.
    """
    if len(trace.cluster.leaves) < 2:
        return {}
    return {path: delay for path in trace.cluster.leaves if (delay := _delay_alone(trace, path)) is not None}


def _delay_alone(trace: Trace, path: str) -> float | None:
    jobs = tuple(job for job in alone_jobs(trace, path) if job.duration is not None)
    low = trace.cluster.queues[path].min
    capacity: Vector = {name: low.get(name, amount) for name, amount in trace.cluster.capacity.items()}
    if not jobs or not any(low.values()):
        return None
    root = trace.cluster.leaves[path]
    while root.path != "root":
        above = root.path.rpartition("/")[0]
        root = TraceQueue(name=above.rpartition("/")[2], path=above, min=capacity, max=capacity, children=(root,))
    own = Trace(TraceCluster((NodeGroup(1, capacity),), root), jobs)
    history = History()
    Engine(own, BestEffortFifo(), history.fold).run()
    rows = [waits(history.jobs[job.id], job) for job in jobs if job.id in history.jobs]
    return mean([wait for wait in rows if wait is not None])
