"""Queues in English: how fast one moves, what that lets a job expect, and what their status says."""

from __future__ import annotations

from muster.core.pace import ENOUGH, Estimate
from muster.model.text import counted, span


def no_estimate(found: Estimate) -> str:
    """Why nothing can be said; empty where something can."""
    match found.why:
        case "too_few":
            seen = f"{counted(found.intervals, 'admission')} in a row were seen in this queue while jobs waited"
            return f"{seen}; {ENOUGH} are needed"
        case "overdue":
            return "it has taken longer already than nearly everything that was seen of this queue"
        case _:
            return ""


def estimate(found: Estimate, position: int, queue: str) -> str:
    """``About 12 min, in 8 of 10 cases between 5 min and 31 min: ...``."""
    spans = f"About {span(found.middle)}, in 8 of 10 cases between {span(found.low)} and {span(found.high)}"
    if not found.rows:
        return (
            f"{spans}: {counted(position, 'admission')} in a row were never seen from {queue}; this is the mean of "
            f"{found.intervals}, drawn out."
        )
    rows = f"{counted(position, 'admission')} in a row" if position > 1 else "an admission"
    return f"{spans}: so long {rows} from {queue} took {found.rows} times while jobs waited."


NOT_IN_FORCE = "it is not in force yet"


def over_quota(names: str) -> str:
    """A queue borrows. ``names``: the resources, with commas."""
    return f"it uses more than its quota of {names}"


def reclaim_off(tree: str, *, declared: bool) -> tuple[str, str]:
    """(that no queue of a tree takes quota back, and why; the command that enables it). ``tree``: namespace/name.

    ``declared``: the tree says so itself; else work ran at first sight.
    """
    told = f"reclaim is off in ElasticQuotaTree {tree}: "
    if declared:
        namespace, _, name = tree.partition("/")
        command = f"kubectl annotate elasticquotatree -n {namespace} {name} muster.dev/reclaim=enabled --overwrite"
        return f"{told}its annotation muster.dev/reclaim says disabled", f"`{command}` enables it"
    why = "jobs that Muster had not admitted were running when it first saw the cluster"
    return told + why, "`muster resume evictions` enables it"
