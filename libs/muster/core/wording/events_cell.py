"""Events about the whole cell in words: the log, the quota tree, the placement; and the phases of a gang of pods."""

from __future__ import annotations

from muster.core.codes.values import Counted
from muster.core.wording import problems
from muster.events import decisions as d
from muster.events import system
from muster.model.resources import format_vector
from muster.model.text import counted, span


def genesis(event: system.Genesis) -> str:
    """Where a generation of the log begins, and why; the first has no reason."""
    begins = f"log {event.log_id} begins, generation {event.generation}"
    if not event.parent:
        return begins
    if not event.state:
        return f"{begins}; the log before it, {event.parent}, is lost"
    by = f" by {event.by}" if event.by else ""
    return f"{begins}; log {event.parent} was rolled over{by}{f': {event.reason}' if event.reason else ''}"


def placement(event: system.PlacementChosen) -> str:
    """The rule by which gangs are placed from here on."""
    if event.mode == "off":
        return "gangs are admitted by quota alone"
    if event.mode == "native":
        kept = f"; a gang without places keeps its quota for {span(event.grow_ms)}" if event.grow_ms else ""
        return f"gangs are admitted by quota, and placed by kube-scheduler{kept}"
    how = "packed" if event.mode == "pack" else "spread"
    if event.cpu not in (None, event.mode):
        how += f", and {'packed' if event.cpu == 'pack' else 'spread'} where they take no GPU"
    return f"gangs are placed on nodes, {how}; places are held for {span(event.hold_ms)}"


def tree_accepted(event: d.QuotaTreeAccepted) -> str:
    """How large a tree is, and the limit of its root."""
    nodes = event.tree.nodes
    root = format_vector(nodes[0].limit) if nodes else ""
    warned = f"; {'; '.join(map(problems.line, event.warnings[:5]))}" if event.warnings else ""
    return f"in force with {counted(len(nodes), 'queue')}, in all {root}{warned}"


def tree_rejected(event: d.QuotaTreeRejected) -> str:
    """Which rules a refused tree breaks."""
    shown = "; ".join(map(problems.line, event.violations[:3]))
    more = f"; and {len(event.violations) - 3} more" if len(event.violations) > 3 else ""
    return f"refused as a whole, the last good tree stays in force: {shown}{more}"


def ready(jobs: int) -> str:
    """All kinds are listed. ``jobs``: their number."""
    return f"the cluster is fully known ({counted(jobs, 'job')}): jobs are admitted from here on"


def gang_phase(phase: str, found: Counted, minimum: int) -> tuple[str, str]:
    """A gang of pods runs, finished or failed: (word, sentence). ``minimum``: the pods that it needs."""
    takes = f" (it needs {minimum})" if minimum != found.pods else ""
    match phase:
        case "Finished":
            return "finished", f"{found.succeeded} of its {counted(found.pods, 'pod')} succeeded{takes}"
        case "Failed":
            return "failed", f"{found.failed} of its {counted(found.pods, 'pod')} failed{takes}"
        case _:
            return "running", f"{found.running} of its {counted(found.pods, 'pod')} run{takes}"
