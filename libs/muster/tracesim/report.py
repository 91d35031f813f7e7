"""report.html: what came of a simulation at a glance. One file: styles and plots are inside, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from muster.model.text import clean, span
from muster.tracesim.compared import bought, charts, curve, keys, style_of, time_plot
from muster.tracesim.limits import too_large_text
from muster.tracesim.metrics import mean, percentile
from muster.tracesim.model import GPU, WHOLE
from muster.tracesim.runner import Result
from muster.tracesim.stops import ALL_OF_THEM
from muster.tracesim.svg import Plot, Series, drawn, legend
from muster.tracesim.sweep import waits
from muster.tracesim.timeline import Timeline

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
    body = [f"<h1>Simulation: {escape(title)}</h1>", _about(results[0]), _table(results)]
    if len(results) == 1:
        body += [*_grid(_waits(results), *_over_time(results[0].timeline)), *_by_queue(results[0], results[0].timeline)]
    else:
        body += [bought(results), *_grid(_waits(results), *charts(results))]
    body += _waits_by_size(results)
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
    never = too_large_text(result.trace)
    warning = f"<p class=warning>{escape(never)}.</p>" if never else ""
    return f"<p>{escape('; '.join(parts))}.</p>{warning}"


def _table(results: Sequence[Result]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for _, title in _COLUMNS)
    rows = "".join(f"<tr>{_row(result, linked=len(results) > 1)}</tr>" for result in results)
    bound = results[0].metrics.jct_lower_bound_s
    note = f"<p class=note>No policy can have a mean until done under {_span(bound)}.</p>" if bound else ""
    return _wide(head, rows) + note


def _wide(head: str, rows: str) -> str:
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _row(result: Result, *, linked: bool) -> str:
    """``linked``: to the report of that policy alone."""
    name = escape(result.policy)
    cells = [f'<td><a href="{name}/report.html">{name}</a></td>' if linked else f"<td>{name}</td>"]
    cells += [f"<td>{escape(_cell(key, getattr(result.metrics, key)))}</td>" for key, _ in _COLUMNS[1:]]
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
    delays = []
    for job in result.trace.jobs:
        past = result.history.jobs.get(job.id)
        if past is not None and more < job.gpus / WHOLE <= most and (wait := waits(past, job)) is not None:
            delays.append(wait)
    return sorted(delays)


def _grid(*figures: str) -> list[str]:
    """Charts side by side, as many as the window has room for."""
    return ["<div class=charts>", *figures, "</div>"]


def _waits(results: Sequence[Result]) -> str:
    """How many waited how long."""
    delays = [_delays(result) for result in results]
    longest = max((curve[-1] for curve in delays if curve), default=1.0)
    plot = Plot(
        title="Jobs that waited at most so long, in percent",
        x_title="waited, s (logarithmic)",
        y_title="%",
        x_min=1.0,
        x_max=max(longest, 10.0),
        y_max=100.0,
        log=True,
        series=[
            Series(result.policy, _cumulative(curve), style=style_of(index))
            for index, (result, curve) in enumerate(zip(results, delays, strict=True))
        ],
    )
    named = legend(keys(results)) if len(results) > 1 else ""
    return f"<figure><h2>Waits</h2>{drawn(plot)}{named}</figure>"


def _waits_by_size(results: Sequence[Result]) -> list[str]:
    """The means by gang size."""
    rows = []
    for result in results:
        cells = [f"<td>{escape(result.policy)}</td>"]
        for _, more, most in SIZES:
            drawn = _delays(result, more, most)
            cells.append(f"<td>{_span(mean(drawn))}</td><td>{_span(percentile(drawn, 95))}</td><td>{len(drawn)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{name}: mean</th><th>95 %</th><th>jobs</th>" for name, _, _ in SIZES)
    table = _wide(f"<th>policy</th>{head}", "".join(rows))
    return ["<h2>Waits by size</h2>", table]


def _cumulative(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """At most 200 points of the distribution of ordered values."""
    if not ordered:
        return []
    count = len(ordered)
    picks = sorted({round(index * (count - 1) / 199) for index in range(200)})
    return [(max(ordered[pick], 1.0), 100.0 * (pick + 1) / count) for pick in picks]


# --- over time --------------------------------------------------------------------------------------------------


def _over_time(timeline: Timeline) -> list[str]:
    """How the cluster was used, and how often work was stopped."""
    most = max([*timeline.capacity, *timeline.busy, 1.0])
    use = time_plot(timeline, "GPUs in use, of those there are; asked for (cut off at twice the cluster)", most * 1.05)
    use.series = [
        Series("in use", curve(timeline, timeline.busy), style="area"),
        Series("there are", curve(timeline, timeline.capacity), style="guide"),
        Series("asked for", curve(timeline, [min(asked, 2 * most) for asked in timeline.asked]), style="c1"),
    ]
    use.y_max = min(max([most, *timeline.asked]), 2 * most) * 1.05
    named = legend([("area", "in use"), ("guide", "there are"), ("c1", "asked for")])
    evicted = _evictions(timeline) if any(timeline.evictions) else "<p>No job was evicted.</p>"
    return [
        f"<figure><h2>Utilisation</h2>{drawn(use)}{named}</figure>",
        f"<figure><h2>Evictions</h2>{evicted}</figure>",
    ]


def _by_queue(result: Result, timeline: Timeline) -> list[str]:
    """What each queue used, asked for and is guaranteed."""
    parts = ["<h2>Share against guarantee</h2>"]
    parts.append(legend([("area", "in use"), ("c1", "asked for"), ("guide", "guaranteed")]))
    parts.append("<div class=grid>")
    parts += [_queue(result, timeline, path) for path in list(timeline.used)[:MAX_QUEUES]]
    parts.append("</div>")
    if len(timeline.used) > MAX_QUEUES:
        parts.append(f"<p class=note>{len(timeline.used) - MAX_QUEUES} more queues are not shown.</p>")
    if timeline.cut:
        parts.append(
            f"<p class=note>Shown is the time up to {span(timeline.end)}; after that only what was left ran out.</p>"
        )
    return parts


def _evictions(timeline: Timeline) -> str:
    plot = time_plot(timeline, f"Evictions per {span(round(timeline.width))}", max(timeline.evictions) * 1.1)
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
    plot = time_plot(timeline, f"{clean(queue.name)}: GPUs in use, asked for, guaranteed", most)
    plot.width, plot.height = 372, 170
    plot.series = [
        Series("in use", curve(timeline, used), style="area"),
        Series("asked for", curve(timeline, [min(value, most) for value in wanted]), style="c1"),
        Series("guaranteed", [(0.0, low), (float(timeline.end), low)], style="guide"),
    ]
    return f"<figure><figcaption>{escape(clean(queue.name))}</figcaption>{drawn(plot)}</figure>"
