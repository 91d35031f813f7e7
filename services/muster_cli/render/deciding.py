"""The answer to a state file as lines: admitted jobs with places, evicted jobs with claimants, waiting jobs with
reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.language import listed, marked, say
from muster.tracesim.decide.answer import Answer, Eviction, Moved, Runs
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled

RULES = {
    "reclaim": marked("its queue uses quota that another queue is owed"),
    "preempt": marked("a job of higher priority in its queue takes its place"),
    "gang": marked("the rest of its gang is evicted"),
}
"""Rule of an eviction -> meaning."""


def answer_lines(answer: Answer) -> list[Text]:
    """A section for each of admitted, running, evicted, moved, waiting and warnings; empty sections are left out."""
    lines: list[Text] = []
    for title, colour, runs in (("Admitted", GOOD, answer.admitted), (say("Running on"), DIM, answer.running)):
        lines += _section(title, colour, _runs(runs))
    lines += _section("Evicted", BAD, [_evicted(eviction) for eviction in answer.evicted])
    lines += _section("Moved", WARN, [_moved(move) for move in answer.moved])
    waiting = [[waiter.job, _pod_list(waiter.job, waiter.pods), waiter.code, waiter.text] for waiter in answer.waiting]
    lines += _section("Waiting", WARN, waiting)
    lines += _section("Warnings", WARN, [[warning] for warning in answer.warnings])
    return lines or [Text(say("Nothing is there, and nothing is decided."))]


def _section(title: str, colour: str, rows: Sequence[Sequence[str]]) -> list[Text]:
    if not rows:
        return []
    return [styled((title, f"{STRONG} {colour}")), *columns(rows, indent=2)]


def _runs(runs: Sequence[Runs]) -> list[list[str]]:
    return [
        [run.job, run.queue, pod.name, pod.node, f"GPU {', '.join(map(str, pod.devices))}" if pod.devices else "-"]
        for run in runs
        for pod in run.pods
    ]


def _evicted(eviction: Eviction) -> list[str]:
    return [
        eviction.job,
        _pod_list(eviction.job, eviction.pods),
        say("for {job}", job=eviction.claimant),
        f"{eviction.rule}: {say(RULES[eviction.rule])}",
    ]


def _moved(move: Moved) -> list[str]:
    where = say("from {before} to {after}", before=listed(move.before), after=listed(move.after))
    return [move.job, _pod_list(move.job, move.pods), say("for {job}", job=move.claimant), where]


def _pod_list(job: str, pods: Sequence[str]) -> str:
    if len(pods) <= 4:
        return listed(pods)
    return say("{names} and {number} more", names=listed(pods[:3]), number=len(pods) - 3)
