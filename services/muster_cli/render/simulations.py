"""The results of simulations as lines: one policy in full, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.text import counted, span
from muster.tracesim.contrast import Contrast, QueueShift, Shift
from muster.tracesim.runner import Result
from muster_cli.console import DIM, STRONG, WARN, columns, styled

BASELINE = "best-effort-fifo"
"""Whose mean completion time the others are divided by."""
SHOWN = 10
"""How many jobs of a kind are named."""


def figures(result: Result) -> list[Text]:
    """The results of one policy, in words."""
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
    return _table("POLICY", [(result.policy, result) for result in results], f"seconds; X: against {BASELINE}")


def curve(results: Sequence[tuple[str, Result]]) -> list[Text]:
    """One line per value of a rule: the effect on delay and waste."""
    return _table("RULE", results, "seconds")


def _table(first: str, named: Sequence[tuple[str, Result]], note: str) -> list[Text]:
    results = [result for _, result in named]
    head = (
        first, "DONE", "JCT MEAN", "X", "DELAY MEAN", "P95", "MAX", "SLOWDOWN", "GOODPUT", "JAIN", "MIN", "EVICTED",
        "OF ONE", "LOST GPU-H",
    )  # fmt: skip
    base = next((result.metrics.jct_mean_s for result in results if result.policy == BASELINE), None)
    rows: list[Sequence[Text | str]] = [[styled((title, DIM)) for title in head]]
    for name, result in named:
        metrics = result.metrics
        jct = metrics.jct_mean_s
        rows.append(
            (
                name,
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
                str(metrics.max_evictions_per_job),
                f"{metrics.wasted_gpu_s / 3600:.0f}",
            )
        )
    bound = results[0].metrics.jct_lower_bound_s if results else None
    whole = f"{note}; no policy can have a JCT MEAN under {_seconds(bound)}"
    return [*columns(rows), styled((whole, DIM))]


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(round(seconds * 1000))


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{part * 100:.1f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def contrast_lines(contrast: Contrast, jobs: int, left_out: int, endless: int = 0) -> list[Text]:
    """The effects of a change: the counts, the queues, and the jobs with the largest effect.

    ``endless``: how many jobs have no end in the log.
    """
    parts = [
        f"{len(contrast.earlier)} earlier",
        f"{len(contrast.later)} later",
        f"{len(contrast.gained)} only with the change",
        f"{len(contrast.lost)} no longer at all",
        f"{contrast.same} as before",
    ]
    lines = [styled((f"Of {counted(jobs, 'job')} would start: ", STRONG), ", ".join(parts))]
    if left_out:
        lines.append(
            styled(
                (
                    f"{counted(left_out, 'job')} left out: no queue takes them, or they were deleted before they ran",
                    WARN,
                )
            )
        )
    if endless:
        told = f"{counted(endless, 'job')} had not ended where the log ends: in both runs they keep what they hold"
        lines.append(styled((told, WARN)))
    head = ("QUEUE", "JOBS", "MEAN WAIT", "", "NEVER", "", "EVICTED", "")
    rows: list[Sequence[Text | str]] = [[styled((title, DIM)) for title in head]]
    rows += [_queue_row(row) for row in contrast.queues]
    lines += columns(rows)
    for name, shifts in (("Earlier", contrast.earlier), ("Later", contrast.later)):
        lines += _shifts(name, shifts, "{job} by {by}")
    lines += _shifts("Only with the change", contrast.gained, "{job}")
    lines += _shifts("No longer at all", contrast.lost, "{job}")
    if contrast.evicted:
        lines.append(styled(("Evicted more or less often:", STRONG)))
        lines += [
            Text(f"  {shift.job}  {counted(shift.after, 'time')} instead of {shift.before}")
            for shift in contrast.evicted[:SHOWN]
        ]
        if len(contrast.evicted) > SHOWN:
            lines.append(Text(f"  and {len(contrast.evicted) - SHOWN} more"))
    return lines


def _queue_row(row: QueueShift) -> Sequence[Text | str]:
    return (
        row.queue,
        str(row.jobs),
        _span(row.wait_before_s),
        f"-> {_span(row.wait_after_s)}",
        str(row.never_before),
        f"-> {row.never_after}",
        str(row.evictions_before),
        f"-> {row.evictions_after}",
    )


def _shifts(name: str, shifts: Sequence[Shift], form: str) -> list[Text]:
    if not shifts:
        return []
    lines = [styled((f"{name}:", STRONG))]
    lines += [
        Text("  " + form.format(job=shift.job, by=span(abs(shift.after - shift.before)))) for shift in shifts[:SHOWN]
    ]
    if len(shifts) > SHOWN:
        lines.append(styled((f"  and {len(shifts) - SHOWN} more", DIM)))
    return lines
