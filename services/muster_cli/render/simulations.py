"""The results of simulations as lines: one policy in full, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.text import counted, span
from muster.simulation.runner import Result
from muster_cli.console import DIM, STRONG, WARN, columns, styled

BASELINE = "best-effort-fifo"
"""Whose mean completion time the others are divided by."""


def figures(result: Result) -> list[Text]:
    """What came of one policy, in words."""
    metrics, jobs = result.metrics, result.jobs
    rows = [
        (
            "waiting",
            f"{_span(metrics.queue_delay_mean_s)} on average, {_span(metrics.queue_delay_p95_s)} for 1 in 20, "
            f"{_span(metrics.queue_delay_max_s)} at most",
        ),
        ("until done", f"{_span(metrics.jct_mean_s)} on average; nothing can beat {_span(metrics.jct_lower_bound_s)}"),
        (
            "last end",
            f"{_span(metrics.makespan_s)} after the beginning; nothing can beat "
            f"{_span(metrics.makespan_lower_bound_s)}",
        ),
        (
            "in use",
            f"{_percent(metrics.goodput_utilisation)} of the GPUs, by work that counts, while more is asked for "
            "than there is",
        ),
        (
            "fairness",
            f"{_number(metrics.fairness_jain)} (Jain); the worst-off queue got {_percent(metrics.fairness_min)} "
            "of its share",
        ),
        (
            "evictions",
            f"{metrics.evictions}, {metrics.wasted_gpu_s / 3600:.1f} GPU hours lost by them; "
            f"{metrics.max_evictions_per_job} of one job at most",
        ),
        (
            "violations",
            f"max {metrics.quota_violation_gpu_s:g} GPU-s, guarantee {metrics.guarantee_violation_gpu_s:g} GPU-s",
        ),
    ]
    head = styled((result.policy, STRONG), f": {jobs.finished} of {counted(jobs.submitted, 'job')} finished")
    if jobs.unfinished:
        head.append(f", {jobs.unfinished} not", style=WARN)
    return [head, *columns([(styled((name, DIM)), text) for name, text in rows], indent=2)]


def comparison(results: Sequence[Result]) -> list[Text]:
    """One line per policy; ``x`` is the mean completion time against best-effort FIFO in this very run."""
    head = (
        "POLICY", "DONE", "JCT MEAN", "X", "DELAY MEAN", "P95", "MAX", "SLOWDOWN", "GOODPUT", "JAIN", "MIN", "EVICTED",
        "LOST GPU-H",
    )  # fmt: skip
    base = next((each.metrics.jct_mean_s for each in results if each.policy == BASELINE), None)
    rows: list[Sequence[Text | str]] = [[styled((title, DIM)) for title in head]]
    for result in results:
        metrics = result.metrics
        jct = metrics.jct_mean_s
        rows.append(
            (
                result.policy,
                str(result.jobs.finished),
                _seconds(jct),
                _number(jct / base) if jct is not None and base else "-",
                _seconds(metrics.queue_delay_mean_s),
                _seconds(metrics.queue_delay_p95_s),
                _seconds(metrics.queue_delay_max_s),
                _number(metrics.bounded_slowdown_mean),
                _percent(metrics.goodput_utilisation),
                _number(metrics.fairness_jain),
                _number(metrics.fairness_min),
                str(metrics.evictions),
                f"{metrics.wasted_gpu_s / 3600:.0f}",
            )
        )
    bound = results[0].metrics.jct_lower_bound_s if results else None
    note = f"seconds; X: against {BASELINE}; no policy can have a JCT MEAN under {_seconds(bound)}"
    return [*columns(rows), styled((note, DIM))]


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(round(seconds * 1000))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part * 100:.1f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"
