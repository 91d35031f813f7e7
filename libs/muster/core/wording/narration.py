"""What concerns the whole cell, or a gang of pods, as it is narrated: in `muster up` and `muster story`."""

from __future__ import annotations

from muster.core.codes.values import Counted
from muster.core.wording import problems, telling
from muster.events import decisions as d
from muster.events import facts, system
from muster.model.text import counted

TREE = "quota tree"
"""The word for what happens to a tree."""


def tree(event: d.QuotaTreeAccepted, *, first: bool) -> str:
    """``first``: no tree was in force before."""
    stands = "in force" if first else "a new tree is in force"
    return f"{event.tree.ref.name} {stands}: {telling.tree_summary(event)}"


def tree_refused(event: d.QuotaTreeRejected) -> str:
    return f"{event.ref.name} is {telling.broken_rules(event)}"


def tree_removed(event: d.QuotaTreeRemoved) -> str:
    return f"{event.ref.name} was deleted: nothing is admitted until another is applied"


def unreadable(event: facts.ObjectUnreadable) -> str:
    return f"{event.ref}: {problems.line(event.problem)}"


def genesis(event: system.Genesis) -> str:
    return f"log {event.log_id} begins, generation {event.generation}{telling.before(event)}"


def nearly_full(event: system.LogNearlyFull) -> str:
    return f"it is {event.percent} % full: nothing is queued or admitted from here on"


def ready(jobs: int) -> str:
    """All kinds are listed. ``jobs``: how many there are."""
    return f"the cluster is fully known ({counted(jobs, 'job')}): jobs are admitted from here on"


def gang_phase(phase: str, found: Counted, minimum: int) -> tuple[str, str]:
    """A gang of pods runs, or is over: (word, sentence). ``minimum``: how many pods it takes."""
    takes = f" (it takes {minimum})" if minimum != found.pods else ""
    match phase:
        case "Finished":
            return "finished", f"{found.succeeded} of its {counted(found.pods, 'pod')} succeeded{takes}"
        case "Failed":
            return "failed", f"{found.failed} of its {counted(found.pods, 'pod')} failed{takes}"
        case _:
            return "running", f"{found.running} of its {counted(found.pods, 'pod')} run{takes}"
