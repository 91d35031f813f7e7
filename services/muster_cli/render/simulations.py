"""The results of simulations as lines: one policy in full, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.language import listed, marked, say
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
            say(
                "{queue_delay_mean_s} on average, {queue_delay_p95_s} for 1 in 20, {queue_delay_max_s} at most",
                queue_delay_mean_s=_span(metrics.queue_delay_mean_s),
                queue_delay_p95_s=_span(metrics.queue_delay_p95_s),
                queue_delay_max_s=_span(metrics.queue_delay_max_s),
            ),
        ),
        (
            say("until done"),
            say(
                "{jct_mean_s} on average; nothing can beat {jct_lower_bound_s}",
                jct_mean_s=_span(metrics.jct_mean_s),
                jct_lower_bound_s=_span(metrics.jct_lower_bound_s),
            ),
        ),
        (
            say("last end"),
            say(
                "{makespan_s} after the beginning; nothing can beat {makespan_lower_bound_s}",
                makespan_s=_span(metrics.makespan_s),
                makespan_lower_bound_s=_span(metrics.makespan_lower_bound_s),
            ),
        ),
        (
            say("in use"),
            say(
                "{goodput_utilisation} of the GPUs, by work that counts, while more is asked for than there is",
                goodput_utilisation=_percent(metrics.goodput_utilisation),
            ),
        ),
        (
            "fairness",
            say(
                "{fairness_jain} (Jain); the worst-off queue got {fairness_min} of its share",
                fairness_jain=_number(metrics.fairness_jain),
                fairness_min=_percent(metrics.fairness_min),
            ),
        ),
        (
            "evictions",
            say(
                "{evictions}, {wasted_gpu_s:.1f} GPU hours lost by them; {max_evictions_per_job} of one job at most",
                evictions=metrics.evictions,
                wasted_gpu_s=metrics.wasted_gpu_s / 3600,
                max_evictions_per_job=metrics.max_evictions_per_job,
            ),
        ),
        (
            "violations",
            say(
                "max {quota_violation_gpu_s:g} GPU-s, guarantee {guarantee_violation_gpu_s:g} GPU-s",
                quota_violation_gpu_s=metrics.quota_violation_gpu_s,
                guarantee_violation_gpu_s=metrics.guarantee_violation_gpu_s,
            ),
        ),
    ]
    head = styled(
        (result.policy, STRONG),
        say(": {finished} of {jobs} finished", finished=jobs.finished, jobs=counted(jobs.submitted, "job")),
    )
    if jobs.unfinished:
        head.append(say(", {number} not", number=jobs.unfinished), style=WARN)
    return [head, *columns([(styled((name, DIM)), text) for name, text in rows], indent=2)]


def comparison(results: Sequence[Result]) -> list[Text]:
    """One line per policy; ``x`` is the mean completion time against best-effort FIFO in this very run."""
    return _table(
        "POLICY",
        [(result.policy, result) for result in results],
        say("seconds; X: against {baseline}", baseline=BASELINE),
    )


def curve(results: Sequence[tuple[str, Result]]) -> list[Text]:
    """One line per value of a rule: the effect on delay and waste."""
    return _table("RULE", results, "seconds")


def _table(first: str, named: Sequence[tuple[str, Result]], note: str) -> list[Text]:
    results = [result for _, result in named]
    head = (
        first, say("DONE"), say("JCT MEAN"), "X", say("DELAY MEAN"), "P95", say("MAX"), say("SLOWDOWN"),
        say("GOODPUT"), "JAIN", say("MIN"), say("EVICTED"), say("OF ONE"), say("LOST GPU-H"),
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
    whole = say("{note}; no policy can have a JCT MEAN under {bound}", note=note, bound=_seconds(bound))
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
        say("{gained} only with the change", gained=len(contrast.gained)),
        say("{lost} no longer at all", lost=len(contrast.lost)),
        say("{same} as before", same=contrast.same),
    ]
    lines = [styled((say("Of {jobs} would start: ", jobs=counted(jobs, "job")), STRONG), listed(parts))]
    if left_out:
        lines.append(
            styled(
                (
                    say(
                        "{jobs} left out: no queue takes them, or they were deleted before they ran",
                        jobs=counted(left_out, "job"),
                    ),
                    WARN,
                )
            )
        )
    if endless:
        told = say(
            "{jobs} had not ended where the log ends: in both runs they keep what they hold",
            jobs=counted(endless, "job"),
        )
        lines.append(styled((told, WARN)))
    head = (say("QUEUE"), say("JOBS"), say("MEAN WAIT"), "", say("NEVER"), "", say("EVICTED"), "")
    rows: list[Sequence[Text | str]] = [[styled((title, DIM)) for title in head]]
    rows += [_queue_row(row) for row in contrast.queues]
    lines += columns(rows)
    for name, shifts in ((say("Earlier"), contrast.earlier), (say("Later"), contrast.later)):
        lines += _shifts(name, shifts, marked("{job} by {by}"))
    lines += _shifts(say("Only with the change"), contrast.gained, "{job}")
    lines += _shifts(say("No longer at all"), contrast.lost, "{job}")
    if contrast.evicted:
        lines.append(styled((say("Evicted more or less often:"), STRONG)))
        lines += [
            Text(
                "  "
                + say(
                    "{job}  {times} instead of {before}",
                    job=shift.job,
                    times=counted(shift.after, "time"),
                    before=shift.before,
                )
            )
            for shift in contrast.evicted[:SHOWN]
        ]
        if len(contrast.evicted) > SHOWN:
            lines.append(Text("  " + say("and {number} more", number=len(contrast.evicted) - SHOWN)))
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
        Text("  " + say(form, job=shift.job, by=span(abs(shift.after - shift.before)))) for shift in shifts[:SHOWN]
    ]
    if len(shifts) > SHOWN:
        lines.append(styled(("  " + say("and {number} more", number=len(shifts) - SHOWN), DIM)))
    return lines
