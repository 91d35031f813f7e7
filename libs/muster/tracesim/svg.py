"""Plots as inline SVG: lines, areas and bars with axes, in the colours of their page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct, field

WIDTH = 760
HEIGHT = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 34


class Series(Struct):
    """One curve. ``style``: a class of the page's style sheet: c0 … c9, area, guide."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "c0"
    steps: bool = False


class Plot(Struct, kw_only=True):
    """Curves over one pair of axes. ``log``: the x axis is logarithmic."""

    title: str
    x_title: str
    y_title: str
    series: list[Series] = field(default_factory=list)
    bars: Sequence[tuple[float, float, float]] = ()
    """(from, to, height)"""
    x_max: float
    y_max: float
    x_min: float = 0.0
    log: bool = False
    x_scale: float = 1.0
    """Figures at the x axis are x / this."""
    height: int = HEIGHT
    width: int = WIDTH


def drawn(plot: Plot) -> str:
    """The plot as an ``svg`` element."""
    parts = [
        f'<svg viewBox="0 0 {plot.width} {plot.height}" role="img" aria-label="{escape(plot.title, quote=True)}">',
        f"<title>{escape(plot.title)}</title>",
        *_axes(plot),
    ]
    for begin, end, height in plot.bars:
        if height > 0:
            x, y = _x(plot, begin), _y(plot, height)
            width = max(_x(plot, end) - x - 0.4, 0.6)
            base = plot.height - _BOTTOM
            parts.append(f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{base - y:.1f}"/>')
    return "".join([*parts, *(_curve(plot, series) for series in plot.series), "</svg>"])


def legend(names: Sequence[tuple[str, str]]) -> str:
    """(style, name) pairs as a line of keys."""
    keys = "".join(f'<span class="key"><i class="{style}"></i>{escape(name)}</span>' for style, name in names)
    return f'<p class="legend">{keys}</p>'


def _curve(plot: Plot, series: Series) -> str:
    if not series.points:
        return ""
    points = [(_x(plot, x), _y(plot, y)) for x, y in series.points]
    commands = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        commands.append(f"H{x:.1f}V{y:.1f}" if series.steps else f"L{x:.1f} {y:.1f}")
    base = plot.height - _BOTTOM
    if series.style.startswith("area"):
        commands.append(f"V{base}H{points[0][0]:.1f}Z")
    return f'<path class="{series.style}" d="{"".join(commands)}"><title>{escape(series.name)}</title></path>'


def _axes(plot: Plot) -> list[str]:
    base, right = plot.height - _BOTTOM, plot.width - _RIGHT
    parts = []
    for tick in ticks(plot.y_max):
        y = _y(plot, tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{figure(tick)}</text>')
    for tick in _x_ticks(plot):
        x = _x(plot, tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{base}"/>')
        label = figure(tick / plot.x_scale)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 15}" text-anchor="middle">{label}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{base}H{right}"/>')
    parts.append(
        f'<text class="tick" x="{right}" y="{plot.height - 4}" text-anchor="end">{escape(plot.x_title)}</text>'
    )
    parts.append(f'<text class="tick" x="2" y="{_TOP - 3}">{escape(plot.y_title)}</text>')
    return parts


def _x(plot: Plot, value: float) -> float:
    room = plot.width - _LEFT - _RIGHT
    low, high = plot.x_min, plot.x_max
    if plot.log:
        low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
    part = (value - low) / (high - low) if high > low else 0.0
    return _LEFT + room * min(max(part, 0.0), 1.0)


def _y(plot: Plot, value: float) -> float:
    room = plot.height - _TOP - _BOTTOM
    part = value / plot.y_max if plot.y_max > 0 else 0.0
    return plot.height - _BOTTOM - room * min(max(part, 0.0), 1.0)


def _x_ticks(plot: Plot) -> list[float]:
    if not plot.log:
        return [tick * plot.x_scale for tick in ticks(plot.x_max / plot.x_scale, 8)]
    first, last = math.ceil(math.log10(plot.x_min)), math.floor(math.log10(plot.x_max))
    return [10.0**power for power in range(first, last + 1)]


def ticks(most: float, about: int = 4) -> list[float]:
    """Round numbers from 0 to ``most``."""
    if most <= 0 or not math.isfinite(most):
        return [0.0]
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    return [round(step * index, 10) for index in range(int(most / step + 1e-9) + 1)]


def figure(value: float) -> str:
    """A number as short as it can be: 12, 1.5k, 2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
