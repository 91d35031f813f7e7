"""The cluster over time, in equal spans: the data of the plots of a report."""

from __future__ import annotations

from muster.tracesim.history import History
from muster.tracesim.model import WHOLE, Trace
from muster.tracesim.sweep import Moment

SPANS = 240
DRAIN = 1.5
"""What comes later than the last arrival by this factor is left out: a few long jobs that run out say nothing."""


class Timeline:
    """Means per span, in GPUs; ``watch`` takes the moments of a sweep."""

    def __init__(self, trace: Trace, history: History, spans: int = SPANS) -> None:
        last = max((job.submit for job in history.jobs.values()), default=0)
        self.end = max(1, min(history.end, round(last * DRAIN) or history.end))
        self.cut = history.end > self.end
        self.spans = spans
        self.width = self.end / spans
        self.capacity = [0.0] * spans
        self.asked = [0.0] * spans
        self.used = {path: [0.0] * spans for path in trace.cluster.leaves}
        self.wanted = {path: [0.0] * spans for path in trace.cluster.leaves}
        self.evictions = [0] * spans
        for job in history.jobs.values():
            for run in job.runs:
                if run.outcome == "evicted" and run.end < self.end:
                    self.evictions[min(int(run.end / self.width), spans - 1)] += 1

    def watch(self, moment: Moment) -> None:
        """Add what held between two changes to the spans it lies in."""
        begin, end = float(moment.begin), min(moment.end, self.end)
        total = sum(moment.asked.values())
        while begin < end:
            index = min(int(begin / self.width), self.spans - 1)
            border = end if index == self.spans - 1 else min(end, (index + 1) * self.width)
            part = (border - begin) / self.width / WHOLE
            self.capacity[index] += moment.capacity * part
            self.asked[index] += total * part
            for path, used in moment.used.items():
                if used:
                    self.used[path][index] += used * part
                if moment.asked[path]:
                    self.wanted[path][index] += moment.asked[path] * part
            if border <= begin:
                return
            begin = border

    @property
    def busy(self) -> list[float]:
        """GPUs in use by all queues together."""
        return [sum(values) for values in zip(*self.used.values(), strict=True)]
