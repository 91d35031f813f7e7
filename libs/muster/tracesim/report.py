"""report.html: what came of a simulation at a glance. One file: styles and plots are inside, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from muster.model.text import clean, span
from muster.tracesim.metrics import mean, percentile
from muster.tracesim.model import GPU, WHOLE
from muster.tracesim.runner import Result
from muster.tracesim.stops import ALL_OF_THEM
from muster.tracesim.svg import Plot, Series, drawn, legend
from muster.tracesim.sweep import waits
from muster.tracesim.timeline import Timeline

HOUR_MS = 3_600_000
SIZES = (("1 GPU or less", 0, 1), ("2 to 7", 1, 7), ("8 and more", 7, 10**9))
"""(name, more GPUs than, at most)"""
MAX_QUEUES = 24
"""Plots of single queues; the others are left out."""

_COLUMNS = (
    ("policy", "policy"),
    ("jct_mean_s", "mean until done"),
    ("queue_delay_mean_s", "mean wait"),
    ("queue_delay_p95_s", "95 % wait"),
    ("queue_delay_max_s", "longest wait"),
    ("bounded_slowdown_mean", "slowdown"),
    ("goodput_utilisation", "goodput"),
    ("fairness_jain", "fairness"),
    ("fairness_min", "worst share"),
    ("evictions", "evictions"),
    ("wasted_gpu_s", "lost GPU h"),
)


def write_report(path: Path, results: Sequence[Result]) -> None:
    """Write the page. With one result also how its queues fared over time."""
    title = results[0].policy if len(results) == 1 else "policies compared"
    body = [f"<h1>Simulation: {escape(title)}</h1>", _about(results[0]), _table(results), *_waits(results)]
    body += _over_time(results[0], results[0].timeline) if len(results) == 1 else _side_by_side(results)
    style = files("muster.tracesim").joinpath("report.css").read_text(encoding="utf-8")
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Muster simulation: {escape(title)}</title><style>{style}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )
    path.write_text(page, encoding="utf-8")


def _about(result: Result) -> str:
    cluster = result.trace.cluster
    gpus = cluster.capacity.get(GPU, 0) / WHOLE
    options = result.options
    parts = [
        f"{len(result.trace.jobs)} jobs in {len(cluster.leaves)} queues on {cluster.nodes} nodes with {gpus:g} GPUs",
        f"seed {options.seed}",
    ]
    if options.until is not None:
        parts.append(f"stopped after {span(options.until)}")
    stops = options.stops
    if stops.checkpoint is not None:
        parts.append("stops lose nothing" if not stops.checkpoint else f"a checkpoint every {span(stops.checkpoint)}")
    if stops.checkpointing < ALL_OF_THEM:
        parts.append(f"of {stops.checkpointing / ALL_OF_THEM:.0%} of the jobs")
    if options.faults.rows:
        parts.append(f"{len(options.faults.rows)} faults")
    return f"<p>{escape('; '.join(parts))}.</p>"


def _table(results: Sequence[Result]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for _, title in _COLUMNS)
    rows = "".join(f"<tr>{_row(result)}</tr>" for result in results)
    bound = results[0].metrics.jct_lower_bound_s
    note = f"<p class=note>No policy can have a mean until done under {_span(bound)}.</p>" if bound else ""
    return _wide(head, rows) + note


def _wide(head: str, rows: str) -> str:
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _row(result: Result) -> str:
    cells = []
    for name, _ in _COLUMNS:
        value = result.policy if name == "policy" else getattr(result.metrics, name)
        cells.append(f"<td>{escape(_cell(name, value))}</td>")
    return "".join(cells)


def _cell(name: str, value: str | int | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if name == "wasted_gpu_s":
        return f"{value / 3600:.1f}"
    if name.endswith("_s"):
        return _span(value)
    if name in ("goodput_utilisation", "fairness_min"):
        return f"{value * 100:.1f} %"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(round(seconds * 1000))


# --- waits ------------------------------------------------------------------------------------------------------


def _delays(result: Result, more: float = -1, most: float = 10**9) -> list[float]:
    found = []
    for job in result.trace.jobs:
        past = result.history.jobs.get(job.id)
        if past is not None and more < job.gpus / WHOLE <= most and (wait := waits(past, job)) is not None:
            found.append(wait)
    return sorted(found)


def _waits(results: Sequence[Result]) -> list[str]:
    """How many waited how long, and the means by gang size."""
    delays = [_delays(result) for result in results]
    longest = max((each[-1] for each in delays if each), default=1.0)
    plot = Plot(
        title="Jobs that waited at most so long, in percent",
        x_title="waited, s (logarithmic)",
        y_title="%",
        x_min=1.0,
        x_max=max(longest, 10.0),
        y_max=100.0,
        log=True,
        series=[
            Series(result.policy, _cumulative(each), style=f"c{index % 10}")
            for index, (result, each) in enumerate(zip(results, delays, strict=True))
        ],
    )
    keys = [(f"c{index % 10}", result.policy) for index, result in enumerate(results)]
    rows = []
    for result in results:
        cells = [f"<td>{escape(result.policy)}</td>"]
        for _, more, most in SIZES:
            found = _delays(result, more, most)
            cells.append(f"<td>{_span(mean(found))}</td><td>{_span(percentile(found, 95))}</td><td>{len(found)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}: mean</th><th>95 %</th><th>jobs</th>" for name, _, _ in SIZES)
    table = _wide(f"<th>policy</th>{head}", "".join(rows))
    return ["<h2>Waits</h2>", drawn(plot), legend(keys) if len(results) > 1 else "", table]


def _cumulative(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """At most 200 points of the distribution of ordered values."""
    if not ordered:
        return []
    count = len(ordered)
    picks = sorted({round(index * (count - 1) / 199) for index in range(200)})
    return [(max(ordered[pick], 1.0), 100.0 * (pick + 1) / count) for pick in picks]


# --- over time --------------------------------------------------------------------------------------------------


def _curve(timeline: Timeline, values: Sequence[float]) -> list[tuple[float, float]]:
    return [((index + 0.5) * timeline.width, value) for index, value in enumerate(values)]


def _over_time(result: Result, timeline: Timeline) -> list[str]:
    most = max([*timeline.capacity, *timeline.busy, 1.0])
    use = _time_plot(timeline, "GPUs in use, of those there are; asked for (cut off at twice the cluster)", most * 1.05)
    use.series = [
        Series("in use", _curve(timeline, timeline.busy), style="area"),
        Series("there are", _curve(timeline, timeline.capacity), style="guide"),
        Series("asked for", _curve(timeline, [min(asked, 2 * most) for asked in timeline.asked]), style="c1"),
    ]
    use.y_max = min(max([most, *timeline.asked]), 2 * most) * 1.05
    parts = ["<h2>Utilisation</h2>", drawn(use)]
    parts.append(legend([("area", "in use"), ("guide", "there are"), ("c1", "asked for")]))
    parts += ["<h2>Share against guarantee</h2>"]
    parts.append(legend([("area", "in use"), ("c1", "asked for"), ("guide", "guaranteed")]))
    parts.append("<div class=grid>")
    parts += [_queue(result, timeline, path) for path in list(timeline.used)[:MAX_QUEUES]]
    parts.append("</div>")
    if len(timeline.used) > MAX_QUEUES:
        parts.append(f"<p class=note>{len(timeline.used) - MAX_QUEUES} more queues are not shown.</p>")
    parts.append("<h2>Evictions</h2>")
    parts.append(_evictions(timeline) if any(timeline.evictions) else "<p>Nobody was evicted.</p>")
    if timeline.cut:
        parts.append(
            f"<p class=note>Shown is the time up to {span(timeline.end)}; after that only what was left ran out.</p>"
        )
    return parts


def _evictions(timeline: Timeline) -> str:
    plot = _time_plot(timeline, f"Evictions per {span(round(timeline.width))}", max(timeline.evictions) * 1.1)
    plot.bars = [
        (index * timeline.width, (index + 1) * timeline.width, count) for index, count in enumerate(timeline.evictions)
    ]
    plot.y_title = "evictions"
    return drawn(plot)


def _queue(result: Result, timeline: Timeline, path: str) -> str:
    """What one queue used, asked for and is guaranteed."""
    queue = result.trace.cluster.queues[path]
    low = queue.min.get(GPU, 0) / WHOLE
    used, wanted = timeline.used[path], timeline.wanted[path]
    most = max([*used, low, 1.0]) * 1.25
    plot = _time_plot(timeline, f"{clean(queue.name)}: GPUs in use, asked for, guaranteed", most)
    plot.width, plot.height = 372, 170
    plot.series = [
        Series("in use", _curve(timeline, used), style="area"),
        Series("asked for", _curve(timeline, [min(value, most) for value in wanted]), style="c1"),
        Series("guaranteed", [(0.0, low), (float(timeline.end), low)], style="guide"),
    ]
    return f"<figure><figcaption>{escape(clean(queue.name))}</figcaption>{drawn(plot)}</figure>"


def _time_plot(timeline: Timeline, title: str, most: float) -> Plot:
    hours = timeline.end <= 72 * HOUR_MS
    return Plot(
        title=title,
        x_title="hours" if hours else "days",
        y_title="GPUs",
        x_max=float(timeline.end),
        y_max=most,
        x_scale=float(HOUR_MS if hours else 24 * HOUR_MS),
    )


def _side_by_side(results: Sequence[Result]) -> list[str]:
    """Use of the cluster and evictions of several policies, one small plot each."""
    parts = ["<h2>GPUs in use</h2>", legend([("area", "in use"), ("guide", "there are")]), "<div class=grid>"]
    for result in results:
        timeline = result.timeline
        plot = _time_plot(timeline, f"{result.policy}: GPUs in use", max([*timeline.capacity, 1.0]) * 1.05)
        plot.width, plot.height = 372, 170
        plot.series = [
            Series("in use", _curve(timeline, timeline.busy), style="area"),
            Series("there are", _curve(timeline, timeline.capacity), style="guide"),
        ]
        link = f'<a href="{escape(result.policy)}/report.html">{escape(result.policy)}</a>'
        parts.append(f"<figure><figcaption>{link}</figcaption>{drawn(plot)}</figure>")
    return [*parts, "</div>"]
