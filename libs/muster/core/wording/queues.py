"""Queues in English: their pace, the wait a job may expect from it, and their status."""

from __future__ import annotations

from typing import Literal

from muster.core.codes.codes import CODES
from muster.core.codes.values import NoPromise, Promise
from muster.core.learned import durations
from muster.core.learned.pace import ENOUGH, Estimate
from muster.core.promising import calibration
from muster.model.text import counted, instant, span


def no_estimate(found: Estimate) -> str:
    """Why nothing can be said; empty where something can."""
    match found.why:
        case "too_few":
            seen = f"{counted(found.intervals, 'admission')} in a row were seen in this queue while jobs waited"
            return f"{seen}; {ENOUGH} are needed"
        case "overdue":
            return "its wait is longer already than nearly all waits of this queue"
        case _:
            return ""


def estimate(found: Estimate, position: int, queue: str) -> str:
    """``About 12 min, in 8 of 10 cases between 5 min and 31 min: ...``."""
    spans = f"About {span(found.middle)}, in 8 of 10 cases between {span(found.low)} and {span(found.high)}"
    if not found.rows:
        return (
            f"{spans}: {position} times the mean of {found.intervals} waits between admissions from {queue}, which has "
            "not admitted so many in a row yet."
        )
    rows = f"{counted(position, 'admission')} in a row" if position > 1 else "an admission"
    return f"{spans}: so long {rows} from {queue} took {found.rows} times while jobs waited."


def promise(found: Promise, now: int) -> str:
    """``Starts at about 2026-03-01T09:12Z (in 12 min), and by 2026-03-01T10:00Z (in 1 h), meant to hold in ...``."""
    start, latest = (f"{instant(at)[:16]}Z (in {span(max(0, at - now))})" for at in (found.start, found.latest))
    text = f"Starts at about {start}, and by {latest}, meant to hold in 9 of 10 cases"
    if not found.settled:
        return f"{text}: projected from how long such jobs ran; no promise of this log has been settled yet"
    share = f" ({100 * found.kept // found.settled} of 100)" if found.settled >= 100 else ""
    kept = f"of {found.settled:,} promises {found.kept:,} were kept{share}"
    return f"{text}: projected from how long such jobs ran; {kept}"


def no_promise(why: NoPromise | Literal[""], standing: str) -> str:
    """Why no start is promised; empty where one is. ``standing``: the code of the job."""
    match why:
        case "not_waiting":
            return "it does not wait in a queue"
        case "standing":
            if standing in CODES and CODES[standing].lasts == "final":
                return "it cannot start until it, or its quota, is changed"
            return f"how long {standing} lasts does not follow from its queue"
        case "few_runs":
            return f"fewer than {durations.ENOUGH} runs have ended, so run times cannot be projected"
        case "few_waits":
            return f"fewer than {calibration.ENOUGH} waits have ended, so projections cannot be checked"
        case "endless":
            return "too few of the jobs ahead of it are known to end"
        case _:
            return ""


NOT_IN_FORCE = "it is not in force yet"


def over_quota(names: str) -> str:
    """A queue borrows. ``names``: the resources, with commas."""
    return f"it uses more than its quota of {names}"


def reclaim_off(tree: str, *, declared: bool) -> tuple[str, str]:
    """(that no queue of a tree takes quota back, and why; the command that enables it). ``tree``: namespace/name.

    ``declared``: the tree says so itself; else work ran at first sight.
    """
    off = f"reclaim is off in ElasticQuotaTree {tree}: "
    if declared:
        namespace, _, name = tree.partition("/")
        command = f"kubectl annotate elasticquotatree -n {namespace} {name} muster.dev/reclaim=enabled --overwrite"
        return f"{off}its annotation muster.dev/reclaim is disabled", f"`{command}` enables it"
    why = "jobs that Muster had not admitted were running when it first saw the cluster"
    return off + why, "`muster resume evictions` enables it"
