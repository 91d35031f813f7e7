"""Several policies on one page: a chart of all for each question, and the gains and costs of one against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import accumulate

from muster.model.text import span
from muster.tracesim.model import GPU, WHOLE
from muster.tracesim.runner import MUSTER, Result
from muster.tracesim.svg import Plot, Series, drawn, legend
from muster.tracesim.timeline import Timeline

HOUR_MS = 3_600_000

Values = Callable[[Result], Sequence[float]]
"""A figure of a policy in each span of its timeline."""


def style_of(number: int) -> str:
    """The colour of a policy, by its place among them."""
    return f"c{number % 10}"


def keys(results: Sequence[Result]) -> list[tuple[str, str]]:
    return [(style_of(number), result.policy) for number, result in enumerate(results)]


def time_plot(timeline: Timeline, title: str, most: float, unit: str = "GPUs") -> Plot:
    """Axes over the time of a timeline."""
    hours = timeline.end <= 72 * HOUR_MS
    return Plot(
        title=title,
        x_title="hours" if hours else "days",
        y_title=unit,
        x_max=float(timeline.end),
        y_max=most,
        x_scale=float(HOUR_MS if hours else 24 * HOUR_MS),
    )


def curve(timeline: Timeline, values: Sequence[float]) -> list[tuple[float, float]]:
    return [((index + 0.5) * timeline.width, value) for index, value in enumerate(values)]


def charts(results: Sequence[Result]) -> list[str]:
    """One chart for each question, with a line for each policy."""
    return [
        _chart(results, "How much of the cluster works", "GPUs in use", _busy, guide=_capacity),
        _chart(results, "How much of the guarantees is kept from jobs that ask", "GPU hours so far", _kept_from),
        _chart(results, "How often work is stopped", "evictions so far", _evictions),
    ]


def _chart(results: Sequence[Result], question: str, unit: str, values: Values, guide: Values | None = None) -> str:
    longest = max((result.timeline for result in results), key=lambda timeline: timeline.end)
    lines = [
        Series(result.policy, curve(result.timeline, values(result)), style=style_of(number))
        for number, result in enumerate(results)
    ]
    if guide is not None:
        lines.append(Series("there are", curve(longest, guide(results[0])), style="guide"))
    most = max((value for line in lines for _, value in line.points), default=0.0)
    plot = time_plot(longest, question, max(most, 1.0) * 1.05, unit)
    plot.series = lines
    named = [*keys(results), *([("guide", "there are")] if guide is not None else [])]
    return f"<figure><h2>{escape(question)}</h2>{drawn(plot)}{legend(named)}</figure>"


def _busy(result: Result) -> Sequence[float]:
    return result.timeline.busy


def _capacity(result: Result) -> Sequence[float]:
    return result.timeline.capacity


def _evictions(result: Result) -> Sequence[float]:
    return [float(total) for total in accumulate(result.timeline.evictions)]


def _kept_from(result: Result) -> Sequence[float]:
    """What queues are guaranteed, ask for and do not have, all together."""
    timeline, total = result.timeline, [0.0] * result.timeline.spans
    for path, used in timeline.used.items():
        least = result.trace.cluster.queues[path].min.get(GPU, 0) / WHOLE
        for index, (has, asks) in enumerate(zip(used, timeline.wanted[path], strict=True)):
            total[index] += max(min(least, asks) - has, 0.0)
    return [hours * timeline.width / HOUR_MS for hours in accumulate(total)]


def bought(results: Sequence[Result]) -> str:
    """The advantages of Muster's policy over each other policy, and their price; empty if Muster's did not run."""
    ours = next((result for result in results if result.policy == MUSTER), None)
    rows = [_against(ours, other) for other in results if other is not ours] if ours is not None else []
    listed = "".join(f"<li>{escape(text)}</li>" for text in rows)
    return f"<h2>What {MUSTER} gains, and what that costs</h2><ul>{listed}</ul>" if rows else ""


def _against(ours: Result, other: Result) -> str:
    mine, its = ours.metrics, other.metrics
    parts = []
    if mine.queue_delay_mean_s is not None and its.queue_delay_mean_s is not None:
        parts.append(_wait(its.queue_delay_mean_s - mine.queue_delay_mean_s))
    guarded = its.guarantee_violation_gpu_s - mine.guarantee_violation_gpu_s
    parts.append(_hours(guarded, "{} GPU hours more of the guarantees", "{} GPU hours less of the guarantees"))
    more = mine.evictions - its.evictions
    parts.append(f"{abs(more)} evictions {'more' if more > 0 else 'fewer'}" if more else "as many evictions")
    parts.append(_hours(mine.wasted_gpu_s - its.wasted_gpu_s, "{} GPU hours more lost", "{} GPU hours fewer lost"))
    return f"Against {other.policy}: {', '.join(part for part in parts if part)}."


def _wait(less: float) -> str:
    if not round(less):
        return "as long waits"
    return f"mean wait {span(round(abs(less) * 1000))} {'shorter' if less > 0 else 'longer'}"


def _hours(gpu_s: float, more: str, less: str) -> str:
    hours = gpu_s / 3600
    return (more if hours > 0 else less).format(f"{abs(hours):.1f}") if abs(hours) >= 0.05 else ""
